// The kernels of an instance: modules made of the images in this binary, and their functions.
#include "device/cuda/cuda_device.h"
#include "device/cuda/facts.h"
#include "device/cuda/images.h"
#include "device/cuda/kernels/arguments.h"
#include <stdio.h>
#include <string.h>

static const struct {
  const char *file, *name;
  enum { EACH_DTYPE, EACH_SUM, ONE_F64, EACH_NARROW } dtypes;
} kernels[] = {
#define CUDA_KERNEL(file, name, dtypes) {#file, #name, dtypes},
#include "device/cuda/kernel_names.def"
#undef CUDA_KERNEL
};
enum { KERNEL_NAME = 80 };

int cuda_has_code(void) { return kernel_images[0].code != NULL; }

static int failed(const CudaInstance *c, CudaResult result, const char *what, const char *name, Error *error) {
  char text[256];
  return error_set(error, PLAIT_INFEASIBLE, "CUDA device %d (%s) %s %s: %s", c->number, c->name, what, name,
                   cuda_result_text(c->driver, result, text, sizeof text));
}

// The function of a kernel in a dtype, by the name that KERNEL gave it.
static void name_of(int kernel, Dtype dtype, char name[KERNEL_NAME]) {
  static const char *const suffix[] = {[DTYPE_F64] = "f64", [DTYPE_F32] = "f32", [DTYPE_BF16] = "bf16",
                                       [DTYPE_F16] = "f16"};
  if (kernels[kernel].dtypes == ONE_F64) dtype = DTYPE_F64;
  if (kernels[kernel].dtypes == EACH_SUM && dtype != DTYPE_F64) dtype = DTYPE_F32;
  snprintf(name, KERNEL_NAME, "%s_%s", kernels[kernel].name, suffix[dtype]);
}

static int load_module(const CudaInstance *c, const KernelImage *image, CudaModule *module, Error *error) {
  const void *code = c->driver->takes_operands ? CUDA_EMULATED_IMAGE : image->code;
  CudaFunction mark;
  char name[KERNEL_NAME];
  CudaResult result = c->driver->cuModuleLoadData(module, code);
  if (result) return failed(c, result, "does not take the kernels of", image->file, error);
  snprintf(name, sizeof name, "kernels_%s_%s", image->file, image->hash);
  result = c->driver->cuModuleGetFunction(&mark, *module, name);
  if (FAULT(other_kernels_are_taken, result, CUDA_OK) == CUDA_NOT_FOUND)
    return error_set(error, PLAIT_INFEASIBLE,
                     "%s has kernels of other sources than this plait: build both anew (ninja plait emulated_cuda)",
                     c->driver->path);
  return result ? failed(c, result, "does not find", name, error) : PLAIT_OK;
}

static int find_functions(CudaInstance *c, const char *file, CudaModule module, Error *error) {
  for (int k = 0; k < CUDA_KERNELS; k++)
    for (int dtype = 0; dtype < CUDA_DTYPES && !strcmp(kernels[k].file, file); dtype++) {
      char name[KERNEL_NAME];
      if (kernels[k].dtypes == EACH_NARROW && dtype != DTYPE_BF16 && dtype != DTYPE_F16) continue;
      name_of(k, (Dtype)dtype, name);
      CudaResult result = c->driver->cuModuleGetFunction(&c->function[k][dtype], module, name);
      if (result) return failed(c, result, "does not find the kernel", name, error);
    }
  return PLAIT_OK;
}

int cuda_load_kernels(CudaInstance *c, Error *error) {
  if (fallback_takes_all()) return PLAIT_OK;
  if (!cuda_has_code() && !c->driver->takes_operands)
    return error_set(error, PLAIT_INFEASIBLE,
                     "this plait was built without kernels for cards: build it where nvcc is, or set "
                     "PLAIT_CUDA_HOST=all, with which all ops run on the host");
  int version = c->driver->version, oldest = kernels_cuda / 1000 * 1000; // drivers serve all minor versions of theirs
  if (!c->driver->takes_operands && version < oldest)
    return error_set(
        error, PLAIT_INFEASIBLE,
        "the kernels of this plait were compiled by the nvcc of CUDA %d.%d, and the driver %s is one for CUDA "
        "%d.%d: install a newer driver, or build plait with an older nvcc",
        kernels_cuda / 1000, kernels_cuda % 1000 / 10, c->driver->path, version / 1000, version % 1000 / 10);
  for (const KernelImage *image = kernel_images; image->file; image++) {
    CudaModule module;
    int code = load_module(c, image, &module, error);
    if (!code) code = find_functions(c, image->file, module, error);
    if (code) return code;
  }
  c->has_kernels = 1;
  return PLAIT_OK;
}
