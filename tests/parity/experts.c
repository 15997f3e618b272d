// A model with experts: router, dispatch, gated experts, combine.
#include "experts.h"
#include "model/rotary.h"

enum { EXPERTS = 6, CHOICES = 2 };

static int apart(const ModelBuild *m) { return m->config->family == &parity_experts_apart; }

static int grouped(ModelBuild *m, const char *name, int rows, Extent to, Extent from) {
  const Extent dims[] = {{apart(m) ? DIM_FFN : DIM_EXPERT, EXPERTS}, to, from};
  return op_grouped(m->g, name, rows, build_matrix(m, arena_format(&m->g->arena, "%s.weight", name), 0.2, 3, dims));
}

static int block(ModelBuild *m, int layer, int stream) { // (b, s, e) → (b, s, e)
  const ModelConfig *c = m->config;
  Extent embed = {DIM_EMBED, c->embed}, ffn = {apart(m) ? DIM_NONE : DIM_EXPERT_FFN, c->ffn},
         experts = {DIM_NONE, EXPERTS};
  RouteAttr route = {.k = CHOICES, .normalize = layer % 2};
  int weights, mask;
  build_scope(m, layer, "layer.%d.attention", layer);
  int x = build_attention(m, build_rms_norm(m, "norm", stream));
  stream = build_linear_residual(m, "output", x, stream, 0.2, 3, 0);
  build_scope(m, layer, "layer.%d.experts", layer);
  x = build_rms_norm(m, "norm", stream);
  int logits = build_linear(m, "router", x, m->config->family == &parity_experts_alike ? 0 : 0.5, 1, &experts, 1,
                            0); // (b, s, x)
  op_route(m->g, "route", logits, -1, &route, &weights, &mask);
  int rows = op_dispatch(m->g, "dispatch", x, mask, CHOICES); // (b, s, x, e)
  int gated = op_gated(m->g, "gated", grouped(m, "gate", rows, ffn, embed), grouped(m, "up", rows, ffn, embed),
                       c->activation); // (b, s, x, f)
  int y = build_residual(m, op_combine(m->g, "combine", grouped(m, "down", gated, embed, ffn), weights));
  return build_residual(m, op_add(m->g, "add", (int[]){stream, y}, 2));
}

static void build(ModelBuild *m, ModelOutputs *outputs) {
  int wte, stream = build_embedding(m, &wte);
  for (int layer = 0; layer < m->config->layers; layer++) stream = block(m, layer, stream);
  build_scope(m, (int)m->config->layers, "%s", "");
  build_head(m, build_rms_norm(m, "norm", stream), wte, outputs);
}

const Family parity_experts = {.model_type = "experts", .architecture = "ExpertsForCausalLM", .build = build};
const Family parity_experts_apart = {
    .model_type = "experts", .architecture = "ExpertsForCausalLM", .build = build};
const Family parity_experts_alike = {
    .model_type = "experts", .architecture = "ExpertsForCausalLM", .build = build};
