// Libraries whose matrix products bench_gemm measures beside plait's, where they are installed: they are loaded at run
// time, from the folder BENCH_LIBRARIES or where the loader finds them. None is linked.
#pragma once
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

// C (m × n) = A (m × k) · B (k × n) [+ C], all row major; either factor may be given transposed.
typedef struct PeerProduct {
  int m, n, k, a_transposed, b_transposed, add;
  const void *a, *b;
  float *c;
} PeerProduct;

typedef void CblasSgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                        int);
typedef void CblasBf16(int, int, int, int, int, int, float, const uint16_t *, int, const uint16_t *, int, float,
                       float *, int);
typedef int DnnlSgemm(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t,
                      float, float *, int64_t);

typedef struct Peer {
  const char *name, *files[4], *threads_symbol;
  int is_dnnl;
  CblasSgemm *fp32;
  CblasBf16 *bf16;
  DnnlSgemm *dnnl;
  void (*set_threads)(int);
} Peer;

// oneDNN has no public product of bf16 matrices beside its primitives, and no call for its number of threads.
static Peer peers[] = {
    {.name = "MKL",
     .files = {"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"},
     .threads_symbol = "MKL_Set_Num_Threads"},
    {.name = "oneDNN", .files = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"}, .is_dnnl = 1},
    {.name = "OpenBLAS", .files = {"libopenblas.so.0", "libopenblas.so"}, .threads_symbol = "openblas_set_num_threads"},
};
enum { PEERS = sizeof peers / sizeof *peers };

static void peer_load(Peer *p) {
  const char *folder = getenv("BENCH_LIBRARIES");
  void *library = NULL;
  for (int i = 0; i < 4 && p->files[i] && !library; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", p->files[i]);
    if (folder) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen(p->files[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) return;
  if (p->is_dnnl) p->dnnl = (DnnlSgemm *)dlsym(library, "dnnl_sgemm");
  else p->fp32 = (CblasSgemm *)dlsym(library, "cblas_sgemm");
  p->bf16 = (CblasBf16 *)dlsym(library, "cblas_gemm_bf16bf16f32");
  if (p->threads_symbol) p->set_threads = (void (*)(int))dlsym(library, p->threads_symbol);
}

// Threads of libraries spin for a while after each call (Intel's OpenMP for 200 ms), and keep the cores from others.
// They are told to do so for about 1 ms at most.
static void peers_load(void) {
  setenv("KMP_BLOCKTIME", "1", 1);           // ms; MKL with Intel's OpenMP
  setenv("OPENBLAS_THREAD_TIMEOUT", "20", 1); // 2^20 cycles
  setenv("OMP_WAIT_POLICY", "passive", 1);    // GNU's OpenMP, as of oneDNN
  for (int i = 0; i < PEERS; i++) peer_load(&peers[i]);
}
// Until they have stopped.
static void peers_sleep(void) { nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); }

static int peer_can(const Peer *p, int is_bf16) { return is_bf16 ? p->bf16 != NULL : p->fp32 || p->dnnl; }

static void peer_multiply(const Peer *p, int is_bf16, const PeerProduct *q) {
  int a_row = q->a_transposed ? q->m : q->k, b_row = q->b_transposed ? q->k : q->n;
  int a = q->a_transposed ? TRANSPOSED : PLAIN, b = q->b_transposed ? TRANSPOSED : PLAIN;
  float add = q->add ? 1 : 0;
  if (is_bf16) p->bf16(ROW_MAJOR, a, b, q->m, q->n, q->k, 1, q->a, a_row, q->b, b_row, add, q->c, q->n);
  else if (p->dnnl)
    p->dnnl(q->a_transposed ? 'T' : 'N', q->b_transposed ? 'T' : 'N', q->m, q->n, q->k, 1, q->a, a_row, q->b, b_row,
            add, q->c, q->n);
  else p->fp32(ROW_MAJOR, a, b, q->m, q->n, q->k, 1, q->a, a_row, q->b, b_row, add, q->c, q->n);
}
