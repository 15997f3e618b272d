// Layers of experts (Shazeer et al., 2017): a router sends each token to a few gated feed-forward networks, whose
// results are added, weighted. Keys that families write alike, and the layer's graph.
#pragma once
#include "model/family.h"

// The number of experts, under either of its names, of choices and of `router_aux_loss_coef`; the layers are for the
// family to say. Keys that change numbers as plait cannot are refused.
void experts_read(ConfigReader *r, ModelConfig *c, int64_t choices_absent);
// The widths, norm_topk_prob, decoder_sparse_step and mlp_only_layers of the Qwen families.
void experts_read_qwen(ConfigReader *r, ModelConfig *c, int64_t choices_absent);
// All layers have experts, of width c->ffn.
void experts_in_all_layers(ModelConfig *c);

// x (b, s, e), already normalised, through the layer's experts, and added to `stream` (b, s, e) → the new stream.
int build_experts(ModelBuild *m, int layer, int x, int stream);

// The views of the Qwen families.
#define EXPERTS_QWEN_NAMES                                                                                             \
  "model.layers.N.mlp.gate.weight = layer.N.router.weight\n"                                                           \
  "model.layers.N.mlp.experts.E.gate_proj.weight = layer.N.experts.gate.weight\n"                                      \
  "model.layers.N.mlp.experts.E.up_proj.weight = layer.N.experts.up.weight\n"                                          \
  "model.layers.N.mlp.experts.E.down_proj.weight = layer.N.experts.down.weight\n"                                      \
  "model.layers.N.mlp.shared_expert.gate_proj.weight = layer.N.shared.gate.weight\n"                                   \
  "model.layers.N.mlp.shared_expert.up_proj.weight = layer.N.shared.up.weight\n"                                       \
  "model.layers.N.mlp.shared_expert.down_proj.weight = layer.N.shared.down.weight\n"                                   \
  "model.layers.N.mlp.shared_expert_gate.weight = layer.N.shared.switch.weight\n"
