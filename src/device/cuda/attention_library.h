// Attention by cuDNN, each shape of which was compared with plait's own kernel before it is used.
#pragma once
#include "device/cuda/attention_graph.h"
#include "device/cuda/cuda_device.h"

typedef struct Launch Launch;

// An attention of the library's, or one that it does not make (own).
typedef struct LibraryAttention {
  AttentionKey key;
  int own;
  int clears; // it adds to what dq_sums hold, so they are zero first
  AttentionPlan plan;
} LibraryAttention;

// Ranks that share a device share it. mutex: of the handle, whose stream each call sets, and of the list.
struct CudaAttention {
  const CudaDnn *dnn;
  DnnHandle handle;
  pthread_mutex_t mutex;
  Vec(LibraryAttention) list;
};

// 0: it is for plait's own kernel: another dtype than bf16 and fp16, dropout, queries or keys of a part of a sequence,
// without causality, with documents in any order, heads of another width than a multiple of 8. call: of ATTENTION or
// its gradient.
int attention_key(const KernelCall *call, int gradient, AttentionKey *key);
// Bytes of workspace that such a call may use; 0: it is for plait's own kernel.
int64_t attention_workspace(const Operand *input, const Operand *output, const AttentionAttr *attr, int gradient);

// An instance's library is loaded, if it was not; 0: there is none, or it does not start, which a note has said.
int attention_ready(CudaInstance *instance);
// Compares the library's attention with plait's, as products_try does (products.h).
void attention_try(CudaQueue *queue, const KernelCall *call, int gradient, char *memory, int64_t bytes);
// Puts the library's attention into the queue; 0: it is for plait's own kernel.
int attention_launch(Launch *l, int gradient);

// Puts a call into the queue by the library.
DnnStatus attention_attend(const CudaAttention *p, const LibraryAttention *x, Launch *l);
// attention_trial.c: compares it with plait's own kernel. 0, and *why: it cannot, or they differ.
int attention_is_right(const CudaAttention *p, const LibraryAttention *x, CudaQueue *queue, const KernelCall *call,
                       char *memory, int64_t bytes, char *why, size_t size);
