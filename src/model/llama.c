// Llama: rotary positions, RMS norm before each half of a block, grouped-query attention, gated feed-forward
// (Touvron et al. 2023; Llama Team 2024).
#include "model/build.h"

static int norm(ModelBuild *m, const char *name, int x) {
  int gain = build_gain(m, arena_format(&m->g->arena, "%s.weight", name));
  return op_rms_norm(m->g, name, x, gain, m->config->norm_epsilon);
}

static int block(ModelBuild *m, int layer, int stream) { // (b, s, e) → (b, s, e)
  static const DimName heads[] = {DIM_KV_HEADS, DIM_GROUP, DIM_HEAD_DIM}, embed[] = {DIM_EMBED}, ffn[] = {DIM_FFN};
  const ModelConfig *c = m->config;

  build_scope(m, layer, "layer.%d.attention", layer);
  int x = build_attention(m, norm(m, "norm", stream), &c->rope); // (b, s, g, r, d)
  stream = build_linear_residual(m, "output", x, stream, c->initializer_range, 3, heads, c->attention_bias);

  build_scope(m, layer, "layer.%d.ffn", layer);
  x = norm(m, "norm", stream);
  int gate = build_linear(m, "gate", x, c->initializer_range, 1, ffn, 1, embed, c->mlp_bias); // (b, s, f)
  int up = build_linear(m, "up", x, c->initializer_range, 1, ffn, 1, embed, c->mlp_bias);     // (b, s, f)
  x = op_gated(m->g, "gated", gate, up, c->activation);
  return build_linear_residual(m, "down", x, stream, c->initializer_range, 1, ffn, c->mlp_bias);
}

int llama_build(ModelBuild *m, ModelOutputs *outputs, Error *error) {
  const ModelConfig *c = m->config;
  build_scope(m, -1, "%s", "");
  int wte = build_matrix(m, "wte", c->initializer_range, 2, (DimName[]){DIM_VOCAB, DIM_EMBED});
  int stream = build_residual(m, op_embedding(m->g, "wte", wte, m->tokens));

  for (int layer = 0; layer < c->layers; layer++) stream = block(m, layer, stream);

  build_scope(m, (int)c->layers, "%s", "");
  build_head(m, norm(m, "norm", stream), wte, outputs);
  return PLAIT_OK;
}
