// tier 1
// The emulated driver refuses what a card forgives, or fails at much later: each wrong call ends the program with a
// sentence that names it.
#include "device/cuda/driver.h"
#include "tier.h"
#include "wrong_calls.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <pthread.h>
#include <unistd.h>
// cmocka wants some of the above first
#include <cmocka.h>

// Each case begins with these, in a child.
static const CudaDriver *d;
static CudaContext context;
static CudaStream stream;
static CudaEvent event;
static CudaPointer memory;
static char host[4096];
enum { BYTES = 1100 };

static void begin(void) {
  Error error = {0};
  int bad = cuda_driver(&d, &error);
  bad = bad || d->cuDevicePrimaryCtxRetain(&context, 0) || d->cuCtxSetCurrent(context) ||
        d->cuStreamCreate(&stream, CUDA_STREAM_OF_ITS_OWN) || d->cuEventCreate(&event, CUDA_EVENT_WITHOUT_TIME) ||
        d->cuMemAlloc_v2(&memory, BYTES);
  if (bad) fprintf(stderr, "cannot begin: %s\n", error.message), _exit(3);
}

static void end(void) {
  d->cuMemFree_v2(memory);
  d->cuEventDestroy_v2(event);
  d->cuStreamDestroy_v2(stream);
}

static void all_well(void) {
  char back[BYTES];
  memset(host, 7, BYTES);
  d->cuMemsetD8Async(memory, 1, BYTES, stream);
  d->cuMemcpyHtoDAsync_v2(memory + 10, host, 100, stream);
  d->cuEventRecord(event, stream);
  d->cuMemcpyDtoHAsync_v2(back, memory, BYTES, stream);
  if (d->cuStreamSynchronize(stream) || back[9] != 1 || back[10] != 7 || back[109] != 7 || back[110] != 1) _exit(4);
  end();
}

static void *without_context(void *unused) {
  d->cuStreamSynchronize(stream);
  return NULL;
}
static void in_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, without_context, NULL);
  pthread_join(thread, NULL);
}
static void in_fork(void) {
  if (!fork()) d->cuCtxSetCurrent(context);
  int status = 0;
  wait(&status);
  if (WIFSIGNALED(status)) abort();
}
static void dead_event(void) {
  d->cuEventDestroy_v2(event);
  d->cuEventRecord(event, stream);
}
static void dead_stream(void) {
  d->cuStreamDestroy_v2(stream);
  d->cuStreamSynchronize(stream);
}
static void no_stream(void) { d->cuStreamSynchronize((CudaStream)host); }
static void default_stream(void) { d->cuMemsetD8Async(memory, 0, 1, NULL); }
static void waiting_stream(void) { d->cuStreamCreate(&stream, 0); }
static void too_long(void) { d->cuMemsetD8Async(memory + 1, 0, BYTES, stream); }
static void too_long_copy(void) { d->cuMemcpyDtoHAsync_v2(host, memory + BYTES - 8, 9, stream); }
static void host_for_device(void) { d->cuMemcpyHtoDAsync_v2((CudaPointer)(uintptr_t)host, host + 100, 8, stream); }
static void device_for_host(void) { d->cuMemcpyHtoDAsync_v2(memory, (void *)(uintptr_t)memory, 8, stream); }
static void null_host(void) { d->cuMemcpyHtoDAsync_v2(memory, NULL, 8, stream); }
static void onto_itself(void) { d->cuMemcpyDtoDAsync_v2(memory + 4, memory, 8, stream); }
static void freed_twice(void) { d->cuMemFree_v2(memory), d->cuMemFree_v2(memory); }
static void freed_early(void) {
  for (int i = 0; i < 50; i++) d->cuMemsetD8Async(memory, 0, 8, stream);
  d->cuMemFree_v2(memory);
}
static void destroyed_early(void) {
  for (int i = 0; i < 50; i++) d->cuMemsetD8Async(memory, 0, 8, stream);
  d->cuStreamDestroy_v2(stream);
}
static void never_recorded(void) { d->cuStreamWaitEvent(stream, event, 0); }
static void touches(void) { *(volatile char *)(uintptr_t)memory = 1; }
static void old_name(void) {
  void *library = dlopen(d->path, RTLD_NOW);
  void (*allocate)(void *, unsigned) =
      library ? (void (*)(void *, unsigned))(uintptr_t)dlsym(library, "cuMemAlloc") : NULL;
  if (allocate) allocate(&memory, 8);
}
static void launch(unsigned grid, unsigned block, unsigned shared) {
  d->cuLaunchKernel((CudaFunction)host, grid, 1, 1, block, 1, 1, shared, stream, NULL, NULL);
}
static void empty_grid(void) { launch(0, 32, 0); }
static void large_block(void) { launch(1, 1025, 0); }
static void much_shared(void) { launch(1, 32, 49153); }
static void no_module(void) { launch(1, 32, 0); }
// Kernels of emulator/wrong.cu, each of which breaks a rule, on two operands of COUNT floats.
enum { COUNT = 128 };
typedef struct Two { float *x, *y; } Two; // as in wrong.cu
static void launch_wrong(const char *name, int count, unsigned second, unsigned threads) {
  CudaModule module;
  CudaFunction function;
  CudaOperand operand[] = {{"x", memory, COUNT * sizeof(float), CUDA_READS},
                           {"y", memory + 512, COUNT * sizeof(float), second}};
  Two two = {(float *)(uintptr_t)memory, (float *)(uintptr_t)(memory + 512)};
  void *parameters = &two;
  if (d->cuModuleLoadData(&module, CUDA_EMULATED_IMAGE) || d->cuModuleGetFunction(&function, module, name))
    fprintf(stderr, "no %s", name), _exit(3);
  d->cuMemsetD8Async(memory, 0, BYTES, stream);
  if (count) d->takes_operands(operand, count);
  d->cuLaunchKernel(function, 2, 1, 1, threads, 1, 1, 0, stream, &parameters, NULL);
  d->cuMemcpyDtoHAsync_v2(host, memory + 512, COUNT * sizeof(float), stream);
  CudaResult result = d->cuStreamSynchronize(stream);
  if (result) fprintf(stderr, "%u", result), end(), exit(0);
}
static void right_kernel(void) {
  launch_wrong("right_kernel", 2, CUDA_WRITES, 64);
  for (int i = 0; i < COUNT; i++)
    if (((float *)(void *)host)[i] != (float)i) _exit(4);
  end();
}
static void barrier_in_a_branch(void) { launch_wrong("wrong_barrier", 2, CUDA_WRITES, 64); }
static void shuffle_in_a_branch(void) { launch_wrong("wrong_shuffle", 2, CUDA_WRITES, 64); }
static void half_a_warp(void) { launch_wrong("wrong_warp", 2, CUDA_WRITES, 48); }
// Elements i, k of the left matrix are i 16 + k - 190, and those of the right one continue after row 16.
static void right_product(void) {
  launch_wrong("right_product", 2, CUDA_WRITES, 64);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++) {
      double sum = 0;
      for (int k = 0; k < 16; k++) sum += (double)(i * 16 + k - 190) * ((16 + j) * 16 + k - 190);
      double found = (double)((float *)(void *)host)[i * 8 + j];
      if (found != sum) fprintf(stderr, "row %d, column %d: %g and not %g", i, j, found, sum), _exit(4);
    }
  end();
}
static void product_without_a_lane(void) { launch_wrong("wrong_product", 2, CUDA_WRITES, 64); }
static void fragment_askew(void) { launch_wrong("wrong_fragment", 2, CUDA_WRITES, 64); }
static void right_copy(void) {
  launch_wrong("right_copy", 2, CUDA_WRITES, 64);
  for (int i = 0; i < COUNT; i++)
    if (((float *)(void *)host)[i] != 0) _exit(4); // x is 0, and NaN stood there
  end();
}
static void copy_not_waited_for(void) { launch_wrong("wrong_copy", 2, CUDA_WRITES, 64); }
static void reads_past_the_end(void) {
  launch_wrong("wrong_index", 2, CUDA_WRITES, 64);
  launch_wrong("wrong_index", 2, CUDA_WRITES, 64);
}
static void writes_an_input(void) { launch_wrong("right_kernel", 2, CUDA_READS, 64); }
static void shared_past_the_end(void) { launch_wrong("wrong_shared_index", 2, CUDA_WRITES, 64); }
static void much_static_shared(void) { launch_wrong("wrong_shared_size", 2, CUDA_WRITES, 64); }
static void operand_left_out(void) { launch_wrong("right_kernel", 1, 0, 64); }
static void no_operands(void) { launch_wrong("right_kernel", 0, 0, 64); }
static void shared_is_blank(void) {
  launch_wrong("wrong_shared_reader", 2, CUDA_WRITES, 64);
  float value;
  memcpy(&value, host, sizeof value);
  fprintf(stderr, "%d", value != value);
  end();
}
static void launch_fails(void) { right_kernel(); }
static void other_image(void) {
  CudaModule module;
  fprintf(stderr, "%u", d->cuModuleLoadData(&module, "another image"));
  end();
}

// Pages of the host's memory.
enum { PAGES_BYTES = 8192 };
static char *pages(void) { return mmap(NULL, PAGES_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void registers(void) {
  char *at = pages();
  CudaResult results[4] = {d->cuMemHostRegister_v2(at, 4096, CUDA_REGISTERED_FOR_ALL),
                           d->cuMemHostRegister_v2(at + 4096, 4096, CUDA_REGISTERED_FOR_ALL)};
  for (int i = 0; i < 2; i++) // this copy reads when the stream comes to it
    at[0] = (char)(i + 1), d->cuMemcpyHtoDAsync_v2(memory, at, 8, stream);
  results[2] = d->cuMemcpyDtoHAsync_v2(at + 4096, memory, 8, stream);
  d->cuStreamSynchronize(stream);
  fprintf(stderr, "%u %u %u byte %d", results[0], results[1], results[2], at[4096]);
  d->cuMemHostUnregister(at);
  if (!results[1]) d->cuMemHostUnregister(at + 4096);
  end();
}
static void registered_twice(void) {
  char *at = pages();
  d->cuMemHostRegister_v2(at + 4096, 4096, 0);
  d->cuMemHostRegister_v2(at, PAGES_BYTES, 0);
}
static void registers_no_page(void) { d->cuMemHostRegister_v2(pages() + 64, 4096, 0); }
static void registers_nothing_there(void) {
  char *at = pages();
  munmap(at, PAGES_BYTES);
  d->cuMemHostRegister_v2(at, 4096, 0);
}
static void crosses_registrations(void) {
  char *at = pages();
  d->cuMemHostRegister_v2(at + 4096, 4096, 0);
  d->cuMemcpyHtoDAsync_v2(memory, at + 4090, 100, stream);
}
static void passes_a_registration(void) {
  char *at = pages();
  d->cuMemHostRegister_v2(at, 4096, 0);
  d->cuMemcpyHtoDAsync_v2(memory, at + 4090, 100, stream);
}
static void unregisters_twice(void) {
  char *at = pages();
  d->cuMemHostRegister_v2(at, 4096, 0);
  for (int i = 0; i < 2; i++) d->cuMemHostUnregister(at);
}
static void unregisters_early(void) {
  char *at = pages();
  d->cuMemHostRegister_v2(at, 4096, 0);
  for (int i = 0; i < 50; i++) d->cuMemcpyHtoDAsync_v2(memory, at, 8, stream);
  d->cuMemHostUnregister(at);
}
static void leaves_registered(void) {
  d->cuMemHostRegister_v2(pages(), 4096, 0);
  end();
}
static void too_much_is_registered(void) {
  setenv("PLAIT_EMULATED_LOCKED", "4096", 1);
  registers();
}

static void untimed(void) {
  CudaEvent timed;
  float milliseconds;
  d->cuEventCreate(&timed, CUDA_EVENT_WITH_TIME);
  d->cuEventRecord(timed, stream), d->cuEventRecord(event, stream), d->cuEventSynchronize(event);
  d->cuEventElapsedTime(&milliseconds, timed, event);
}
static void timed_early(void) {
  CudaEvent timed;
  float milliseconds;
  d->cuEventCreate(&timed, CUDA_EVENT_WITH_TIME);
  d->cuEventElapsedTime(&milliseconds, timed, timed);
}
static void leaks_memory(void) { d->cuEventDestroy_v2(event), d->cuStreamDestroy_v2(stream); }
static void leaks_stream(void) { d->cuEventDestroy_v2(event), d->cuMemFree_v2(memory); }
static void leaks_event(void) { d->cuStreamDestroy_v2(stream), d->cuMemFree_v2(memory); }
// Everything fails after the second copy, and then nothing need be given back.
static void second_copy_fails(void) {
  for (int i = 0; i < 2; i++) d->cuMemcpyHtoDAsync_v2(memory, host, 8, stream);
  CudaResult first = d->cuStreamSynchronize(stream), then = d->cuMemsetD8Async(memory, 0, 8, stream);
  fprintf(stderr, "first %u then %u", first, then);
}
static void second_allocation_fails(void) {
  CudaPointer more = 0;
  fprintf(stderr, "second %u", d->cuMemAlloc_v2(&more, 8));
  end();
}

enum { FINE, DIES, FAULTS };
static const struct { void (*body)(void); int how; const char *text, *fails; } cases[] = {
    {all_well, FINE, "", ""},
    {in_thread, DIES, "cuStreamSynchronize: the calling thread has no current context", ""},
    {in_fork, DIES, "cuCtxSetCurrent: called in a child of the process that has called cuInit", ""},
    {dead_event, DIES, "is an event that was destroyed", ""},
    {dead_stream, DIES, "is a stream that was destroyed", ""},
    {no_stream, DIES, "is not a stream", ""},
    {default_stream, DIES, "cuMemsetD8Async: the stream is NULL", ""},
    {waiting_stream, DIES, "cuStreamCreate: flags are 0", ""},
    {too_long, DIES, "cuMemsetD8Async: 1100 bytes from byte 1 on reach beyond an allocation of 1100 bytes", ""},
    {too_long_copy, DIES, "cuMemcpyDtoHAsync_v2: 9 bytes from byte 1092 on reach beyond", ""},
    {host_for_device, DIES, "is not an address in a device's memory", ""},
    {device_for_host, DIES, "is an address of a device's, and stands for one of the host's", ""},
    {null_host, DIES, "cuMemcpyHtoDAsync_v2: the host's address is NULL", ""},
    {onto_itself, DIES, "cuMemcpyDtoDAsync_v2: 8 bytes are copied onto themselves", ""},
    {freed_twice, DIES, "cuMemFree_v2: 0x", ""},
    {freed_early, DIES, "cuMemFree_v2: 1100 bytes are freed while a stream has not done what it does there", ""},
    {destroyed_early, DIES, "cuStreamDestroy_v2: the stream has not done its work", ""},
    {untimed, DIES, "cuEventElapsedTime: an event was created without its time", ""},
    {timed_early, DIES, "cuEventElapsedTime: an event was not recorded", ""},
    {never_recorded, DIES, "cuStreamWaitEvent: the event was never recorded", ""},
    {touches, FAULTS, "", ""},
    {old_name, DIES, "cuMemAlloc: the driver's first, 32-bit interface", ""},
    {empty_grid, DIES, "cuLaunchKernel: a grid of 0 × 1 × 1 blocks of 32 × 1 × 1 threads is empty", ""},
    {large_block, DIES, "cuLaunchKernel: a block of 1025 × 1 × 1 threads is too large", ""},
    {much_shared, DIES, "cuLaunchKernel: 49153 bytes of shared memory are more than the 49152", ""},
    {no_module, DIES, "is not a function: no module has given it", ""},
    {right_kernel, FINE, "", ""},
    {barrier_in_a_branch, DIES, "kernel wrong_barrier: in block", ""},
    {barrier_in_a_branch, DIES,
     "thread 0 waits at the barrier of line 16, and thread 32 waits at the barrier of line 17", ""},
    {shuffle_in_a_branch, DIES, "kernel wrong_shuffle: in block", ""},
    {shuffle_in_a_branch, DIES, "has ended", ""},
    {half_a_warp, DIES, "kernel wrong_warp: a warp of 16 lanes comes to the shuffle of line", ""},
    {right_product, FINE, "", ""},
    {product_without_a_lane, DIES, "kernel wrong_product: in block", ""},
    {product_without_a_lane, DIES, "waits at the product of a warp of line", ""},
    {fragment_askew, DIES, "a row of a fragment lies at", ""},
    {right_copy, FINE, "", ""},
    {copy_not_waited_for, DIES, "kernel wrong_copy: thread", ""},
    {reads_past_the_end, DIES, "past operand x, which has 512", ""},
    {writes_an_input, DIES, "kernel right_kernel has changed its operand y, which it only reads", ""},
    {shared_past_the_end, DIES, "which belongs to none of its operands and shared arrays", ""},
    {much_static_shared, DIES, "kernel wrong_shared_size has more than 49152 bytes of shared memory", ""},
    {operand_left_out, DIES, "kernel right_kernel: byte 8 of its arguments is an address in a device's memory", ""},
    {no_operands, DIES, "kernel right_kernel is launched without a table of its operands", ""},
    {shared_is_blank, FINE, "1", ""},
    {launch_fails, FINE, "719", "launch 1"},
    {other_image, FINE, "200", ""},
    {registers, FINE, "0 0 0 byte 2", ""},
    {too_much_is_registered, FINE, "0 2 0 byte 2", ""},
    {registered_twice, DIES, "cuMemHostRegister_v2: some of 8192 bytes at ", ""},
    {registers_no_page, DIES, "cuMemHostRegister_v2: 0x", ""},
    {registers_nothing_there, DIES, "is not the host's memory", ""},
    {crosses_registrations, DIES, "cuMemcpyHtoDAsync_v2: 100 bytes reach from memory of one kind into another", ""},
    {passes_a_registration, DIES, "cuMemcpyHtoDAsync_v2: 100 bytes reach beyond 4096 bytes of pinned memory", ""},
    {unregisters_twice, DIES, "is not where registered memory begins, or was unregistered before", ""},
    {unregisters_early, DIES, "cuMemHostUnregister: 4096 bytes are unregistered while a stream copies there", ""},
    {leaves_registered, DIES, "exit: 1 not given back, as 4096 bytes of registered memory", ""},
    {leaks_memory, DIES, "exit: 1 not given back, as 1100 bytes of device memory", ""},
    {leaks_stream, DIES, "exit: 1 not given back, as a stream", ""},
    {leaks_event, DIES, "exit: 1 not given back, as an event", ""},
    {second_copy_fails, FINE, "first 700 then 700", "copy 2"},
    {second_allocation_fails, FINE, "second 2", "alloc 2"},
};

static void wrong_calls_are_named(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[2048];
    if (*cases[i].fails) setenv("PLAIT_EMULATED_FAILS", cases[i].fails, 1);
    else unsetenv("PLAIT_EMULATED_FAILS");
    int status = status_of_calls(begin, cases[i].body, text, sizeof text);
    int how = status == 0 ? FINE : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? DIES
              : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? FAULTS : -1;
#ifdef __SANITIZE_ADDRESS__ // ends the program itself, with a report
    if (how == -1 && cases[i].how == FAULTS && strstr(text, "SEGV")) how = FAULTS, *text = 0;
#endif
    if (how != cases[i].how || !strstr(text, cases[i].text) || (!*cases[i].text && *text))
      fail_msg("case %zu (\"%s\"): status %#x, \"%s\"", i, cases[i].text, status, text);
  }
}

int main(void) {
  char *driver = xformat("%s/libemulated_cuda.so", getenv("FOLDER") ? getenv("FOLDER") : ".");
  setenv("PLAIT_CUDA_DRIVER", driver, 1);
  free(driver);
  const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_calls_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
