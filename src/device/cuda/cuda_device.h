// Shared by the files of this folder: instances, queues, and ops that run on the host.
#pragma once
#include "base/fault.h"
#include "device/cuda/driver.h"
#include "device/cuda/facts.h"
#include "device/device.h"
#include <pthread.h>

// The kernels; a launch names one, and its instance has its function in each dtype.
typedef enum CudaKernel {
#define CUDA_KERNEL(file, name, dtypes) CUDA_KERNEL_##name,
#include "device/cuda/kernel_names.def"
#undef CUDA_KERNEL
  CUDA_KERNELS
} CudaKernel;
enum { CUDA_DTYPES = DTYPE_F16 + 1 }; // fp64, fp32, bf16, fp16 are the first

typedef struct CudaProducts CudaProducts;   // products.h
typedef struct CudaAttention CudaAttention; // attention_library.h
typedef struct CudaNeighbours CudaNeighbours; // neighbours.h

// A device of this process, with its primary context, which ranks that are threads share.
typedef struct CudaInstance {
  Device device; // its description; `own` is this
  const CudaDriver *driver;
  int number;
  char name[64];
  CudaContext context;
  int multiprocessors;
  int has_kernels; // 0: all ops run on the host
  int waits;       // PLAIT_CUDA_SYNC=1: for each kernel, so that the one that fails is named
  CudaProducts *products; // by a library; NULL: there is none, or nobody has asked
  CudaAttention *attention; // the same
  enum { NOBODY_ASKED, IS_READY, IS_MISSING } library[CUDA_LIBRARIES];
  CudaFunction function[CUDA_KERNELS][CUDA_DTYPES];
} CudaInstance;

// Events are used in turn: one that was recorded again since stands for a later place in the same stream, so whoever
// waits for it waits a little longer.
enum { CUDA_EVENTS = 64 };

typedef struct CudaQueue {
  DeviceQueue base;
  CudaInstance *instance;
  CudaStream stream;
  pthread_mutex_t mutex; // of events and the error
  CudaEvent event[CUDA_EVENTS];
  uint64_t recorded;
  Error failed;           // the first call that failed: nothing is computed after it
  DeviceQueue host_queue; // for kernels of the CPU
  char *host;             // pinned memory for their operands and workspace; NULL: none yet
  size_t host_bytes;
  int64_t host_calls; // of ops with kernels that do not fit
  CudaNeighbours *neighbours; // launches that are not in the stream yet; NULL: there were none
  unsigned partials;             // how many sums of squares have had a place for partial sums
} CudaQueue;

static inline CudaInstance *cuda_instance_of(const Device *device) { return (CudaInstance *)(uintptr_t)device->own; }

// Makes the instance's context the calling thread's.
void cuda_enter(const CudaInstance *instance);
// Remembers a call that failed, and what for; 1: it did.
int cuda_noted(CudaQueue *queue, CudaResult result, const char *call, const char *what);
// The same of a library's call, with the name of its error.
void cuda_noted_text(CudaQueue *queue, const char *result, const char *call, const char *what);
int cuda_has_failed(CudaQueue *queue);
// With PLAIT_CUDA_SYNC=1: until the op is done, so that one that fails is named.
void cuda_wait_if_asked(CudaQueue *queue, const char *op);

// neighbours.c: puts launches that wait for others of their kind into the stream. Before anything else is put there.
void neighbours_flush(CudaQueue *queue);
void neighbours_free(CudaQueue *queue);

// Records what is in the queue now: the number of the event.
uint64_t cuda_record(CudaQueue *queue);

// pinned.c: pages of the host's memory as DeviceImplementation has them, and copies to and from any memory of it, which
// may return before they are done.
int cuda_pin(const Device *device, char *memory, int64_t bytes);
void cuda_unpin(const Device *device, char *memory);
// For each queue that is made, and that is destroyed: the last one frees the pinned pieces.
void cuda_pinned_open(void);
void cuda_pinned_close(const CudaInstance *instance);
void cuda_copy_host(CudaQueue *queue, DeviceCopy kind, CudaPointer there, char *here, int64_t bytes);

// modules.c: loads the kernels of an instance, once. PLAIT_INFEASIBLE: this binary has none for cards, the device does
// not take them, or the emulated driver's are of other sources.
int cuda_load_kernels(CudaInstance *instance, Error *error);

// library.c: starts a library for the instance the first time that one of its ranks asks. start: sets c->products or
// c->attention. what: as "products use", in the note "WHAT plait's own kernels, which are slow: …". 0: there is none,
// or it does not start, which one note a process has said.
typedef int LibraryStart(CudaInstance *c, Error *error);
int cuda_library_ready(CudaInstance *c, CudaLibrary which, const char *what, LibraryStart *start);

// launch.c: ops with a kernel for the device. 0: it has none, or PLAIT_CUDA_HOST names it. bind and run are for ops on
// the host, too.
int kernels_find(Op op, Dtype dtype, DeviceKernel *kernel);
int kernels_bind(const DeviceKernel *kernel, const KernelCall *call, Arena *arena, DeviceBound *bound, Error *error);
// Compares products of libraries that the call will use with plait's own, see DeviceImplementation; how many.
int kernels_check(CudaQueue *queue, const DeviceBound *bound, const KernelCall *call, char *memory, int64_t bytes);
void kernels_run(CudaQueue *queue, const DeviceBound *bound, const KernelCall *call);

// fallback.c: ops without a kernel for the device: their operands are copied to the host, where the CPU's kernel runs.
// With all ops there a Program gives the CPU's bits.
// The CPU's kernel; 0: it has none either.
int fallback_find(Op op, Dtype dtype, DeviceKernel *kernel);
int fallback_bind(const DeviceKernel *kernel, const KernelCall *call, Arena *arena, DeviceBound *bound, Error *error);
// Waits for what is in the queue, and then does it in the calling thread.
void fallback_run(CudaQueue *queue, const DeviceBound *bound, const KernelCall *call);
// PLAIT_CUDA_HOST names ops that run on the host though the device has a kernel, or is "all", or "none": then ops for
// the host fail. PLAIT_BAD_INPUT where one there, or in PLAIT_CUDA_OWN, is unknown.
int fallback_check_wish(Error *error);
int fallback_takes_all(void);
int fallback_takes(Op op);
// PLAIT_CUDA_OWN names ops that use plait's own kernels in the place of a library's, or is "all".
int own_takes(Op op);
