#include "device/cuda/library.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/images.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODYS_KERNELS = 12 }; // the oldest CUDA that plait's host code knows

// A library that is looked for. into: a CudaBlas or CudaDnn, which begins with its path.
typedef struct Entry { const char *name; size_t place; } Entry;
typedef struct Wanted {
  const char *what, *file, *emulated; // file: with the number of CUDA, if it has one
  const char *package, *folder[2];    // of Python: where it is, and folders of it
  const Entry *entry;
  size_t entries;
  char *into;
  const char *(*refusal)(const CudaDriver *driver); // why the library that is loaded is not taken; NULL: it is
  const CudaDriver *driver; // NULL: nobody has looked yet
  Error problem;
} Wanted;
enum { MOST_PATH = sizeof((CudaBlas *)0)->path };

static CudaBlas blas;
static CudaDnn dnn;

static int find_entries(Wanted *w, void *library) {
  for (size_t i = 0; i < w->entries; i++) {
    void *entry = dlsym(library, w->entry[i].name);
    if (!entry)
      return error_set(&w->problem, PLAIT_INFEASIBLE, "%s has no %s: it is not a whole %s", w->into, w->entry[i].name,
                       w->what);
    memcpy(w->into + w->entry[i].place, &entry, sizeof entry);
  }
  const char *refusal = w->refusal(w->driver);
  return refusal ? error_set(&w->problem, PLAIT_INFEASIBLE, "%s %s", w->into, refusal) : PLAIT_OK;
}

// 1: there is one, taken or not. folder "": where the loader looks.
static int try_in(Wanted *w, const char *folder, int cuda) {
  char file[64], path[MOST_PATH];
  snprintf(file, sizeof file, w->file, cuda);
  int n = snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", file);
  void *library = n < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) return 0;
  if (!dlsym(library, w->emulated) != !w->driver->takes_operands) {
    dlclose(library);
    return 0;
  }
  memcpy(w->into, path, sizeof path);
  find_entries(w, library);
  return 1;
}

static int try_listed(Wanted *w, int cuda) {
  const char *list = getenv("PLAIT_CUDA_LIBRARIES");
  char *folders = xstrdup(list ? list : ""), *rest = folders, *folder;
  int found = 0;
  while (!found && (folder = strsep(&rest, ":"))) found = *folder && try_in(w, folder, cuda);
  free(folders);
  return found;
}

// Python packages of NVIDIA's have their libraries in folders of one package, nvidia.
static int try_python(Wanted *w, int cuda) {
  FILE *python = popen("python3 -c 'import importlib.util as u; s = u.find_spec(\"nvidia\")\n"
                       "for f in s.submodule_search_locations if s else []: print(f)' 2>/dev/null", "re");
  char line[200], folder[MOST_PATH];
  int found = 0;
  while (python && fgets(line, sizeof line, python)) {
    line[strcspn(line, "\n")] = 0;
    for (size_t i = 0; i < sizeof w->folder / sizeof *w->folder && w->folder[i] && !found; i++) {
      snprintf(folder, sizeof folder, "%s/%s", line, w->folder[i]);
      found = try_in(w, folder, cuda);
    }
  }
  if (python) pclose(python);
  return found;
}

static int oldest_cuda(const CudaDriver *driver) {
  return driver->takes_operands || !kernels_cuda ? NOBODYS_KERNELS : kernels_cuda / 1000;
}

static void load(Wanted *w) {
  const int emulated = w->driver->takes_operands != NULL, newest = w->driver->version / 1000;
  int found = 0, oldest = strchr(w->file, '%') ? oldest_cuda(w->driver) : newest;
  for (int cuda = newest; cuda >= oldest && !found; cuda--)
    found = try_listed(w, cuda) || (!emulated && (try_in(w, "", cuda) || try_python(w, cuda)));
  char file[64];
  snprintf(file, sizeof file, w->file, newest);
  if (!found)
    error_set(&w->problem, PLAIT_INFEASIBLE,
              "there is no %s%s here: NVIDIA's packages of %s have it (pip install %s); "
              "PLAIT_CUDA_LIBRARIES names the folder where it is",
              file, emulated ? " of the emulator's" : "", w->what, w->package);
}

// 1: it is there, else a sentence.
static int take(Wanted *w, const CudaDriver *driver, Error *error) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  if (!w->driver) {
    w->driver = driver;
    load(w);
  }
  pthread_mutex_unlock(&mutex);
  if (w->problem.code) error_take(error, &w->problem);
  return !w->problem.code;
}

static const char *blas_refusal(const CudaDriver *driver) {
  blas.version = blas.cublasLtGetVersion();
  return NULL;
}

const CudaBlas *cuda_blas(const CudaDriver *driver, Error *error) {
  static const Entry entries[] = {
#define BLAS_ENTRY(result, name, parameters) {#name, offsetof(CudaBlas, name)},
#include "device/cuda/blas_entries.def"
#undef BLAS_ENTRY
  };
  static Wanted wanted = {.what = "cuBLAS", .file = "libcublasLt.so.%d", .emulated = BLAS_EMULATED,
                          .package = "nvidia-cublas", .folder = {"cu13/lib", "cublas/lib"}, .entry = entries,
                          .entries = sizeof entries / sizeof *entries, .into = (char *)&blas, .refusal = blas_refusal};
  return take(&wanted, driver, error) ? &blas : NULL;
}

static const char *dnn_refusal(const CudaDriver *driver) {
  static char text[128];
  const int cuda = (int)(dnn.cudnnGetCudartVersion() / 1000);
  dnn.version = dnn.cudnnGetVersion();
  if (dnn.version < DNN_OLDEST) {
    snprintf(text, sizeof text, "is cuDNN %zu.%zu, and plait needs 9.10 or newer", dnn.version / 10000,
             dnn.version / 100 % 100);
    return text;
  }
  if (cuda <= driver->version / 1000 && cuda >= oldest_cuda(driver)) return NULL;
  snprintf(text, sizeof text, "is made for CUDA %d, and the driver is one for CUDA %d", cuda, driver->version / 1000);
  return text;
}

const CudaDnn *cuda_dnn(const CudaDriver *driver, Error *error) {
  static const Entry entries[] = {
#define DNN_ENTRY(result, name, parameters) {#name, offsetof(CudaDnn, name)},
#include "device/cuda/dnn_entries.def"
#undef DNN_ENTRY
  };
  static Wanted wanted = {.what = "cuDNN", .file = "libcudnn.so.9", .emulated = DNN_EMULATED,
                          .package = "nvidia-cudnn-cu13", .folder = {"cudnn/lib"}, .entry = entries,
                          .entries = sizeof entries / sizeof *entries, .into = (char *)&dnn, .refusal = dnn_refusal};
  return take(&wanted, driver, error) ? &dnn : NULL;
}

// An emulated driver has no library unless somebody names one.
static void tell_missing(const CudaDriver *driver, const char *what, const char *why) {
  const char *folders = getenv("PLAIT_CUDA_LIBRARIES");
  if (!driver->takes_operands || (folders && *folders))
    fprintf(stderr, "note: %s plait's own kernels, which are slow: %s\n", what, why);
}

int cuda_library_ready(CudaInstance *c, CudaLibrary which, const char *what, LibraryStart *start) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static int told[CUDA_LIBRARIES];
  Error error = {0};
  pthread_mutex_lock(&mutex);
  if (c->library[which] == NOBODY_ASKED) {
    c->library[which] = start(c, &error) ? IS_MISSING : IS_READY;
    if (error.code && !told[which]) tell_missing(c->driver, what, error.message);
    told[which] |= error.code != 0;
  }
  const int is_ready = c->library[which] == IS_READY;
  pthread_mutex_unlock(&mutex);
  return is_ready;
}

int cuda_library_facts(CudaLibrary which, const char **library, size_t *version, Error *error) {
  const CudaDriver *driver;
  int code = cuda_driver_loaded(&driver, error);
  if (code) return code;
  if (which == CUDA_LIBRARY_BLAS ? !cuda_blas(driver, error) : !cuda_dnn(driver, error)) return PLAIT_INFEASIBLE;
  *library = which == CUDA_LIBRARY_BLAS ? blas.path : dnn.path;
  *version = which == CUDA_LIBRARY_BLAS ? blas.version : dnn.version;
  return PLAIT_OK;
}
