// A small decoder transformer of our own, trained on the bytes of a file, on a mesh: embedding, causal attention, a
// feed-forward network, dropout, and the loss over a vocabulary of 256 bytes. Then it prints
// how the trained model continues the beginning of the file.
//
//   transformer_by_hand FILE [MESH]        without a mesh it trains on one rank
//
// For example: transformer_by_hand README.md "pp=2 tp=2"
#include <plait/graph.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, EMBED = 32, HEADS = 4, HEAD_DIM = 8, FFN = 64, BYTES = 256 }; // the model
enum { SAMPLES = 12, LENGTH = 32, STEPS = 300, PRINT_EVERY = 50, WRITE = 48 };     // the training

// Names of a layer's parts: "up" of layer 1 is "up1", until the next call.
static const char *name(const char *part, int layer) {
  static char text[64];
  snprintf(text, sizeof text, "%s%d", part, layer);
  return text;
}

static PlaitTensor matrix(PlaitGraph *g, const char *part, int layer, int rank, const int64_t *size) {
  return plait_graph_parameter(g, name(part, layer), rank, size, 0.1);
}

static PlaitTensor norm(PlaitGraph *g, const char *part, int layer, PlaitTensor x) {
  char gain[64], bias[64];
  snprintf(gain, sizeof gain, "%s_gain%d", part, layer);
  snprintf(bias, sizeof bias, "%s_bias%d", part, layer);
  int64_t size[] = {EMBED};
  return plait_graph_layer_norm(g, name(part, layer), x, plait_graph_parameter_filled(g, gain, 1, size, 1),
                                plait_graph_parameter(g, bias, 1, size, 0), 1e-5);
}

// x (samples, s, e) → the same: every head h of width d has its queries, keys and values.
static PlaitTensor attention(PlaitGraph *g, int l, PlaitTensor x) {
  const int64_t in[] = {HEADS, HEAD_DIM, EMBED};
  PlaitTensor wq = matrix(g, "wq", l, 3, in), wk = matrix(g, "wk", l, 3, in), wv = matrix(g, "wv", l, 3, in),
              wo = matrix(g, "wo", l, 3, in);
  PlaitTensor q = plait_graph_einsum(g, name("q", l), "b s e, h d e -> b s h d", x, wq);
  PlaitTensor k = plait_graph_einsum(g, name("k", l), "b s e, h d e -> b s h d", x, wk);
  PlaitTensor v = plait_graph_einsum(g, name("v", l), "b s e, h d e -> b s h d", x, wv);
  PlaitTensor y = plait_graph_attention(g, name("attention", l), q, k, v, -1, 1, 0);
  plait_graph_shard(g, wq, 0, "tp"); // the heads over tp; keys, values and wo follow
  return plait_graph_einsum(g, name("o", l), "b s h d, h d e -> b s e", y, wo);
}

static PlaitTensor feed_forward(PlaitGraph *g, int l, PlaitTensor x) {
  PlaitTensor up = matrix(g, "up", l, 2, (int64_t[]){FFN, EMBED}),
              down = matrix(g, "down", l, 2, (int64_t[]){EMBED, FFN});
  PlaitTensor h = plait_graph_linear(g, name("up_product", l), x, up, -1);
  h = plait_graph_activation(g, name("gelu", l), h, PLAIT_GELU);
  plait_graph_shard(g, up, 0, "tp");
  return plait_graph_linear(g, name("down_product", l), h, down, -1);
}

static PlaitGraph *build(void) {
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP32);
  PlaitTensor tokens = plait_graph_integers(g, "tokens", 1, (int64_t[]){LENGTH}); // (samples, s)
  PlaitTensor next = plait_graph_integers(g, "next", 1, (int64_t[]){LENGTH});
  PlaitTensor table = matrix(g, "table", 0, 2, (int64_t[]){BYTES, EMBED});
  PlaitTensor x = plait_graph_embedding(g, "embedding", table, tokens); // (samples, s, e)
  x = plait_graph_add(g, "positions", x, matrix(g, "position", 0, 2, (int64_t[]){LENGTH, EMBED}));
  x = plait_graph_dropout(g, "dropout", x, 0.05);
  for (int l = 0; l < LAYERS; l++) {
    plait_graph_layer(g, l); // where a pipeline may cut
    PlaitTensor y = attention(g, l, norm(g, "norm_attention", l, x));
    x = plait_graph_add(g, name("add_attention", l), x, y);
    y = feed_forward(g, l, norm(g, "norm_ffn", l, x));
    x = plait_graph_add(g, name("add_ffn", l), x, y);
  }
  x = norm(g, "norm", LAYERS, x);
  plait_graph_linear_cross_entropy(g, x, table, next); // the table of the embedding is the head too
  plait_graph_output(g, "logits", plait_graph_einsum(g, "all_logits", "b s e, v e -> b s v", x, table));
  plait_graph_shard(g, table, 0, "tp");
  return g;
}

// Writes on from the text's beginning, always the likeliest byte.
static int write_on(PlaitTraining *t, const unsigned char *text, PlaitError *error) {
  static int32_t tokens[SAMPLES][LENGTH];
  static float logits[SAMPLES][LENGTH][BYTES];
  int code = 0;
  for (int i = 0; i < LENGTH; i++) tokens[0][i] = text[i];
  printf("%.*s|", LENGTH, (const char *)text);
  for (int n = 0; n < WRITE && !code; n++) {
    code = plait_training_forward(t, (const void *[]){tokens, NULL}, (void *[]){logits}, NULL, error);
    int best = 0;
    for (int v = 0; v < BYTES; v++) best = logits[0][LENGTH - 1][v] > logits[0][LENGTH - 1][best] ? v : best;
    memmove(tokens[0], tokens[0] + 1, (LENGTH - 1) * sizeof(int32_t));
    tokens[0][LENGTH - 1] = best;
    if (!code) putchar(best);
  }
  putchar('\n');
  return code;
}

static int train(PlaitTraining *t, const unsigned char *text, size_t size, PlaitError *error) {
  static int32_t tokens[SAMPLES][LENGTH], next[SAMPLES][LENGTH];
  unsigned place = 1;
  for (int step = 1; step <= STEPS; step++) {
    for (int n = 0; n < SAMPLES; n++) {
      place = place * 1664525u + 1013904223u;
      const unsigned char *from = text + (place >> 8) % (size - LENGTH);
      for (int i = 0; i < LENGTH; i++) tokens[n][i] = from[i], next[n][i] = from[i + 1];
    }
    PlaitStepResult result = {0};
    int code = plait_training_step(t, (const void *[]){tokens, next}, 0.004, &result, error);
    if (code) return code;
    if (step == 1 || step % PRINT_EVERY == 0) printf("step %3d   loss %.5f\n", step, result.loss);
  }
  return 0;
}

int main(int argc, char **argv) {
  static unsigned char text[1 << 20];
  FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
  size_t size = file ? fread(text, 1, sizeof text, file) : 0;
  if (file) fclose(file);
  if (size <= LENGTH) {
    fprintf(stderr, "usage: transformer_by_hand FILE [MESH], the file with more than %d bytes\n", LENGTH);
    return 2;
  }
  PlaitError error = {0};
  PlaitTraining *t;
  PlaitGraph *g = build();
  PlaitTrainingOptions options = {
      .mesh = argc > 2 ? argv[2] : NULL, .optimizer = "adamw", .clip = 1, .microbatches = 2};
  int code = plait_training_create(g, &options, &t, &error);
  plait_graph_destroy(g);
  if (!code) code = train(t, text, size, &error);
  if (!code) code = write_on(t, text, &error);
  if (code) fprintf(stderr, "%s\n", error.message);
  plait_training_destroy(t);
  return code != 0;
}
