// tier 2; rooms device
// An installed cuDNN plans the graphs of attention without a device, for the properties of an H100 (h100.json, as cuDNN
// gave them on a card): it finds a plan for each, whose workspace fits the room that memory plans have for it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/cuda/attention_graph.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SKIPPED = 77 };

// AddressSanitizer asks it.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libcudnn\nleak:libnvrtc"; }

static CudaDriver driver = {.path = "a driver", .version = 13000};
static const CudaDnn *dnn;
static DnnTarget h100;

typedef struct Sizes { int64_t b, heads, groups, t, d; } Sizes;

static const char *name_of(const AttentionKey *k, char *text, size_t size) {
  snprintf(text, size, "%s of %lld × %lld, heads %lld:%lld of %lld, %s%s%s", k->gradient ? "gradient" : "attention",
           (long long)k->b, (long long)k->t, (long long)(k->g * k->r), (long long)k->g, (long long)k->d,
           dtype_name((Dtype)k->dtype), k->whole ? ", one document" : "", k->same_bits ? ", the same bits" : "");
  return text;
}

static void check_plan(Sizes s, int dtype, int gradient, int same_bits, int whole) {
  const AttentionKey key = {.b = s.b, .t = s.t, .g = s.groups, .r = s.heads / s.groups, .d = s.d, .scale = 0.125,
                            .dtype = dtype, .gradient = gradient, .same_bits = same_bits,
                            .whole = whole};
  AttentionPlan plan;
  char text[160];
  DnnStatus status = attention_plan_make(dnn, &h100, &key, &plan);
  if (status) fail_msg("%s: %s: %s", name_of(&key, text, sizeof text), plan.failed, dnn->cudnnGetErrorString(status));
  if (getenv("SHOW")) // for debugging
    printf("%s: %lld bytes of %lld\n", name_of(&key, text, sizeof text), (long long)plan.workspace,
           (long long)attention_plan_room(&key));
  if (plan.workspace > attention_plan_room(&key))
    fail_msg("%s: %lld bytes of workspace", name_of(&key, text, sizeof text), (long long)plan.workspace);
  attention_plan_free(dnn, &plan);
}

// The shapes of GPT-2 124M and Llama 1B, and odd ones: heads of 96, 128 and 256, lengths that are not a multiple of 64,
// or leave 64 of 128, one query; with documents and without. Each takes seconds to plan.
static void has_plans(void **state) {
  static const Sizes sizes[] = {{32, 12, 12, 1024, 64}, {4, 32, 8, 4096, 64}, {4, 8, 8, 1024, 96},
                                {2, 32, 8, 4096, 128},  {4, 4, 4, 1024, 256}, {1, 2, 2, 333, 64},
                                {2, 4, 4, 704, 64},     {3, 2, 1, 1, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int gradient = 0; gradient < 2; gradient++)
      for (int whole = 0; whole < 2; whole++)
        check_plan(sizes[i], i % 3 == 1 ? DTYPE_F16 : DTYPE_BF16, gradient, 0, whole);
  for (int whole = 0; whole < 2; whole++) {
    check_plan(sizes[0], DTYPE_BF16, 1, 1, whole);
    check_plan(sizes[5], DTYPE_BF16, 1, 1, whole);
  }
}

// The properties are what cuDNN's DNN_PROPERTIES says of a card as text.
static int read_properties(const char *path) {
  char text[2048];
  FILE *file = fopen(path, "r");
  size_t n = file ? fread(text, 1, sizeof text, file) : 0;
  if (file) fclose(file);
  while (n && text[n - 1] == '\n') n--;
  DnnStatus status = dnn->cudnnBackendCreateDescriptor(DNN_PROPERTIES, &h100.properties);
  if (!status)
    status = dnn->cudnnBackendSetAttribute(h100.properties, DNN_PROPERTIES_TEXT, DNN_IS_CHAR, (int64_t)n, text);
  if (!status) status = dnn->cudnnBackendFinalize(h100.properties);
  if (status) printf("%s: %s\n", path, dnn->cudnnGetErrorString(status));
  return !status;
}

int main(void) {
  Error error = {0};
  const char *folder = getenv("FOLDER") ? getenv("FOLDER") : ".", *source = getenv("SOURCE") ? getenv("SOURCE") : "..";
  char *standin = xformat("%s/nodevice/libcuda.so.1", folder),
       *properties = xformat("%s/tests/device/h100.json", source);
  if (!dlopen(standin, RTLD_NOW | RTLD_GLOBAL)) { // cuDNN finds it by its name then
    printf("%s\n", dlerror());
    return 1;
  }
  setenv("PLAIT_CUDA_LIBRARIES", "/usr/local/cuda/lib64:/usr/local/cuda/lib:/usr/local/cuda-13.0/lib", 0);
  dnn = cuda_dnn(&driver, &error);
  if (!dnn) {
    int must = !access("/usr/local/cuda/bin/nvcc", X_OK) && !access("/usr/local/cuda/include/cudnn.h", R_OK);
    printf("%s: %s\n", must ? "nvcc and cudnn.h are here" : "skipped", error.message);
    return must ? 1 : SKIPPED;
  }
  printf("%s, version %zu\n", dnn->path, dnn->version);
  if (!read_properties(properties)) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(has_plans)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  dnn->cudnnBackendDestroyDescriptor(h100.properties);
  free(standin);
  free(properties);
  return failed;
}
