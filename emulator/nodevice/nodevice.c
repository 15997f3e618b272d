// A libcuda.so.1 that answers every call with success and does nothing, for cuDNN, which plans a graph for a device's
// properties without a device, but loads the plan's kernels. See ../README.md.
#include <stddef.h>

#define ENTRY(name) int name(void); int name(void) { return 0; }
ENTRY(cuLibraryUnload)
ENTRY(cuKernelSetAttribute)
ENTRY(cuFuncSetAttribute)
ENTRY(cuFuncSetCacheConfig)
ENTRY(cuKernelSetCacheConfig)
ENTRY(cuModuleUnload)
ENTRY(cuCtxPushCurrent)
ENTRY(cuLinkCreate)
ENTRY(cuLinkAddData)
ENTRY(cuLinkComplete)
ENTRY(cuLinkDestroy)
ENTRY(cuLaunchKernel)
ENTRY(cuLaunchCooperativeKernel)
ENTRY(cuLaunchKernelEx)

static int answered; // handles point here: none is NULL
#define GIVES_HANDLE(name) int name(void **handle); int name(void **handle) { *handle = &answered; return 0; }
GIVES_HANDLE(cuLibraryLoadData)
GIVES_HANDLE(cuLibraryGetKernel)
GIVES_HANDLE(cuLibraryGetModule)
GIVES_HANDLE(cuKernelGetFunction)
GIVES_HANDLE(cuKernelGetLibrary)
GIVES_HANDLE(cuModuleLoadData)
GIVES_HANDLE(cuModuleGetFunction)
GIVES_HANDLE(cuCtxPopCurrent)
GIVES_HANDLE(cuLibraryLoadFromFile)
GIVES_HANDLE(cuCtxGetCurrent)

#define GIVES_NUMBER(name) int name(int *value); int name(int *value) { *value = 0; return 0; }
GIVES_NUMBER(cuFuncGetAttribute)
GIVES_NUMBER(cuKernelGetAttribute)
GIVES_NUMBER(cuDeviceGetCount)
GIVES_NUMBER(cuOccupancyMaxPotentialClusterSize)
GIVES_NUMBER(cuDeviceGet)
int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorString(int code, const char **text);
int cuGetErrorString(int code, const char **text) { *text = "no device"; return 0; }
int cuGetErrorName(int code, const char **text);
int cuGetErrorName(int code, const char **text) { *text = "NO_DEVICE"; return 0; }
int cuStreamGetCtx(void *stream, void **context);
int cuStreamGetCtx(void *stream, void **context) { *context = &answered; return 0; }
int cuCtxGetLimit(size_t *value, int limit);
int cuCtxGetLimit(size_t *value, int limit) { *value = 0; return 0; }
