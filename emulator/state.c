// Who calls, and whether it may.
#include "emulator.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t initialised; // the process that called cuInit; 0: none
static struct CUctx_st contexts[MOST_DEVICES];
static _Thread_local CudaContext current;
static uint64_t random_state;

_Noreturn void wrong(const char *call, const char *format, ...) {
  va_list arguments;
  char text[512];
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "emulated CUDA driver: %s: %s\n", call, text);
  fflush(stderr);
  abort();
}

static long long number_of(const char *variable, long long otherwise) {
  const char *text = getenv(variable);
  return text ? atoll(text) : otherwise;
}

uint64_t emulated_seed(void) { return (uint64_t)number_of("PLAIT_EMULATED_SEED", 1); }

uint64_t draw(uint64_t below) {
  if (!random_state) random_state = emulated_seed() * 2654435761u + 1;
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (random_state >> 33) % below;
}

int fails_now(const char *kind) {
  static struct { const char *kind; long long calls; } counted[] = {{"copy", 0}, {"fill", 0}, {"launch", 0}, {"alloc", 0}};
  const char *wish = getenv("PLAIT_EMULATED_FAILS");
  size_t n = strlen(kind);
  for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
    if (strcmp(counted[i].kind, kind)) continue;
    counted[i].calls++;
    return wish && !strncmp(wish, kind, n) && wish[n] == ' ' && atoll(wish + n) == counted[i].calls;
  }
  return 0;
}

int emulated_devices(void) {
  long long n = number_of("PLAIT_EMULATED_DEVICES", 1);
  return n < 0 ? 0 : n > MOST_DEVICES ? MOST_DEVICES : (int)n;
}

CudaResult enter(const char *call, Needs needs, CudaContext *context) {
  pthread_mutex_lock(&lock);
  if (needs == NEEDS_NOTHING) return CUDA_OK;
  if (!initialised) wrong(call, "nobody has called cuInit");
  if (initialised != getpid()) wrong(call, "called in a child of the process that has called cuInit");
  if (needs == NEEDS_INIT) return CUDA_OK;
  if (!current) wrong(call, "the calling thread has no current context");
  if (context) *context = current;
  return current->failed;
}

CudaResult leave(CudaResult result) {
  pthread_mutex_unlock(&lock);
  return result;
}

int check_device(const char *call, CudaDevice device) {
  if (device < 0 || device >= emulated_devices()) wrong(call, "there is no device %d", device);
  return device;
}

CudaContext primary_context(CudaDevice device) {
  contexts[device].device = device;
  return &contexts[device];
}

void set_current(CudaContext context) { current = context; }

// For what a program has not given back. One that has met an error, or was killed, need not.
static void look_for_leaks(void) {
  char text[256] = "";
  if (initialised != getpid()) return;
  for (int i = 0; i < MOST_DEVICES; i++)
    if (contexts[i].failed) return;
  int leaks = memory_leaks(text, sizeof text);
  if (!leaks) leaks = stream_leaks(text, sizeof text);
  if (leaks) wrong("exit", "%d not given back, as %s", leaks, text);
}

CudaResult cuInit(unsigned flags) {
  enter(__func__, NEEDS_NOTHING, NULL);
  if (flags) wrong(__func__, "flags are %u, and must be 0", flags);
  if (initialised && initialised != getpid()) wrong(__func__, "called in a child of the process that has called cuInit");
  if (!initialised) atexit(look_for_leaks);
  initialised = getpid();
  return leave(emulated_devices() ? CUDA_OK : CUDA_NO_DEVICE);
}

CudaResult cuDriverGetVersion(int *version) {
  *version = (int)number_of("PLAIT_EMULATED_VERSION", CUDA_OLDEST);
  return CUDA_OK;
}

static const struct { CudaResult result; const char *name, *text; } results[] = {
    {CUDA_OK, "CUDA_SUCCESS", "no error"},
    {CUDA_BAD_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_BAD_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_BAD_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}};

CudaResult cuGetErrorName(CudaResult result, const char **name) {
  *name = NULL;
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i].result == result) *name = results[i].name;
  return *name ? CUDA_OK : CUDA_BAD_VALUE;
}

CudaResult cuGetErrorString(CudaResult result, const char **text) {
  *text = NULL;
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i].result == result) *text = results[i].text;
  return *text ? CUDA_OK : CUDA_BAD_VALUE;
}
