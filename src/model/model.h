// Builds the forward graph of a model, as if for one device: dims and roles are named, nothing says where they go.
//
// Parameters (Variables; N = 0 … layers-1). Names are stable: checkpoints, initialisation and messages use them.
// Which of them a model has depends on its family:
//   wte (vocab, embed)                               token embedding; the head too where tied
//   wpe (position, embed)                            learned positions
//   layer.N.attention.norm.weight .bias (embed)
//   layer.N.attention.q.weight (kv_heads, group, head_dim, embed)    .bias (kv_heads, group, head_dim)
//   layer.N.attention.k.weight (kv_heads, head_dim, embed)           .bias (kv_heads, head_dim);  v the same
//   layer.N.attention.q.norm.weight (head_dim)       the norm of each head of q;  k the same
//   layer.N.attention.output.weight (embed, kv_heads, group, head_dim)   .bias (embed)
//   layer.N.ffn.norm.weight .bias (embed)
//   layer.N.ffn.gate.weight (ffn, embed)             .bias (ffn)
//   layer.N.ffn.up.weight (ffn, embed)               .bias (ffn)
//   layer.N.ffn.down.weight (embed, ffn)             .bias (embed)
//   layer.N.router.weight (experts, embed)           of a layer with experts: it has ffn.norm, and these for the rest
//   layer.N.experts.gate.weight .up.weight (expert, expert_ffn, embed)   .down.weight (expert, embed, expert_ffn)
//   layer.N.shared.gate.weight .up.weight (ffn, embed)  .down.weight (embed, ffn)  .switch.weight (1, embed)
//   norm.weight .bias (embed)
//   head (vocab, embed)                              where not tied
// Query head h of Hugging Face is (h / group, h mod group). Multi-head attention has group 1.
#pragma once
#include "ir/graph.h"
#include "model/config.h"

typedef enum ModelMode {
  MODEL_TRAIN,    // loss with its gradient; dropout
  MODEL_EVALUATE, // loss only
  MODEL_GENERATE, // logits at one position of each sequence
} ModelMode;

typedef struct ModelOptions {
  int64_t batch;             // global shape of the graph: samples of one microbatch
  int64_t length[DIM_COUNT]; // of each sequence of a sample, by its dim
  int64_t page; // of MODEL_GENERATE: positions in a page of the cache; length has DIM_CACHE, DIM_REQUEST and
                // DIM_PAGE then
  int mode;                  // ModelMode
  int one_document;   // a sample is a part of one document, whatever its text: the input `documents` has one number
  double capacity;    // of experts, while training: times the even share of a sequence's choices; 0: no limit
  int router_bias;    // routers choose by probabilities and a bias that is not a parameter
  int chunks; // positions go through layers of experts in this many parts, which divide the length; 0, 1: at once
} ModelOptions;

typedef struct ModelOutputs {
  int loss_sum; // tensor () : sum over targets >= 0 of the cross entropy; -1 in MODEL_GENERATE
  int logits;   // tensor (b, l, vocab), in MODEL_GENERATE, which is also stored in the Variable KNOWN_LOGITS; else -1
} ModelOutputs;

// Appends the model's forward nodes to g (region MICRO, phase FORWARD) and creates its Variables, all fp32; Variables
// that g has already are used again, so several graphs may share names. Sets g->layers.
// Graph inputs: those of ir/inputs.def that the family reads; targets not in MODEL_GENERATE, index only there.
// MODEL_TRAIN reads the seed of the gradient from the Variable KNOWN_GRADIENT_SEED.
// Layers of nodes: -1 embedding, 0 … L-1 blocks, L final norm and head.
// PLAIT_BAD_INPUT where the options do not fit the config: sequences longer than the model's positions, or than a
// window of its attention.
int model_build(Graph *g, const ModelConfig *config, const ModelOptions *options, ModelOutputs *outputs, Error *error);
// The forward graph for sequences of `seq` tokens, one at a time, without a limit to the length: to ask the model about
// its parameters and their shapes. The caller destroys it.
Graph *model_graph(const ModelConfig *config, int64_t seq);
