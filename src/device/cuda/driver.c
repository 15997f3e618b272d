#include "device/cuda/driver.h"
#include "base/fault.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CudaDriver loaded;
static Error problem;

const char *cuda_result_text(const CudaDriver *driver, CudaResult result, char *text, size_t size) {
  const char *name = NULL, *meaning = NULL;
  driver->cuGetErrorName(result, &name);
  driver->cuGetErrorString(result, &meaning);
  snprintf(text, size, "%s (%s)", name ? name : "an unknown error", meaning ? meaning : "unknown");
  return text;
}

static int find_entries(void *library) {
  static const struct { const char *name; size_t place; } entries[] = {
#define CUDA_ENTRY(name, parameters) {#name, offsetof(CudaDriver, name)},
#include "device/cuda/entries.def"
#undef CUDA_ENTRY
  };
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    void *entry = dlsym(library, entries[i].name);
    if (!entry)
      return error_set(&problem, PLAIT_INFEASIBLE, "the CUDA driver %s has no %s: it is not a whole driver",
                       loaded.path, entries[i].name);
    memcpy((char *)&loaded + entries[i].place, &entry, sizeof entry);
  }
  void *operands = dlsym(library, CUDA_TAKES_OPERANDS);
  memcpy(&loaded.takes_operands, &operands, sizeof operands);
  return PLAIT_OK;
}

static int check_version(void) {
  if (loaded.cuDriverGetVersion(&loaded.version)) loaded.version = 0;
  if (FAULT(old_driver_is_taken, loaded.version >= CUDA_OLDEST, 1)) return PLAIT_OK;
  return error_set(
      &problem, PLAIT_INFEASIBLE,
      "the CUDA driver %s is one for CUDA %d.%d, and plait needs one for CUDA 12.0: install NVIDIA's driver "
      "525 or a newer one",
      loaded.path, loaded.version / 1000, loaded.version % 1000 / 10);
}

static void initialise(void) {
  if (problem.code) return;
  char text[256];
  CudaResult result = loaded.cuInit(0);
  if (!result) result = loaded.cuDeviceGetCount(&loaded.devices);
  if (result == CUDA_NO_DEVICE || (!result && !loaded.devices))
    error_set(&problem, PLAIT_INFEASIBLE,
              "the CUDA driver has no device: this machine has no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it");
  else if (result)
    error_set(&problem, PLAIT_INFEASIBLE, "the CUDA driver %s does not start: %s; nvidia-smi says more", loaded.path,
              cuda_result_text(&loaded, result, text, sizeof text));
}

static void load(void) {
  const char *wish = getenv("PLAIT_CUDA_DRIVER");
  loaded.path = wish && *wish ? xstrdup(wish) : "libcuda.so.1";
  void *library = dlopen(loaded.path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    error_set(&problem, PLAIT_INFEASIBLE, "there is no CUDA driver here (%.200s); NVIDIA's driver packages have it",
              dlerror());
  if (library && !find_entries(library)) check_version();
}

int cuda_driver_loaded(const CudaDriver **driver, Error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *driver = &loaded;
  return problem.code ? error_take(error, &problem) : PLAIT_OK;
}

int cuda_driver(const CudaDriver **driver, Error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int code = cuda_driver_loaded(driver, error);
  if (code) return code;
  pthread_once(&once, initialise);
  return problem.code ? error_take(error, &problem) : PLAIT_OK;
}
