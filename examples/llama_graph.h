// The model of by_hand.h as a graph: what half_by_hand_llama.c and automatic_llama.c share. Nothing here knows of
// ranks.
#pragma once
#include "by_hand.h"
#include <plait/graph.h>

// Names of a layer's parts: "q" of layer 1 is "q1", until the next call.
static inline const char *name(const char *part, int layer) {
  static char full[64];
  snprintf(full, sizeof full, "%s%d", part, layer);
  return full;
}

static inline PlaitTensor build_norm(PlaitGraph *g, const char *part, int layer, PlaitTensor x) {
  PlaitTensor gain = plait_graph_parameter(g, name(part, layer), 1, (int64_t[]){EMBED}, 0);
  char text_of_op[64];
  snprintf(text_of_op, sizeof text_of_op, "%s_of_x%d", part, layer);
  return plait_graph_rms_norm(g, text_of_op, x, gain, 1e-5);
}

// x (samples, s, e) and the positions (samples, s) → (samples, s, e). Heads h of width d.
static inline PlaitTensor build_attention(PlaitGraph *g, int l, PlaitTensor x, PlaitTensor positions,
                                          PlaitTensor *wq) {
  const int64_t in[] = {HEADS, HEAD, EMBED}, out[] = {EMBED, HEADS, HEAD};
  *wq = plait_graph_parameter(g, name("q", l), 3, in, 0);
  PlaitTensor wk = plait_graph_parameter(g, name("k", l), 3, in, 0),
              wv = plait_graph_parameter(g, name("v", l), 3, in, 0),
              wo = plait_graph_parameter(g, name("o", l), 3, out, 0);
  PlaitTensor q = plait_graph_einsum(g, name("queries", l), "b s e, h d e -> b s h d", x, *wq);
  PlaitTensor k = plait_graph_einsum(g, name("keys", l), "b s e, h d e -> b s h d", x, wk);
  PlaitTensor v = plait_graph_einsum(g, name("values", l), "b s e, h d e -> b s h d", x, wv);
  q = plait_graph_rope(g, name("turned_queries", l), q, positions, 10000);
  k = plait_graph_rope(g, name("turned_keys", l), k, positions, 10000);
  PlaitTensor y = plait_graph_attention(g, name("attention", l), q, k, v, -1, 1, 0);
  return plait_graph_einsum(g, name("attention_out", l), "b s h d, e h d -> b s e", y, wo);
}

static inline PlaitTensor build_ffn(PlaitGraph *g, int l, PlaitTensor x, PlaitTensor *gate) {
  const int64_t in[] = {FFN, EMBED}, out[] = {EMBED, FFN};
  *gate = plait_graph_parameter(g, name("gate", l), 2, in, 0);
  PlaitTensor up = plait_graph_parameter(g, name("up", l), 2, in, 0),
              down = plait_graph_parameter(g, name("down", l), 2, out, 0);
  PlaitTensor a =
      plait_graph_activation(g, name("silu", l), plait_graph_linear(g, name("gated", l), x, *gate, -1), PLAIT_SILU);
  PlaitTensor h = plait_graph_multiply(g, name("hidden", l), a, plait_graph_linear(g, name("upped", l), x, up, -1));
  return plait_graph_linear(g, name("ffn_out", l), h, down, -1);
}

// The model, as one writes it for one device. The tensors that half_by_hand_llama.c places are kept.
typedef struct Llama { PlaitGraph *graph; PlaitTensor q[LAYERS], gate[LAYERS], head; } Llama;

static inline Llama build(void) {
  Llama m = {.graph = plait_graph_create(BATCH, PLAIT_FP64)};
  PlaitGraph *g = m.graph;
  PlaitTensor tokens = plait_graph_integers(g, "tokens", 1, (int64_t[]){SEQ}),
              targets = plait_graph_integers(g, "targets", 1, (int64_t[]){SEQ}),
              positions = plait_graph_integers(g, "positions", 1, (int64_t[]){SEQ});
  PlaitTensor table = plait_graph_parameter(g, "embedding", 2, (int64_t[]){VOCAB, EMBED}, 0);
  m.head = plait_graph_parameter(g, "head", 2, (int64_t[]){VOCAB, EMBED}, 0);
  PlaitTensor x = plait_graph_embedding(g, "embedded", table, tokens); // (samples, s, e)
  for (int l = 0; l < LAYERS; l++) {
    plait_graph_layer(g, l); // where a pipeline may cut
    x = plait_graph_add(g, name("middle", l), x,
                        build_attention(g, l, build_norm(g, "norm1_", l, x), positions, &m.q[l]));
    x = plait_graph_add(g, name("block", l), x, build_ffn(g, l, build_norm(g, "norm2_", l, x), &m.gate[l]));
  }
  plait_graph_linear_cross_entropy(g, build_norm(g, "norm", LAYERS, x), m.head, targets);
  return m;
}

// The first weights: those of by_hand.h.
static inline int write(PlaitTraining *t, const char *parameter, const double *w, int count, PlaitError *error) {
  return plait_training_write(t, parameter, w, (size_t)count * sizeof *w, error);
}

static inline int write_block(PlaitTraining *t, int l, Block b, PlaitError *error) {
  const struct { const char *part; const double *w; int count; } tensors[] = {
      {"norm1_", b.norm1, EMBED},    {"q", b.q, EMBED * EMBED},   {"k", b.k, EMBED * EMBED},
      {"v", b.v, EMBED * EMBED},     {"o", b.o, EMBED * EMBED},   {"norm2_", b.norm2, EMBED},
      {"gate", b.gate, FFN * EMBED}, {"up", b.up, FFN * EMBED},   {"down", b.down, EMBED * FFN},
  };
  int code = 0;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors && !code; i++)
    code = write(t, name(tensors[i].part, l), tensors[i].w, tensors[i].count, error);
  return code;
}

static inline int write_weights(PlaitTraining *t, PlaitError *error) {
  int code = 0;
  for (int k = 0; k < PIECES && !code; k++) {
    Piece p = piece_create(piece_size(k, 1));
    piece_init(k, p.w);
    if (k == EMBEDDING) code = write(t, "embedding", p.w, VOCAB * EMBED, error);
    else if (k != LAST) code = write_block(t, k - FIRST_BLOCK, block_at(p.w, 1), error);
    else if (!(code = write(t, name("norm", LAYERS), p.w, EMBED, error)))
      code = write(t, "head", p.w + EMBED, VOCAB * EMBED, error);
    piece_free(&p);
  }
  return code;
}

// Trains the graph from these weights on the text of by_hand.h, and prints the losses.
static inline int train(const PlaitGraph *g, const PlaitTrainingOptions *options, PlaitError *error) {
  PlaitTraining *t;
  int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ], positions[BATCH * SEQ];
  for (int i = 0; i < BATCH * SEQ; i++) tokens[i] = text[i], targets[i] = text[i + 1], positions[i] = i % SEQ;
  int code = plait_training_create(g, options, &t, error);
  if (!code) code = write_weights(t, error);
  for (int step = 1; step <= STEPS && !code; step++) {
    PlaitStepResult result;
    code = plait_training_step(t, (const void *[]){tokens, targets, positions}, 0.01, &result, error);
    if (!code) print_loss(step, result.loss);
  }
  plait_training_destroy(t);
  return code;
}
