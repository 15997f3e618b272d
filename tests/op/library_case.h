// Tests of a library's kernels, which is the emulator's double of it unless DRIVER_AS_EVER=1 takes those of a card:
// cases of ops through it, its calls, and runs of the same program with other variables. cmocka.h comes before it.
#pragma once
#include "check/kernel_bench.h"
#include "same_case.h"
#include "tier.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *library;             // its file
static const char *library_count; // its variable that counts calls
static const char *library_other; // another, of some of these; NULL: none
static long long library_others;  // of the last call
static int on_card;               // a card's driver and library, which count no calls

// For main: words are the program's.
static inline void library_open(char **words, const char *file, const char *count) {
  const char *folder = getenv("FOLDER") ? getenv("FOLDER") : ".";
  char *driver = xformat("%s/libemulated_cuda.so", folder), *libraries = xformat("/nowhere::%s/emulated", folder);
  library = xformat("%s/emulated/%s", folder, file);
  library_count = count;
  on_card = getenv("DRIVER_AS_EVER") != NULL;
  if (!on_card) setenv("PLAIT_CUDA_DRIVER", driver, 1);
  if (!on_card) setenv("PLAIT_CUDA_LIBRARIES", libraries, 0);
  setenv("SELF", words[0], 1);
  free(driver);
  free(libraries);
}

// A variable of the library's that counts calls; 0: it is not loaded.
static inline long long library_counted(const char *name) {
  void *there = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  const long long *count = there ? dlsym(there, name) : NULL;
  long long n = count ? *count : 0;
  if (there) dlclose(there);
  return n;
}
static inline long long library_calls(void) { return library_counted(library_count); }

static inline void library_bench(KernelBench *b) {
  Error error = {0};
  if (kernel_bench_open(b, device_cuda(), 0, &error)) fail_msg("%s", error.message);
}

// Calls of the library's in it. (A case that is new has a trial first.)
static inline long long library_run(KernelBench *b, const DeviceKernel *kernel, OpCase *c, const char *where) {
  Error error = {0};
  const long long before = library_calls(), others = library_other ? library_counted(library_other) : 0;
  if (kernel_bench_run(b, kernel, c, 1, &error)) fail_msg("%s: %s", where, error.message);
  library_others = library_other ? library_counted(library_other) - others : 0;
  return library_calls() - before;
}

// Compares a variant with the reference kernel. makes: 1: the library must make it; 0: it must not; -1: it may. also:
// looks at library_others; NULL: nobody does.
static inline void library_check(KernelBench *b, const OpCase *whole, Dtype dtype, Variant variant,
                                 int (*makes)(const OpCase *), void (*also)(const OpCase *, const char *),
                                 int used[OP_COUNT]) {
  OpCase slow, fast;
  DeviceKernel kernel;
  char where[160];
  if (!op_case_variant(whole, variant, &slow)) return;
  snprintf(where, sizeof where, "%s %s%s", slow.name, dtype_name(dtype), op_variant_name[variant]);
  if (kernel_bench_has(b, &slow, &kernel)) {
    op_case_copy(&slow, &fast);
    op_case_run(&slow);
    const int by_library = library_run(b, &kernel, &fast, where) > 0, must = on_card ? -1 : makes(&slow);
    op_case_compare(&fast, &slow, where);
    used[slow.op] += by_library;
    if (must >= 0 && by_library != must)
      fail_msg("%s: %s", where, by_library ? "the library makes what it lacks" : "the library does not make it");
    if (also && !on_card) also(&slow, where);
    op_case_free(&fast);
  }
  op_case_free(&slow);
}

// Runs the case of this name twice, compares it with the reference kernel, and returns the calls of the library's in
// the second run, after its trials.
static inline long long library_run_one(const char *name, Dtype dtype) {
  KernelBench b = {0};
  OpCase whole, fast;
  DeviceKernel kernel;
  long long calls = 0;
  int row = 0;
  while (row < op_cases_with_large() && strcmp(op_case_name(row), name)) row++;
  if (row == op_cases_with_large()) fail_msg("no row of the op table is called \"%s\"", name);
  op_case_get(row, dtype, &whole);
  op_case_copy(&whole, &fast);
  op_case_run(&whole);
  library_bench(&b);
  if (getenv("WITHOUT_ROOM")) b.room = 1000;
  assert_true(kernel_bench_has(&b, &fast, &kernel));
  for (int again = 0; again < 2; again++) {
    calls = library_run(&b, &kernel, &fast, name);
    op_case_compare(&fast, &whole, name);
  }
  kernel_bench_close(&b);
  op_case_free(&fast);
  op_case_free(&whole);
  return calls;
}

// All that is written to stderr while `run` runs, in a new string.
static inline char *library_errors_of(void (*run)(void *), void *with) {
  FILE *kept = tmpfile();
  int before = dup(2);
  assert_non_null(kept);
  fflush(stderr);
  dup2(fileno(kept), 2);
  run(with);
  fflush(stderr);
  dup2(before, 2);
  close(before);
  long n = ftell(kept);
  char *text = xcalloc((size_t)n + 1, 1);
  rewind(kept);
  assert_int_equal(fread(text, 1, (size_t)n, kept), n);
  fclose(kept);
  return text;
}

// A note would say that something of the library's was found wrong.
static inline void library_says_nothing(void (*run)(void *), void *with) {
  char *errors = library_errors_of(run, with);
  if (on_card) fputs(errors, stdout); // a card's library may refuse some, and numbers are right all the same
  else assert_string_equal(errors, "");
  free(errors);
}

// Of the program with TEST_ONLY=one, which prints its calls: a process of its own, as a library is loaded once.
static inline void library_prints(const char *variables, const char *expected, int notes_expected, long long count) {
  char *command = xformat("%s TEST_ONLY=one '%s' 2>&1", variables, getenv("SELF")), line[512];
  FILE *output = popen(command, "r");
  int notes = 0, found = !*expected;
  long long called = -1;
  assert_non_null(output);
  while (fgets(line, sizeof line, output)) {
    notes += strstr(line, "note:") != NULL;
    found |= *expected && strstr(line, expected) != NULL;
    const char *number = strstr(line, "its calls: "); // of cmocka's own words before it the end may come later
    if (number) called = atoll(number + strlen("its calls: "));
    if (getenv("SHOW")) fputs(line, stdout); // for debugging
  }
  if (pclose(output) || !found || notes != notes_expected || called != count)
    fail_msg("%s: %d notes, %lld calls of the library's", variables, notes, called);
  free(command);
}

static inline int library_test_is_one(void) {
  const char *only = getenv("TEST_ONLY");
  return only && !strcmp(only, "one");
}
