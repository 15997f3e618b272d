// Decoders with learned positions: their blocks.
#include "model/learned.h"

static int block(ModelBuild *m, int layer, int stream, double residual) { // (b, s, e) → (b, s, e)
  const ModelConfig *c = m->config;

  build_scope(m, layer, "layer.%d.attention", layer);
  int x = build_attention(m, build_layer_norm(m, "norm", stream)); // (b, s, g, r, d)
  stream = build_linear_residual(m, "output", x, stream, residual, 3, c->output_bias);

  build_scope(m, layer, "layer.%d.ffn", layer);
  x = build_layer_norm(m, "norm", stream);
  x = build_linear(m, "up", x, c->initializer_range, 1, &(Extent){DIM_FFN, c->ffn}, 1, c->ffn_bias); // (b, s, f)
  x = op_activation(m->g, "activation", x, c->activation);
  return build_linear_residual(m, "down", x, stream, residual, 1, c->ffn_bias);
}

void learned_build(ModelBuild *m, double residual, const char *positions_key, ModelOutputs *outputs) {
  const ModelConfig *c = m->config;
  const Extent table[] = {{DIM_POSITION, c->positions}, {DIM_EMBED, c->embed}};
  build_limit(m, positions_key, c->positions, NULL);

  build_scope(m, -1, "%s", "");
  int wte, token = build_embedding(m, &wte); // (b, s, e)
  int wpe = build_matrix(m, "wpe", c->initializer_range, 2, table);
  int position = build_residual(m, op_embedding(m->g, "wpe", wpe, build_input(m, INPUT_POSITIONS))); // (b, s, e)
  int stream = build_residual(m, op_add(m->g, "embedding", (int[]){token, position}, 2));
  stream = build_residual(m, build_dropout(m, "embedding.dropout", stream, c->embedding_dropout));

  for (int layer = 0; layer < c->layers; layer++) stream = block(m, layer, stream, residual);

  build_scope(m, (int)c->layers, "%s", "");
  build_head(m, build_layer_norm(m, "norm", stream), wte, outputs);
}

void learned_heads(ConfigReader *r, ModelConfig *c, const char *embed_key, const char *heads_key) {
  if (r->code) return;
  config_must_divide(r, config_name(r, embed_key), c->embed, config_name(r, heads_key), c->heads);
  c->kv_heads = c->heads;
  c->head_dim = c->embed / c->heads;
}
