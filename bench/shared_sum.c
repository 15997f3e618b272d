// The roofline of all_reduce between two local ranks: two threads, each of which adds half of two buffers in memory
// that both reach and writes the sum into both. Nothing else but a barrier of atomics before and after. Not a test.
//
//   gcc -O3 -march=native bench/shared_sum.c -o shared_sum -pthread && ./shared_sum
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SAMPLES = 40, HUGE_PAGE = 2 << 20 };

typedef struct Bench {
  float *a, *b;
  size_t n; // floats of a buffer
  atomic_int arrived;
  double samples[SAMPLES];
} Bench;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(Bench *bench, int *round) {
  *round += 2;
  atomic_fetch_add(&bench->arrived, 1);
  while (atomic_load_explicit(&bench->arrived, memory_order_acquire) < *round) {}
}

static void sum(float *a, float *b, size_t n) {
  for (size_t i = 0; i < n; i += 64) {
    for (size_t k = 0; k < 64; k += 16) __builtin_prefetch(a + i + k + 512, 1), __builtin_prefetch(b + i + k + 512, 1);
#pragma GCC ivdep
    for (size_t k = i; k < i + 64; k++) a[k] = b[k] = a[k] + b[k];
  }
}

static void half(Bench *bench, int second) {
  int round = 0;
  for (int s = 0; s < SAMPLES; s++) {
    size_t n = bench->n / 2, from = second ? n : 0;
    meet(bench, &round);
    double start = now();
    sum(bench->a + from, bench->b + from, n);
    meet(bench, &round);
    if (!second) bench->samples[s] = now() - start;
  }
}
static void *second_half(void *bench) { return half(bench, 1), NULL; }

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static float *take(size_t bytes) {
  float *memory = aligned_alloc(HUGE_PAGE, bytes < HUGE_PAGE ? HUGE_PAGE : bytes);
  if (!memory) exit((perror("memory"), 1));
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memset(memory, 0, bytes);
}

int main(void) {
  for (size_t bytes = 1 << 20; bytes <= 256 << 20; bytes *= 4) {
    Bench bench = {.a = take(bytes), .b = take(bytes), .n = bytes / sizeof(float)};
    pthread_t thread;
    if (pthread_create(&thread, NULL, second_half, &bench)) exit((perror("thread"), 1));
    half(&bench, 0);
    pthread_join(thread, NULL);
    qsort(bench.samples, SAMPLES, sizeof *bench.samples, compare);
    printf("%4zu MiB  %10.2f us  %7.3f GB/s\n", bytes >> 20, bench.samples[SAMPLES / 2] * 1e6,
           (double)bytes / bench.samples[SAMPLES / 2] * 1e-9);
    free(bench.a);
    free(bench.b);
  }
}
