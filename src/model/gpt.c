// GPT-2: learned positions, layer norm before each half of a block, biases everywhere (Radford et al. 2019).
#include "model/build.h"
#include <math.h>

static int norm(ModelBuild *m, const char *name, int x) {
  Arena *arena = &m->g->arena;
  int gain = build_gain(m, arena_format(arena, "%s.weight", name));
  int bias = build_bias(m, arena_format(arena, "%s.bias", name), 1, (DimName[]){DIM_EMBED});
  return op_layer_norm(m->g, name, x, gain, bias, m->config->norm_epsilon);
}

static int block(ModelBuild *m, int layer, int stream) { // (b, s, e) → (b, s, e)
  static const DimName heads[] = {DIM_KV_HEADS, DIM_GROUP, DIM_HEAD_DIM}, embed[] = {DIM_EMBED}, ffn[] = {DIM_FFN};
  const ModelConfig *c = m->config;
  // Two additions a layer: their weights start smaller, so that the stream's variance does not grow with depth.
  double residual = c->initializer_range / sqrt(2.0 * (double)c->layers);

  build_scope(m, layer, "layer.%d.attention", layer);
  int x = build_attention(m, norm(m, "norm", stream), NULL); // (b, s, g, r, d)
  stream = build_linear_residual(m, "output", x, stream, residual, 3, heads, 1);

  build_scope(m, layer, "layer.%d.ffn", layer);
  x = build_linear(m, "up", norm(m, "norm", stream), c->initializer_range, 1, ffn, 1, embed, 1); // (b, s, f)
  x = op_activation(m->g, "activation", x, c->activation);
  return build_linear_residual(m, "down", x, stream, residual, 1, ffn, 1);
}

int gpt_build(ModelBuild *m, ModelOutputs *outputs, Error *error) {
  const ModelConfig *c = m->config;
  if (m->options->seq > c->positions)
    return error_set(error, PLAIT_BAD_INPUT, "%s: n_positions is %lld, but data.seq_len is %lld; take at most %lld",
                     c->path, (long long)c->positions, (long long)m->options->seq, (long long)c->positions);

  build_scope(m, -1, "%s", "");
  int wte = build_matrix(m, "wte", c->initializer_range, 2, (DimName[]){DIM_VOCAB, DIM_EMBED});
  int wpe = build_matrix(m, "wpe", c->initializer_range, 2, (DimName[]){DIM_POSITION, DIM_EMBED});
  int token = build_residual(m, op_embedding(m->g, "wte", wte, m->tokens));
  int position = build_residual(m, op_embedding(m->g, "wpe", wpe, m->positions));
  int stream = build_residual(m, op_add(m->g, "embedding", (int[]){token, position}, 2));
  stream = build_residual(m, build_dropout(m, "embedding.dropout", stream, c->embedding_dropout));

  for (int layer = 0; layer < c->layers; layer++) stream = block(m, layer, stream);

  build_scope(m, (int)c->layers, "%s", "");
  build_head(m, norm(m, "norm", stream), wte, outputs);
  return PLAIT_OK;
}
