#include "device/cuda/library.h"
#include "device/cuda/facts.h"
#include "device/cuda/images.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODYS_KERNELS = 12 }; // the oldest CUDA that plait's host code knows

static CudaBlas loaded;
static Error problem;
static const CudaDriver *driver_of_it;

static int find_entries(void *library) {
  static const struct { const char *name; size_t place; } entries[] = {
#define BLAS_ENTRY(result, name, parameters) {#name, offsetof(CudaBlas, name)},
#include "device/cuda/blas_entries.def"
#undef BLAS_ENTRY
  };
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    void *entry = dlsym(library, entries[i].name);
    if (!entry)
      return error_set(&problem, PLAIT_INFEASIBLE, "%s has no %s: it is not a whole cuBLASLt", loaded.path,
                       entries[i].name);
    memcpy((char *)&loaded + entries[i].place, &entry, sizeof entry);
  }
  loaded.version = loaded.cublasLtGetVersion();
  return PLAIT_OK;
}

// 1: there is one, whole or not. folder "": where the loader looks.
static int try_in(const char *folder, int cuda) {
  char path[sizeof loaded.path];
  int n = snprintf(path, sizeof path, "%s%slibcublasLt.so.%d", folder, *folder ? "/" : "", cuda);
  void *library = n < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) return 0;
  if (!dlsym(library, BLAS_EMULATED) != !driver_of_it->takes_operands) {
    dlclose(library);
    return 0;
  }
  memcpy(loaded.path, path, sizeof path);
  find_entries(library);
  return 1;
}

static int try_listed(int cuda) {
  const char *list = getenv("PLAIT_CUDA_LIBRARIES");
  char *folders = xstrdup(list ? list : ""), *rest = folders, *folder;
  int found = 0;
  while (!found && (folder = strsep(&rest, ":"))) found = *folder && try_in(folder, cuda);
  free(folders);
  return found;
}

// Python packages of NVIDIA's have their libraries in folders of one package, nvidia.
static int try_python(int cuda) {
  static const char *const parts[] = {"cu13/lib", "cublas/lib"};
  FILE *python = popen("python3 -c 'import importlib.util as u; s = u.find_spec(\"nvidia\")\n"
                       "for f in s.submodule_search_locations if s else []: print(f)' 2>/dev/null", "re");
  char line[200], folder[256];
  int found = 0;
  while (python && fgets(line, sizeof line, python)) {
    line[strcspn(line, "\n")] = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !found; i++) {
      snprintf(folder, sizeof folder, "%s/%s", line, parts[i]);
      found = try_in(folder, cuda);
    }
  }
  if (python) pclose(python);
  return found;
}

static void load(void) {
  int emulated = driver_of_it->takes_operands != NULL;
  int newest = driver_of_it->version / 1000, oldest = emulated || !kernels_cuda ? NOBODYS_KERNELS : kernels_cuda / 1000;
  int found = 0;
  for (int cuda = newest; cuda >= oldest && !found; cuda--)
    found = try_listed(cuda) || (!emulated && (try_in("", cuda) || try_python(cuda)));
  if (!found)
    error_set(&problem, PLAIT_INFEASIBLE,
              "there is no libcublasLt.so.%d%s here: NVIDIA's packages of cuBLAS have it (pip install nvidia-cublas); "
              "PLAIT_CUDA_LIBRARIES names the folder where it is",
              newest, emulated ? " of the emulator's" : "");
}

const CudaBlas *cuda_blas(const CudaDriver *driver, Error *error) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  if (!driver_of_it) {
    driver_of_it = driver;
    load();
  }
  pthread_mutex_unlock(&mutex);
  if (!problem.code) return &loaded;
  error_take(error, &problem);
  return NULL;
}

int cuda_library_facts(const char **library, size_t *version, Error *error) {
  const CudaDriver *driver;
  int code = cuda_driver_loaded(&driver, error);
  const CudaBlas *blas = code ? NULL : cuda_blas(driver, error);
  if (!blas) return code ? code : PLAIT_INFEASIBLE;
  *library = blas->path;
  *version = blas->version;
  return PLAIT_OK;
}
