// Layers of experts (Shazeer et al., 2017): a router sends each token to a few gated feed-forward networks, whose
// results are added, weighted. Keys that families write alike, and the layer's graph.
#pragma once
#include "model/family.h"

// transformers 5 writes num_local_experts where 4 wrote num_experts, and reads both.
#define EXPERTS_ALIAS {"num_experts", "num_local_experts"}

// The number of experts, of choices and of `router_aux_loss_coef`; the layers are for the
// family to say. Keys that change numbers as plait cannot are refused.
void experts_read(ConfigReader *r, ModelConfig *c, int64_t choices_absent);
// The widths, norm_topk_prob, decoder_sparse_step and mlp_only_layers of the Qwen families.
void experts_read_qwen(ConfigReader *r, ModelConfig *c, int64_t choices_absent);
// All layers have experts, of width c->ffn.
void experts_in_all_layers(ModelConfig *c);

// x (b, s, e), already normalised, through the layer's experts, and added to `stream` (b, s, e) → the new stream.
int build_experts(ModelBuild *m, int layer, int x, int stream);

// The views of the shared expert, of the Qwen families, whose other experts have separate tensors; and of the layout in
// which transformers 5 computes, where all experts are in two tensors: gate has the first half of gate_up_proj's rows.
#define EXPERTS_SHARED_NAMES                                                                                           \
  "model.layers.N.mlp.shared_expert.gate_proj.weight = layer.N.shared.gate.weight\n"                                   \
  "model.layers.N.mlp.shared_expert.up_proj.weight = layer.N.shared.up.weight\n"                                       \
  "model.layers.N.mlp.shared_expert.down_proj.weight = layer.N.shared.down.weight\n"                                   \
  "model.layers.N.mlp.shared_expert_gate.weight = layer.N.shared.switch.weight\n"
#define EXPERTS_QWEN_NAMES                                                                                             \
  "model.layers.N.mlp.gate.weight = layer.N.router.weight\n"                                                           \
  "model.layers.N.mlp.experts.E.gate_proj.weight = layer.N.experts.gate.weight\n"                                      \
  "model.layers.N.mlp.experts.E.up_proj.weight = layer.N.experts.up.weight\n"                                          \
  "model.layers.N.mlp.experts.E.down_proj.weight = layer.N.experts.down.weight\n" EXPERTS_SHARED_NAMES
#define EXPERTS_FUSED_NAMES                                                                                            \
  "model.layers.N.mlp.gate.weight = layer.N.router.weight\n"                                                           \
  "model.layers.N.mlp.experts.gate_up_proj = layer.N.experts.gate.weight |1 layer.N.experts.up.weight\n"               \
  "model.layers.N.mlp.experts.down_proj = layer.N.experts.down.weight\n" EXPERTS_SHARED_NAMES
