// Layers of experts: their keys, and their part of the graph.
#include "model/experts.h"
#include "base/fault.h"
#include "model/routing.h"
#include <math.h>
#include <string.h>

// --- keys ------------------------------------------------------------------------------------------------------------

enum { MOST_EXPERTS = 1 << 14 };

void experts_read(ConfigReader *r, ModelConfig *c, int64_t choices_absent) {
  c->experts = config_integer(r, "num_local_experts", 1, MOST_EXPERTS, -1);
  c->experts_per_token = config_integer(r, "num_experts_per_tok", 1, MOST_EXPERTS, choices_absent);
  if (!r->code && c->experts_per_token > c->experts)
    r->code =
        error_set(r->error, PLAIT_BAD_INPUT, "%s: num_experts_per_tok is %lld; allowed: at most %s, which is %lld",
                  r->file, (long long)c->experts_per_token, config_name(r, "num_local_experts"), (long long)c->experts);
  c->router_aux_loss_coef = config_real(r, "router_aux_loss_coef", 0, 1, 1e6, 0.001);
  config_boolean(r, "output_router_logits", 0); // of what transformers returns
  config_only(r, "router_jitter_noise", "0.0");
}

static void has_experts(ModelConfig *c, int64_t layer, int has) {
  uint64_t bit = (uint64_t)1 << (layer % 64), *word = &c->expert_layers[layer / 64];
  *word = has ? *word | bit : *word & ~bit;
}

void experts_in_all_layers(ModelConfig *c) {
  for (int64_t layer = 0; layer < c->layers; layer++) has_experts(c, layer, 1);
  c->expert_ffn = c->ffn;
}

// mlp_only_layers: a list of layers, which have none.
static void read_dense_layers(ConfigReader *r, ModelConfig *c) {
  const json_t *layers = config_value(r, "mlp_only_layers");
  if (r->code || !layers) return;
  char allowed[80];
  snprintf(allowed, sizeof allowed, "a list of layers, from 0 to %lld", (long long)c->layers - 1);
  if (!json_is_array(layers)) return config_bad_value(r, "mlp_only_layers", layers, allowed);
  for (size_t i = 0; i < json_array_size(layers) && !r->code; i++) {
    int64_t n;
    if (!config_whole(json_array_get(layers, i), &n) || n < 0 || n >= c->layers)
      config_bad_value(r, "mlp_only_layers", layers, allowed);
    else has_experts(c, n, FAULT(experts_in_dense_layers, 0, 1));
  }
}

void experts_read_qwen(ConfigReader *r, ModelConfig *c, int64_t choices_absent) {
  experts_read(r, c, choices_absent);
  c->expert_ffn = config_integer(r, "moe_intermediate_size", 1, MOST_FFN, -1);
  c->norm_topk = config_boolean(r, "norm_topk_prob", 0);
  int64_t step = config_integer(r, "decoder_sparse_step", 1, INT64_MAX, 1);
  for (int64_t layer = step - 1; layer < c->layers && !r->code; layer += step) has_experts(c, layer, 1);
  read_dense_layers(r, c);
}

// --- the layer -------------------------------------------------------------------------------------------------------

// The experts' matrices: parameter NAME.weight (x, n, k)
static int build_matrices(ModelBuild *m, const char *name, Extent to, Extent from) {
  const Extent dims[] = {{DIM_EXPERT, m->config->experts}, to, from};
  return build_matrix(m, name, m->config->initializer_range, 3, dims);
}

typedef struct Experts { int gate, up, down; } Experts; // (x, f, e), (x, f, e), (x, e, f)

// Of tokens, which the mask sends to experts: (b, s, e) → (b, s, e)
static int build_rows(ModelBuild *m, const Experts *w, int x, int mask, int weights) {
  const ModelConfig *c = m->config;
  int rows = op_dispatch(m->g, "dispatch", x, mask, (int)c->experts_per_token); // (b, s, x, e)
  int gate = op_grouped(m->g, "gate", rows, w->gate);                           // (b, s, x, f)
  int up = op_grouped(m->g, "up", rows, w->up);                                 // (b, s, x, f)
  rows = op_grouped(m->g, "down", op_gated(m->g, "gated", gate, up, c->activation), w->down);
  return op_combine(m->g, "combine", rows, weights);
}

// The same for a part of the positions after the other, so that only one part's rows need memory: backward makes them
// again (compile/recompute.c).
static int build_parts(ModelBuild *m, int layer, const Experts *w, int x, int mask, int weights) {
  int n = m->options->chunks, *part = arena_array(&m->g->arena, int, 4 * n);
  op_split_positions(m->g, "split.x", x, n, part);
  op_split_positions(m->g, "split.mask", mask, n, part + n);
  op_split_positions(m->g, "split.weights", weights, n, part + 2 * n);
  for (int k = 0; k < n; k++) {
    build_scope(m, layer, "layer.%d.experts.part.%d", layer, k);
    part[3 * n + k] = build_rows(m, w, part[k], part[n + k], part[2 * n + k]);
  }
  build_scope(m, layer, "layer.%d.experts", layer);
  return op_join_positions(m->g, "join", part + 3 * n, n);
}

// The sum of the chosen experts' results, weighted: (b, s, e) → (b, s, e)
static int build_chosen(ModelBuild *m, int layer, int x) {
  const ModelConfig *c = m->config;
  const RouteAttr route = {.k = (int32_t)c->experts_per_token,
                           .normalize = FAULT(weights_of_experts_add_up, c->norm_topk, !c->norm_topk)};
  // The router's rows are not cut as experts are: where experts lie on other ranks, each rank still routes its own
  // tokens.
  const Extent experts = {DIM_NONE, c->experts}, ffn = {DIM_EXPERT_FFN, c->expert_ffn},
               embed = {DIM_EMBED, c->embed};
  int weights, mask;
  build_scope(m, layer, "layer.%d", layer);
  int logits = build_linear(m, "router", x, c->initializer_range, 1, &experts, 1, 0); // (b, s, x)
  build_routing(m, logits, &route, &weights, &mask);                                // (b, s, x), (b, s, x)
  build_scope(m, layer, "layer.%d.experts", layer);
  Experts w;
  w.gate = build_matrices(m, "gate.weight", ffn, embed);
  w.up = build_matrices(m, "up.weight", ffn, embed);
  w.down = build_matrices(m, "down.weight", embed, ffn);
  return m->options->chunks > 1 ? build_parts(m, layer, &w, x, mask, weights) : build_rows(m, &w, x, mask, weights);
}

// The expert that sees every token, scaled by a number of each token: (b, s, e) → (b, s, e)
static int build_shared(ModelBuild *m, int layer, int x) {
  const ModelConfig *c = m->config;
  const Extent ffn = {DIM_FFN, c->shared_ffn}, embed = {DIM_EMBED, c->embed}, one = {DIM_NONE, 1};
  build_scope(m, layer, "layer.%d.shared", layer);
  int gate = build_linear(m, "gate", x, c->initializer_range, 1, &ffn, 1, 0); // (b, s, f)
  int up = build_linear(m, "up", x, c->initializer_range, 1, &ffn, 1, 0);     // (b, s, f)
  int y = op_gated(m->g, "gated", gate, up, c->activation);
  y = build_linear(m, "down", y, c->initializer_range, 1, &embed, 1, 0);
  int scale = build_linear(m, "switch", x, c->initializer_range, 1, &one, 1, 0); // (b, s, 1)
  scale = op_activation(m->g, "switch.sigmoid", scale, ACTIVATION_SIGMOID);
  const EinsumAttr product = {.rank = {3, 3, 3}, .letter = {{0, 1, 3}, {0, 1, 2}, {0, 1, 2}}};
  return FAULT(shared_expert_is_always_on, op_einsum(m->g, "scaled", &product, scale, y), y);
}

int build_experts(ModelBuild *m, int layer, int x, int stream) {
  int part[3] = {stream, build_chosen(m, layer, x)}, parts = 2;
  if (m->config->shared_ffn) part[parts++] = build_shared(m, layer, x);
  build_scope(m, layer, "layer.%d.experts", layer);
  for (int k = 1; k < parts; k++) build_residual(m, part[k]);
  return build_residual(m, op_add(m->g, "add", part, parts));
}
