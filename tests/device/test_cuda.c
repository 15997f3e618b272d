// tier 1 2; rooms comm runtime; numbers
// A CUDA device, by the emulated driver (emulator/): what it trains has the CPU's bits, and what the driver refuses is
// one sentence.
#include "proof.h"
#include "base/fault.h"
#include "device/cuda/driver.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants some of the above first
#include <cmocka.h>

// The graph that the CPU gets: it may join other neighbours than a GPU.
static const Device *with_graph_of_cpu(void) {
  static Device device;
  device = *device_cuda();
  device.fuses = device_cpu()->fuses;
  return &device;
}

// With all ops on the host.
static void trains_as_the_cpu_does(void **state) {
  setenv("PLAIT_CUDA_HOST", "all", 1);
  proof_of(&(Proof){.device = with_graph_of_cpu(), .apart = 1});
  unsetenv("PLAIT_CUDA_HOST");
}

enum { DIED = 99 };

// A process of its own, with variables "NAME=value", for what ends it or the driver. Its sentence; its code, or DIED:
// by a signal.
static int in_child(int (*body)(Error *error), const char *variables, char *text, size_t size) {
  int ends[2], status;
  assert_false(pipe(ends));
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    char words[256], *rest = words, *word;
    Error error = {0};
    snprintf(words, sizeof words, "%s", variables);
    while ((word = strsep(&rest, " ")))
      if (strchr(word, '=')) *strchr(word, '=') = 0, setenv(word, word + strlen(word) + 1, 1);
    dup2(ends[1], 2);
    alarm((unsigned)test_seconds(20));
    int code = body(&error);
    if (code) fprintf(stderr, "%s", error.message);
    fflush(NULL);
    if (getenv("LEAKS")) exit(code);
    _exit(code);
  }
  close(ends[1]);
  size_t n = 0;
  for (ssize_t got; n + 1 < size && (got = read(ends[0], text + n, size - 1 - n)) > 0;) n += (size_t)got;
  text[n] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? (int8_t)WEXITSTATUS(status) : DIED;
}

// Sentences of the device ---------------------------------------------------------------------------------------------

static int opens(Error *error) {
  const Device *instance;
  return device_instance(device_cuda(), 0, &instance, error);
}

static void what_is_missing_is_one_sentence(void **state) {
  static const struct { const char *variables, *text;
  } cases[] = {
      {"PLAIT_CUDA_DRIVER=/nowhere.so", "there is no CUDA driver here (/nowhere.so: cannot open"},
      {"PLAIT_CUDA_DRIVER=libm.so.6", "the CUDA driver libm.so.6 has no cuInit: it is not a whole driver"},
      {"PLAIT_EMULATED_VERSION=11080",
       "is one for CUDA 11.8, and plait needs one for CUDA 12.0: install NVIDIA's driver 525"},
      {"PLAIT_EMULATED_DEVICES=0", "the CUDA driver has no device: this machine has no NVIDIA GPU"},
      {"PLAIT_EMULATED_CAPABILITY=7.5",
       "CUDA device 0 (emulated device) has compute capability 7.5, and plait needs 8.0 (A100) or more"},
      {"PLAIT_CUDA_HOST=matmul,rms_morn", "PLAIT_CUDA_HOST names \"rms_morn\", which is neither an op nor all"}};
  char text[1024];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(in_child(opens, cases[i].variables, text, sizeof text),
                     i < 5 ? PLAIT_INFEASIBLE : PLAIT_BAD_INPUT);
    if (!strstr(text, cases[i].text)) fail_msg("%s: %s", cases[i].variables, text);
  }
  assert_int_equal(in_child(opens, "PLAIT_CUDA_HOST=matmul,rms_norm", text, sizeof text), 0);
  assert_string_equal(text, "");
}

static int asks_too_much(Error *error) {
  const Device *instance;
  char *memory;
  int code = device_instance(device_cuda(), 0, &instance, error);
  if (!code) code = device_allocate(instance, 0, 3 << 20, &memory, error);
  return code;
}

static int fails_later(Error *error) {
  const Device *instance;
  DeviceQueue *queue;
  char *memory, host[64];
  int code = device_instance(device_cuda(), 0, &instance, error);
  if (!code) code = device_allocate(instance, 0, 2 << 20, &memory, error);
  if (!code) code = device_queue_create(instance, NULL, &queue, error);
  if (code) return code;
  for (int i = 0; i < 3; i++) device_copy(queue, DEVICE_TO_HOST, 0, host, memory, 64);
  code = device_drain(queue, error);
  Error again = {0};
  if (device_drain(queue, &again) != code || strcmp(again.message, error->message)) return 0;
  device_queue_destroy(queue);
  device_release(instance, 0, memory, 2 << 20);
  return code;
}

static void what_fails_is_one_sentence(void **state) {
  char text[1024];
  assert_int_equal(in_child(asks_too_much, "PLAIT_EMULATED_MEMORY=2097152", text, sizeof text), PLAIT_NO_MEMORY);
  assert_string_equal(text,
                      "CUDA device 0 (emulated device) cannot give the 3.15 MB of its memory plan: 2.10 MB of 2.10 MB "
                      "are free");
  assert_int_equal(in_child(fails_later, "PLAIT_EMULATED_FAILS=copy_2", text, sizeof text), PLAIT_OK);
  setenv("PLAIT_EMULATED_FAILS", "copy 2", 1);
  assert_int_equal(in_child(fails_later, "", text, sizeof text), PLAIT_FAILED);
  unsetenv("PLAIT_EMULATED_FAILS");
  if (!strstr(text, "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)") ||
      !strstr(text, "CUDA device 0 (emulated device): cu"))
    fail_msg("%s", text);
}

// Two queues: the second reads what the first has written, however late that is.
static int follows(Error *error) {
  const Device *instance;
  DeviceQueue *queue[2];
  char *memory, here[256], there[256] = "";
  int code = device_instance(device_cuda(), 0, &instance, error);
  if (!code) code = device_allocate(instance, 0, 2 << 20, &memory, error);
  for (int i = 0; i < 2 && !code; i++) code = device_queue_create(instance, NULL, &queue[i], error);
  if (code) return code;
  for (int i = 0; i < 200; i++) {
    memset(here, i + 1, sizeof here);
    device_copy(queue[0], DEVICE_FROM_HOST, 0, memory, here, sizeof here);
    device_follow(queue[1], device_record(queue[0]));
    device_copy(queue[1], DEVICE_TO_HOST, 0, there, memory, sizeof there);
    if (device_drain(queue[1], error)) return error->code;
    if (memcmp(here, there, sizeof here)) return error_set(error, PLAIT_FAILED, "round %d: not what was written", i);
  }
  for (int i = 0; i < 2; i++) device_queue_destroy(queue[i]);
  device_release(instance, 0, memory, 2 << 20);
  return PLAIT_OK;
}

// New memory is zero, though a driver gives what others have left.
static int clears(Error *error) {
  const Device *instance;
  DeviceQueue *queue;
  char *memory, there[4096];
  int code = device_instance(device_cuda(), 0, &instance, error);
  if (!code) code = device_allocate(instance, 0, 2 << 20, &memory, error);
  if (!code) code = device_queue_create(instance, NULL, &queue, error);
  if (code) return code;
  device_copy(queue, DEVICE_TO_HOST, 0, there, memory + (2 << 20) - sizeof there, sizeof there);
  code = device_drain(queue, error);
  for (size_t i = 0; i < sizeof there && !code; i++)
    if (there[i]) code = error_set(error, PLAIT_FAILED, "byte %zu is not 0", i);
  device_queue_destroy(queue);
  device_release(instance, 0, memory, 2 << 20);
  return code;
}

static void queues_follow_and_memory_is_zero(void **state) {
  char text[1024];
  for (int seed = 1; seed < 4; seed++) {
    char variables[64];
    snprintf(variables, sizeof variables, "LEAKS=1 PLAIT_EMULATED_SEED=%d", seed);
    if (in_child(follows, variables, text, sizeof text) || *text) fail_msg("%s", text);
  }
  if (in_child(clears, "LEAKS=1", text, sizeof text) || *text) fail_msg("%s", text);
}

// There and back, of memory in which two regions are pinned and the rest is not; what is large goes through pieces
// where that is refused.
static int copies_all(Error *error) {
  enum { PAGES = 4096, BYTES = 150 << 20 };
  const Device *instance;
  DeviceQueue *queue;
  char *memory, *here = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *pages = here;
  uint32_t *word = (uint32_t *)(void *)here;
  int code = device_instance(device_cuda(), 0, &instance, error);
  if (!code) code = device_allocate(instance, 0, BYTES, &memory, error);
  if (!code) code = device_queue_create(instance, NULL, &queue, error);
  if (code) return code;
  const DeviceImplementation *d = instance->implementation;
  const int pinned = d->pin(instance, pages + PAGES, PAGES) + d->pin(instance, pages + 2 * PAGES, 3 * PAGES);
  for (size_t i = 0; i < BYTES / 4; i++) word[i] = (uint32_t)(i * 2654435761u);
  device_copy(queue, DEVICE_FROM_HOST, 0, memory, here, BYTES);
  code = device_drain(queue, error);
  memset(here, 0, BYTES);
  device_copy(queue, DEVICE_TO_HOST, 0, here, memory, BYTES);
  if (!code) code = device_drain(queue, error);
  for (size_t i = 0; i < BYTES / 4 && !code; i++)
    if (word[i] != (uint32_t)(i * 2654435761u)) code = error_set(error, PLAIT_FAILED, "word %zu is another one", i);
  if (pinned > 0) d->unpin(instance, pages + PAGES);
  if (pinned > 1) d->unpin(instance, pages + 2 * PAGES);
  device_queue_destroy(queue);
  device_release(instance, 0, memory, BYTES);
  return code;
}

static void copies_cross_pinned_memory(void **state) {
  char text[1024];
  if (in_child(copies_all, "LEAKS=1", text, sizeof text) || *text) fail_msg("%s", text);
  static const char *const refusals[] = {"LEAKS=1 PLAIT_EMULATED_LOCKED=0", "LEAKS=1 PLAIT_EMULATED_LOCKED=4096"};
  for (int i = 0; i < 2; i++)
    if (in_child(copies_all, refusals[i], text, sizeof text) || strncmp(text, "note: CUDA device 0: the host's", 31) ||
        strchr(text, '\n')[1])
      fail_msg("%s: %s", refusals[i], text);
}

int main(void) {
  char *driver = xformat("%s/libemulated_cuda.so", getenv("FOLDER") ? getenv("FOLDER") : ".");
  setenv("PLAIT_CUDA_DRIVER", driver, 1);
  free(driver);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_missing_is_one_sentence), cmocka_unit_test(what_fails_is_one_sentence),
      cmocka_unit_test(queues_follow_and_memory_is_zero),
      cmocka_unit_test(copies_cross_pinned_memory), cmocka_unit_test(trains_as_the_cpu_does)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
