// tier 1; rooms op compile; numbers
// Half by hand, the calls for a model of one's own: embedding, norms, attention, einsum, losses, dropout and outputs
// give on any mesh what one rank gives, and on one rank what formulas give; wrong use has its sentence.
#include "plait/graph.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SAMPLES = 8, S = 5, VOCAB = 12, E = 8, G = 2, R = 2, D = 4, F = 12, STEPS = 3, CLASSES = 4 };
typedef enum Loss { LINEAR, LABELS, PROBABILITIES, SQUARES, LOSSES } Loss;
#define SIZE(...) sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}

static PlaitTensor matrix(PlaitGraph *g, const char *name, int rank, const int64_t *size) {
  return plait_graph_parameter(g, name, rank, size, 0.4);
}

// x (b, s, e) → (b, s, e): attention with grouped heads, in einsums, causal and with dropout.
static PlaitTensor attention(PlaitGraph *g, PlaitTensor x, int shard) {
  PlaitTensor wq = matrix(g, "wq", SIZE(G, R, D, E)), wk = matrix(g, "wk", SIZE(G, D, E)),
              wv = matrix(g, "wv", SIZE(E, G, D)), wo = matrix(g, "wo", SIZE(G, R, D, E));
  PlaitTensor q = plait_graph_einsum(g, "q", "b s e, g r d e -> b s g r d", x, wq);
  PlaitTensor k = plait_graph_einsum(g, "k", "b s e, g d e -> b s g d", x, wk);
  PlaitTensor v = plait_graph_einsum(g, "v", "bse,egd->bsgd", x, wv);
  q = plait_graph_rope(g, "q_turned", q, -1, 100), k = plait_graph_rope(g, "k_turned", k, -1, 100);
  PlaitTensor y = plait_graph_attention(g, "attention", q, k, v, -1, 1, 0.1);
  if (shard) plait_graph_shard(g, wq, 0, "tp");
  return plait_graph_einsum(g, "o", "b s g r d, g r d e -> b s e", y, wo);
}

// The same for one head a group and not causal, once by plait_graph_attention and once written out; their sum.
static PlaitTensor twice(PlaitGraph *g, PlaitTensor x, PlaitTensor documents, int shard) {
  PlaitTensor w = matrix(g, "w", SIZE(G, D, E));
  PlaitTensor h = plait_graph_einsum(g, "h", "b s e, g d e -> b s g d", x, w);
  PlaitTensor y = plait_graph_attention(g, "full", h, h, h, documents, 0, 0);
  PlaitTensor score = plait_graph_einsum(g, "score", "b s g d, b t g d -> b g s t", h, h);
  PlaitTensor p = plait_graph_softmax(g, "p", plait_graph_scale(g, "scaled", score, 1 / sqrt(D)));
  PlaitTensor z = plait_graph_einsum(g, "z", "b g s t, b t g d -> b s g d", p, h);
  if (shard) plait_graph_shard(g, w, 0, "tp");
  plait_graph_output(g, "by_op", y);
  plait_graph_output(g, "written_out", z);
  return plait_graph_einsum(g, "heads", "b s g d, g d e -> b s e", plait_graph_add(g, "both", y, z),
                            matrix(g, "back", SIZE(G, D, E)));
}

static PlaitTensor feed_forward(PlaitGraph *g, PlaitTensor x, int shard) {
  PlaitTensor up = matrix(g, "up", SIZE(F, E)), gain = plait_graph_parameter_filled(g, "gain", SIZE(F), 1.5);
  PlaitTensor h = plait_graph_linear(g, "up_linear", x, up, plait_graph_parameter(g, "up_bias", SIZE(F), 0.2));
  h = plait_graph_multiply(g, "gained", plait_graph_activation(g, "gelu", h, PLAIT_GELU), gain);
  if (shard) plait_graph_shard(g, up, 0, "tp");
  return plait_graph_einsum(g, "down_product", "b s f, f e -> b s e", h, matrix(g, "down", SIZE(F, E)));
}

static void loss(PlaitGraph *g, Loss kind, PlaitTensor x, PlaitTensor table) {
  PlaitTensor labels, target;
  if (kind == LINEAR) {
    labels = plait_graph_integers(g, "labels", SIZE(S));
    plait_graph_linear_cross_entropy(g, x, table, labels);
    return;
  }
  PlaitTensor pooled = plait_graph_reduce(g, "pooled", x, 1, 1);
  PlaitTensor logits = plait_graph_linear(g, "logits", pooled, matrix(g, "head", SIZE(CLASSES, E)), -1);
  plait_graph_output(g, "logits_out", logits);
  if (kind == LABELS) {
    labels = plait_graph_integers(g, "labels", 0, NULL);
    plait_graph_cross_entropy(g, logits, labels);
  } else {
    target = plait_graph_input(g, "target", SIZE(CLASSES));
    if (kind == SQUARES) plait_graph_squared_error(g, plait_graph_softmax(g, "probability", logits), target);
    else plait_graph_cross_entropy(g, logits, target);
  }
}

// tokens, documents and the loss's target, in three layers.
static PlaitGraph *build(PlaitDtype dtype, Loss kind, int shard) {
  PlaitGraph *g = plait_graph_create(SAMPLES, dtype);
  PlaitTensor tokens = plait_graph_integers(g, "tokens", SIZE(S)),
              documents = plait_graph_integers(g, "documents", SIZE(S));
  PlaitTensor table = matrix(g, "table", SIZE(VOCAB, E));
  PlaitTensor x = plait_graph_embedding(g, "embedding", table, tokens);
  x = plait_graph_add(g, "positions", x, matrix(g, "position", SIZE(S, E)));
  x = plait_graph_dropout(g, "dropout", x, 0.2);
  plait_graph_layer(g, 1);
  PlaitTensor one = plait_graph_parameter_filled(g, "one", SIZE(E), 1),
              zero = plait_graph_parameter(g, "zero", SIZE(E), 0);
  PlaitTensor h = attention(g, plait_graph_layer_norm(g, "norm1", x, one, zero, 1e-5), shard);
  x = plait_graph_add(g, "residual1", x, h);
  x = plait_graph_add(g, "residual2", x, twice(g, x, documents, shard));
  plait_graph_layer(g, 2);
  PlaitTensor two = plait_graph_parameter_filled(g, "two", SIZE(E), 1);
  x = plait_graph_add(g, "residual3", x, feed_forward(g, plait_graph_rms_norm(g, "norm2", x, two, 1e-6), shard));
  PlaitTensor mean = plait_graph_reduce(g, "mean", x, 1, 1), sum = plait_graph_reduce(g, "sum", x, 2, 0);
  x = plait_graph_add(g, "with_mean", x, plait_graph_broadcast(g, "spread", mean, 1, S));
  x = plait_graph_add(g, "with_sum", x, plait_graph_einsum(g, "spread_sum", "b s -> b s e=8", sum, -1));
  if (shard) plait_graph_shard(g, table, 0, "tp");
  loss(g, kind, x, table);
  return g;
}

// What a run gave.
typedef struct Run {
  double loss[STEPS], norm[STEPS], forward;
  double by_op[SAMPLES * S * G * D], written_out[SAMPLES * S * G * D], logits[SAMPLES * CLASSES];
  double table[VOCAB * E], wq[G * R * D * E], down[F * E], one[E], position[S * E];
} Run;

// Data of a step; of labels every fifth is missing.
typedef struct Data {
  int32_t tokens[SAMPLES * S], documents[SAMPLES * S], labels[SAMPLES * S];
  double target[SAMPLES * CLASSES];
  float target32[SAMPLES * CLASSES];
} Data;

static Data data_of(int step, Loss kind) {
  Data d;
  for (int i = 0; i < SAMPLES * S; i++) {
    d.tokens[i] = (i * 7 + step * 5 + i / 3) % VOCAB;
    d.documents[i] = i % S > 1 + i / S % 3;
    d.labels[i] = i % 5 == 3 ? -1 : (i * 5 + step) % (kind == LABELS ? CLASSES : VOCAB);
  }
  for (int i = 0; i < SAMPLES * CLASSES; i++) d.target32[i] = (float)(d.target[i] = (1 + (i * 3 + step) % 7) / 16.);
  return d;
}

static const void *target_of(const Data *d, Loss kind, PlaitDtype dtype) {
  return kind == LINEAR || kind == LABELS ? (const void *)d->labels
         : dtype == PLAIT_FP64            ? (const void *)d->target
                                          : (const void *)d->target32;
}

static void must(int code, const PlaitError *error, const char *mesh) {
  if (code) fail_msg("%s: %s", mesh, error->message);
}

static void read_all(PlaitTraining *t, Run *r) {
  PlaitError error = {0};
  must(plait_training_read(t, "table", r->table, sizeof r->table, &error), &error, "");
  must(plait_training_read(t, "wq", r->wq, sizeof r->wq, &error), &error, "");
  must(plait_training_read(t, "down", r->down, sizeof r->down, &error), &error, "");
  must(plait_training_read(t, "one", r->one, sizeof r->one, &error), &error, "");
  must(plait_training_read(t, "position", r->position, sizeof r->position, &error), &error, "");
}

static void train(PlaitTraining *t, Loss kind, int from, int to, Run *r) {
  PlaitError error = {0};
  for (int step = from; step < to; step++) {
    Data d = data_of(step, kind);
    PlaitStepResult result;
    must(plait_training_step(t, (const void *[]){d.tokens, d.documents, target_of(&d, kind, PLAIT_FP64)}, 0.05, &result,
                             &error),
         &error, "step");
    assert_int_equal(result.skipped, 0);
    r->loss[step] = result.loss, r->norm[step] = result.gradient_norm;
  }
}

static void forward(PlaitTraining *t, Loss kind, Run *r) {
  PlaitError error = {0};
  Data d = data_of(7, kind);
  must(plait_training_forward(t, (const void *[]){d.tokens, d.documents, target_of(&d, kind, PLAIT_FP64)},
                              (void *[]){r->by_op, r->written_out, r->logits}, &r->forward, &error),
       &error, "forward");
}

static PlaitTraining *create(Loss kind, int shard, const PlaitTrainingOptions *o) {
  PlaitGraph *g = build(PLAIT_FP64, kind, shard);
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, o, &t, &error), &error, o->mesh);
  plait_graph_destroy(g);
  return t;
}

static Run run(Loss kind, int shard, const PlaitTrainingOptions *o) {
  PlaitTraining *t = create(kind, shard, o);
  Run r;
  memset(&r, 0, sizeof r);
  train(t, kind, 0, STEPS, &r);
  forward(t, kind, &r);
  read_all(t, &r);
  plait_training_destroy(t);
  return r;
}

static void compare(const Run *a, const Run *b, double tolerance, const char *what) {
  const double *x = (const double *)a, *y = (const double *)b;
  for (size_t i = 0; i < sizeof *a / sizeof(double); i++)
    if (!(fabs(x[i] - y[i]) <= tolerance)) fail_msg("%s: number %zu is %.15g, one rank's %.15g", what, i, x[i], y[i]);
}

static const PlaitTrainingOptions layouts[] = {
    {.mesh = "dp=4"},
    {.mesh = "dp=2 tp=2"},
    {.mesh = "tp=2", .microbatches = 3},
    {.mesh = "pp=2 dp=2", .microbatches = 2},
    {.mesh = "pp=2 tp=2", .microbatches = 3},
    {.mesh = "pp=3"},
    {.mesh = "dp=4", .zero = 3, .microbatches = 2},
    {.mesh = "dp=3", .microbatches = 2},
    {.mesh = "pp=2 dp=2 tp=2", .zero = 2, .microbatches = 3},
};

static void every_layout_is_one_rank(void **state) {
  for (int kind = 0; kind < LOSSES; kind++) {
    PlaitTrainingOptions o = {.mesh = "dp=1", .seed = 5, .optimizer = "adamw", .clip = 0.5};
    Run one = run((Loss)kind, 0, &o), other;
    assert_true(one.loss[0] > 0.01 && one.loss[0] != one.loss[1] && one.forward > 0.01 && one.norm[0] > 0);
    for (int i = 0; i < (int)(sizeof layouts / sizeof *layouts); i++) {
      o = layouts[i];
      o.seed = 5, o.optimizer = "adamw", o.clip = 0.5;
      int tp = strstr(o.mesh, "tp") != NULL;
      other = run((Loss)kind, tp, &o);
      char what[96];
      snprintf(what, sizeof what, "loss %d, %s", kind, o.mesh);
      compare(&other, &one, 1e-10, what);
    }
    for (int i = 0; i < SAMPLES * S * G * D; i++) assert_true(one.by_op[i] != 0 && one.written_out[i] != 0);
  }
}

// ---- values

// The written-out attention is that of plait_graph_attention where all positions are of one document.
static void attention_is_what_it_says(void **state) {
  PlaitTraining *t = create(LINEAR, 0, &(PlaitTrainingOptions){.seed = 5});
  static double y[SAMPLES * S * G * D], z[SAMPLES * S * G * D];
  PlaitError error = {0};
  Data d = data_of(1, LINEAR);
  memset(d.documents, 0, sizeof d.documents);
  double value = 0;
  must(plait_training_forward(t, (const void *[]){d.tokens, d.documents, NULL}, (void *[]){y, z}, &value, &error),
       &error, "forward");
  assert_true(isnan(value)); // no labels, no loss
  for (int i = 0; i < SAMPLES * S * G * D; i++) assert_true(fabs(y[i] - z[i]) < 1e-13 && y[i] != 0);
  must(plait_training_forward(t, (const void *[]){d.tokens, d.documents, d.labels}, NULL, NULL, &error), &error, "");
  assert_int_equal(plait_training_steps(t), 0);
  plait_training_destroy(t);
}

// Cross entropy of logits x wᵀ, with labels of which one is missing, and with probabilities; a step of SGD by formula.
static void cross_entropy_by_formula(void **state) {
  enum { N = 3, IN = 2 };
  static const double x[N][IN] = {{0.5, -1}, {2, 0.25}, {-0.75, 1.5}},
                      w[CLASSES][IN] = {{1, 2}, {-1, 0.5}, {0, 1}, {2, -2}};
  static const int32_t labels[N] = {2, -1, 0};
  for (int dense = 0; dense < 2; dense++) {
    PlaitGraph *g = plait_graph_create(N, PLAIT_FP64);
    PlaitTensor in = plait_graph_input(g, "x", SIZE(IN)), p = plait_graph_parameter(g, "w", SIZE(CLASSES, IN), 1);
    PlaitTensor target =
        dense ? plait_graph_input(g, "target", SIZE(CLASSES)) : plait_graph_integers(g, "target", 0, NULL);
    PlaitTensor logits = plait_graph_linear(g, "logits", in, p, -1);
    plait_graph_cross_entropy(g, logits, target);
    plait_graph_output(g, "values", plait_graph_softmax(g, "softmax", logits));
    PlaitTraining *t;
    PlaitError error = {0};
    must(plait_training_create(g, &(PlaitTrainingOptions){.mesh = "dp=2"}, &t, &error), &error, "");
    plait_graph_destroy(g);
    must(plait_training_write(t, "w", w, sizeof w, &error), &error, "");
    double probability[N][CLASSES] = {{0}}, gradient[CLASSES][IN] = {{0}}, wanted = 0, softmax[N][CLASSES],
           after[CLASSES][IN];
    for (int n = 0; n < N; n++)
      for (int c = 0; c < CLASSES; c++) probability[n][c] = dense ? (n + c) / 10. : labels[n] == c;
    for (int n = 0; n < N; n++) {
      double e[CLASSES], sum = 0, weight = 0, count = dense ? N : 2;
      for (int c = 0; c < CLASSES; c++) sum += e[c] = exp(w[c][0] * x[n][0] + w[c][1] * x[n][1]);
      for (int c = 0; c < CLASSES; c++)
        weight += probability[n][c], wanted -= probability[n][c] * log(e[c] / sum) / count;
      for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < IN; i++) gradient[c][i] += (weight * e[c] / sum - probability[n][c]) * x[n][i] / count;
      for (int c = 0; c < CLASSES; c++) softmax[n][c] = e[c] / sum;
    }
    const void *inputs[] = {x, dense ? (const void *)probability : (const void *)labels};
    double loss_value, values[N][CLASSES];
    must(plait_training_forward(t, inputs, (void *[]){values}, &loss_value, &error), &error, "");
    assert_true(fabs(loss_value - wanted) < 1e-14);
    for (int n = 0; n < N; n++)
      for (int c = 0; c < CLASSES; c++) assert_true(fabs(values[n][c] - softmax[n][c]) < 1e-15);
    PlaitStepResult result;
    must(plait_training_step(t, inputs, 0.5, &result, &error), &error, "");
    assert_true(fabs(result.loss - wanted) < 1e-14);
    must(plait_training_read(t, "w", after, sizeof after, &error), &error, "");
    for (int c = 0; c < CLASSES; c++)
      for (int i = 0; i < IN; i++) assert_true(fabs(after[c][i] - (w[c][i] - 0.5 * gradient[c][i])) < 1e-14);
    plait_training_destroy(t);
  }
}

// Dropout zeroes in steps, with the same elements on any mesh (every_layout_is_one_rank), and does nothing forward.
static void dropout_is_off_forward(void **state) {
  PlaitGraph *g = plait_graph_create(4, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(6)), y = plait_graph_input(g, "y", SIZE(6));
  PlaitTensor w = plait_graph_parameter_filled(g, "w", SIZE(6), 1);
  PlaitTensor out = plait_graph_dropout(g, "out", plait_graph_multiply(g, "product", x, w), 0.5);
  plait_graph_squared_error(g, out, y);
  plait_graph_output(g, "kept", out);
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, NULL, &t, &error), &error, "");
  plait_graph_destroy(g);
  double ones[24], zeros[24] = {0}, kept[24], value;
  for (int i = 0; i < 24; i++) ones[i] = 1;
  must(plait_training_forward(t, (const void *[]){ones, zeros}, (void *[]){kept}, &value, &error), &error, "");
  assert_memory_equal(kept, ones, sizeof ones);
  assert_true(value == 1);
  PlaitStepResult result;
  must(plait_training_step(t, (const void *[]){ones, zeros}, 0, &result, &error), &error, "");
  double survivors = result.loss * 24 / 4; // each counts 2²
  assert_true(survivors == floor(survivors) && survivors > 3 && survivors < 21);
  plait_training_destroy(t);
}

static void einsums_by_loops(void **state) {
  enum { N = 3, A = 2, B = 4, C = 5 };
  PlaitGraph *g = plait_graph_create(N, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(A, B)), z = plait_graph_input(g, "z", SIZE(B, C)),
              y = plait_graph_input(g, "y", 0, NULL);
  PlaitTensor w = plait_graph_parameter(g, "w", SIZE(A), 1);
  PlaitTensor product = plait_graph_einsum(g, "product", "n a b, n b c -> n c a", x, z);
  PlaitTensor all = plait_graph_einsum(g, "all", "nca, a -> n", product, w);
  plait_graph_squared_error(g, all, y);
  plait_graph_output(g, "product_out", product);
  plait_graph_output(g, "all_out", all);
  plait_graph_output(g, "turned", plait_graph_einsum(g, "turn", "n a b -> n b a", x, -1));
  plait_graph_output(g, "repeated", plait_graph_einsum(g, "repeat", "n a b -> n a c=2 b", x, -1));
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, NULL, &t, &error), &error, "");
  plait_graph_destroy(g);
  double xs[N][A][B], zs[N][B][C], ys[N] = {0}, ws[A] = {3, -2};
  double p[N][C][A], a[N], turned[N][B][A], repeated[N][A][2][B];
  for (int i = 0; i < N * A * B; i++) (&xs[0][0][0])[i] = i * 0.5 - 4;
  for (int i = 0; i < N * B * C; i++) (&zs[0][0][0])[i] = sin(i);
  must(plait_training_write(t, "w", ws, sizeof ws, &error), &error, "");
  must(plait_training_forward(t, (const void *[]){xs, zs, ys}, (void *[]){p, a, turned, repeated}, NULL, &error),
       &error, "");
  for (int n = 0; n < N; n++) {
    double total = 0;
    for (int c = 0; c < C; c++)
      for (int i = 0; i < A; i++) {
        double sum = 0;
        for (int b = 0; b < B; b++) sum += xs[n][i][b] * zs[n][b][c];
        assert_true(fabs(p[n][c][i] - sum) < 1e-13);
        total += sum * ws[i];
      }
    assert_true(fabs(a[n] - total) < 1e-12);
    for (int i = 0; i < A; i++)
      for (int b = 0; b < B; b++)
        assert_true(turned[n][b][i] == xs[n][i][b] && repeated[n][i][0][b] == xs[n][i][b] &&
                    repeated[n][i][1][b] == xs[n][i][b]);
  }
  plait_training_destroy(t);
}

// ---- random einsums with random placements on random meshes

static unsigned draw(unsigned *state, unsigned n) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % n;
}

static int size_of_letter(char letter) { return letter == 'b' ? SAMPLES : letter < 'h' ? 4 : 8; }

// Up to `most` letters of `from` in a random order.
static void draw_letters(unsigned *state, const char *from, int most, char *out) {
  int n = 0, wanted = 1 + (int)draw(state, (unsigned)most);
  for (int i = 0; i < 40 && n < wanted; i++) {
    char letter = from[draw(state, (unsigned)strlen(from))];
    if (!memchr(out, letter, (size_t)n)) out[n++] = letter;
  }
  out[n] = 0;
}

// "b…, … -> b…" of x and of letters; fills the result's.
static void draw_text(unsigned *state, const char *x, const char *w, char *text, size_t size, char *result) {
  char all[32], chosen[8];
  snprintf(all, sizeof all, "%s%s", x + 1, w + (w[0] == 'b'));
  draw_letters(state, all, 4, chosen);
  snprintf(result, 16, "b%s", chosen);
  snprintf(text, size, "%s, %s -> %s", x, w, result);
}

static PlaitTensor random_parameter(PlaitGraph *g, const char *name, const char *letters) {
  int64_t size[8];
  int n = (int)strlen(letters);
  for (int i = 0; i < n; i++) size[i] = size_of_letter(letters[i]);
  return plait_graph_parameter(g, name, n, size, 0.3);
}

static PlaitTensor random_input(PlaitGraph *g, const char *name, const char *letters) {
  int64_t size[8];
  int n = (int)strlen(letters);
  for (int i = 1; i < n; i++) size[i - 1] = size_of_letter(letters[i]);
  return plait_graph_input(g, name, n - 1, size);
}

typedef struct Random { char text[3][64]; double loss[2], norm[2]; } Random;

static Random random_run(unsigned seed, const char *mesh) {
  unsigned state = seed * 7919 + 17;
  char x[16] = "b", w[16], v[16], y[16], z[16], out[16];
  Random r = {.loss = {0}};
  draw_letters(&state, "efgh", 3, x + 1);
  draw_letters(&state, "efghi", 3, w);
  draw_text(&state, x, w, r.text[0], sizeof r.text[0], y);
  draw_text(&state, y, x, r.text[1], sizeof r.text[1], z); // of two tensors with samples
  draw_letters(&state, "efghi", 3, v);
  draw_text(&state, z, v, r.text[2], sizeof r.text[2], out);
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor tx = random_input(g, "x", x), target = random_input(g, "target", out), tw = random_parameter(g, "w", w);
  PlaitTensor ty = plait_graph_activation(g, "silu", plait_graph_einsum(g, "one", r.text[0], tx, tw), PLAIT_SILU);
  plait_graph_layer(g, 1);
  PlaitTensor tv = random_parameter(g, "v", v), tz = plait_graph_einsum(g, "two", r.text[1], ty, tx);
  plait_graph_squared_error(g, plait_graph_einsum(g, "three", r.text[2], tz, tv), target);
  plait_graph_shard(g, tw, (int)draw(&state, (unsigned)strlen(w)), "u");
  plait_graph_shard(g, tv, (int)draw(&state, (unsigned)strlen(v)), "v");
  if (draw(&state, 2)) plait_graph_shard(g, ty, (int)draw(&state, (unsigned)strlen(y)), "v");
  if (draw(&state, 2)) plait_graph_shard(g, tz, (int)draw(&state, (unsigned)strlen(z)), "u");
  PlaitTraining *t;
  PlaitError error = {0};
  if (plait_training_create(g, &(PlaitTrainingOptions){.mesh = mesh}, &t, &error))
    fail_msg("%s; %s; %s on %s: %s", r.text[0], r.text[1], r.text[2], mesh, error.message);
  plait_graph_destroy(g);
  static double xs[SAMPLES * 512], ys[SAMPLES * 4096];
  for (int i = 0; i < SAMPLES * 512; i++) xs[i] = sin(i * 0.7);
  for (int i = 0; i < SAMPLES * 4096; i++) ys[i] = cos(i * 0.3);
  for (int step = 0; step < 2; step++) {
    PlaitStepResult result;
    must(plait_training_step(t, (const void *[]){xs, ys}, 1e-3, &result, &error), &error, mesh);
    r.loss[step] = result.loss, r.norm[step] = result.gradient_norm;
  }
  plait_training_destroy(t);
  return r;
}

static void einsums_under_any_placement(void **state) {
  static const char *const meshes[] = {"u=2 v=2",  "dp=2 v=2", "u=4",      "v=4",
                                       "pp=2 u=2", "dp=2 u=2", "pp=2 v=2", "u=2 dp=2"};
  for (unsigned seed = 0; seed < 64; seed++) {
    const char *mesh = meshes[seed % 8];
    Random one = random_run(seed, "dp=1"), r = random_run(seed, mesh);
    for (int k = 0; k < 2; k++)
      if (!(fabs(r.loss[k] - one.loss[k]) <= 1e-10 * fmax(1, one.loss[k]) &&
            fabs(r.norm[k] - one.norm[k]) <= 1e-10 * fmax(1, one.norm[k])))
        fail_msg("%s; %s; %s on %s: loss %.15g, norm %.15g; one rank: %.15g, %.15g", r.text[0], r.text[1], r.text[2],
                 mesh, r.loss[k], r.norm[k], one.loss[k], one.norm[k]);
  }
}

// Position p turns the pair (x[i], x[i + d / 2]) by p · theta^(-2 i / d).
static void rope_by_formula(void **state) {
  enum { N = 2, P = 3, W = 4 };
  PlaitGraph *g = plait_graph_create(N, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(P, W)), w = plait_graph_parameter_filled(g, "w", SIZE(W), 1);
  PlaitTensor y = plait_graph_rope(g, "turned", plait_graph_multiply(g, "m", x, w), -1, 100);
  plait_graph_squared_error(g, y, x);
  plait_graph_output(g, "y", y);
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, &(PlaitTrainingOptions){.mesh = "dp=2"}, &t, &error), &error, "");
  plait_graph_destroy(g);
  double xs[N][P][W], ys[N][P][W];
  for (int i = 0; i < N * P * W; i++) (&xs[0][0][0])[i] = i + 1;
  must(plait_training_forward(t, (const void *[]){xs}, (void *[]){ys}, NULL, &error), &error, "");
  for (int n = 0; n < N; n++)
    for (int p = 0; p < P; p++)
      for (int i = 0; i < W / 2; i++) {
        double angle = p * pow(100, -2. * i / W), c = cos(angle), s = sin(angle), *v = xs[n][p];
        assert_true(fabs(ys[n][p][i] - (v[i] * c - v[i + W / 2] * s)) < 1e-13);
        assert_true(fabs(ys[n][p][i + W / 2] - (v[i + W / 2] * c + v[i] * s)) < 1e-13);
      }
  plait_training_destroy(t);
}

// A parameter of two dims after a product is not a bias of the product.
static void a_parameter_is_added_to_the_last_dims(void **state) {
  enum { N = 2, A = 3, B = 2 };
  PlaitGraph *g = plait_graph_create(N, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(A, B)), w = plait_graph_parameter_filled(g, "w", SIZE(B, B), 1);
  PlaitTensor shift = plait_graph_parameter(g, "shift", SIZE(A, B), 0);
  PlaitTensor y = plait_graph_add(g, "y", plait_graph_linear(g, "product", x, w, -1), shift);
  plait_graph_squared_error(g, y, x);
  plait_graph_output(g, "y_out", y);
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, NULL, &t, &error), &error, "");
  plait_graph_destroy(g);
  double xs[N][A][B], shifts[A][B], ys[N][A][B], after[A][B];
  for (int i = 0; i < N * A * B; i++) (&xs[0][0][0])[i] = i;
  for (int i = 0; i < A * B; i++) (&shifts[0][0])[i] = 100 * i;
  must(plait_training_write(t, "shift", shifts, sizeof shifts, &error), &error, "");
  must(plait_training_forward(t, (const void *[]){xs}, (void *[]){ys}, NULL, &error), &error, "");
  must(plait_training_step(t, (const void *[]){xs}, 3, NULL, &error), &error, "");
  must(plait_training_read(t, "shift", after, sizeof after, &error), &error, "");
  for (int a = 0; a < A; a++)
    for (int b = 0; b < B; b++) {
      double gradient = 0;
      for (int n = 0; n < N; n++) {
        assert_true(ys[n][a][b] == xs[n][a][0] + xs[n][a][1] + shifts[a][b]);
        gradient += 2 * (ys[n][a][b] - xs[n][a][b]) / (N * A * B);
      }
      assert_true(fabs(after[a][b] - (shifts[a][b] - 3 * gradient)) < 1e-11);
    }
  plait_training_destroy(t);
}

// A narrower type is near, and weights that were written are those that forward uses.
static void bf16_is_near(void **state) {
  static const char *const meshes[] = {"dp=1", "pp=2 dp=2"};
  PlaitTrainingOptions wide = {.seed = 5};
  PlaitTraining *t = create(LABELS, 0, &wide);
  Run r;
  memset(&r, 0, sizeof r);
  forward(t, LABELS, &r);
  train(t, LABELS, 0, 1, &r);
  plait_training_destroy(t);
  for (int i = 0; i < 2; i++) {
    PlaitGraph *g = build(PLAIT_BF16, LABELS, 0);
    PlaitError error = {0};
    must(plait_training_create(g, &(PlaitTrainingOptions){.mesh = meshes[i], .seed = 5}, &t, &error), &error,
         meshes[i]);
    plait_graph_destroy(g);
    Data d = data_of(7, LABELS);
    const void *inputs[] = {d.tokens, d.documents, d.labels};
    float y[SAMPLES * S * G * D], z[SAMPLES * S * G * D], logits[SAMPLES * CLASSES], zero[CLASSES * E] = {0};
    double value, after;
    must(plait_training_forward(t, inputs, (void *[]){y, z, logits}, &value, &error), &error, meshes[i]);
    if (!(fabs(value - r.forward) < 0.02 * r.forward)) fail_msg("bf16: %g, fp64: %g", value, r.forward);
    double largest = 0;
    for (int k = 0; k < SAMPLES * CLASSES; k++) largest = fmax(largest, fabs(r.logits[k]));
    for (int k = 0; k < SAMPLES * CLASSES; k++)
      if (!(fabs(logits[k] - r.logits[k]) < 0.02 * largest)) fail_msg("bf16: %g, fp64: %g", logits[k], r.logits[k]);
    d = data_of(0, LABELS);
    PlaitStepResult result;
    must(plait_training_step(t, inputs, 0.05, &result, &error), &error, meshes[i]);
    assert_true(fabs(result.loss - r.loss[0]) < 0.02 * r.loss[0]);
    must(plait_training_write(t, "head", zero, sizeof zero, &error), &error, meshes[i]);
    must(plait_training_forward(t, inputs, NULL, &after, &error), &error, meshes[i]);
    assert_true(fabs(after - log(CLASSES)) < 1e-6);
    plait_training_destroy(t);
  }
}

// ---- what is refused

static void expect(PlaitGraph *g, const char *words) {
  const char *message = plait_graph_error(g);
  if (!message || !strstr(message, words)) fail_msg("\"%s\" does not say \"%s\"", message ? message : "", words);
  plait_graph_destroy(g);
}

static void wrong_graphs_say_why(void **state) {
  PlaitGraph *g;
#define GRAPH g = plait_graph_create(SAMPLES, PLAIT_FP32)
#define X plait_graph_input(g, "x", SIZE(S, E))
#define I plait_graph_integers(g, "i", SIZE(S))
#define W plait_graph_parameter(g, "w", SIZE(VOCAB, E), 1)
#define V plait_graph_parameter(g, "v", SIZE(S), 1)
#define EINSUM(text, a, b, words) GRAPH, plait_graph_einsum(g, "e", text, a, b), expect(g, words)
  GRAPH, plait_graph_scale(g, "s", I, 2), expect(g, "s reads i, which is of integers; allowed: floating-point numbers");
  GRAPH, plait_graph_embedding(g, "e", W, X), expect(g, "e reads x as integers, which it is not");
  GRAPH, plait_graph_embedding(g, "e", X, I), expect(g, "the table of e is an input and no parameter");
  GRAPH, plait_graph_layer_norm(g, "n", X, V, -1, 1e-5), expect(g, "gain of n is (5); allowed: a parameter (8)");
  GRAPH, plait_graph_rms_norm(g, "n", X, V, 1e-5), expect(g, "gain of n is (5)");
  GRAPH, plait_graph_rms_norm(g, "n", X, V, 0), expect(g, "epsilon of n is 0; allowed: above 0");
  GRAPH, plait_graph_softmax(g, "s", W), expect(g, "x of s is (12, 8); allowed: (samples, …, e)");
  GRAPH, plait_graph_dropout(g, "d", X, 1), expect(g, "the dropout of d is 1; allowed: 0 to below 1");
  GRAPH, plait_graph_parameter_filled(g, "p", SIZE(2), NAN), expect(g, "the value of p is not finite");
  GRAPH, plait_graph_rope(g, "r", X, V, 1e4), expect(g, "r reads v as integers, which it is not");
  GRAPH, plait_graph_rope(g, "r", X, plait_graph_integers(g, "p", SIZE(3)), 1e4),
      expect(g, "x and positions of r are (8, 5, 8) and (8, 3); allowed: (samples, s, …, d), d even, and (samples, s)");
  GRAPH, plait_graph_rope(g, "r", plait_graph_input(g, "odd", SIZE(S, 3)), I, 1e4), expect(g, "are (8, 5, 3) and");
  GRAPH, plait_graph_rope(g, "r", X, I, 0), expect(g, "theta of r is 0; allowed: above 0");
  PlaitTensor x = (GRAPH, X);
  plait_graph_attention(g, "a", x, x, x, -1, 1, 0), expect(g, "q, k and v of a are (8, 5, 8), (8, 5, 8) and (8, 5, 8)");
  GRAPH, plait_graph_cross_entropy(g, W, I), expect(g, "logits of the cross entropy are (12, 8)");
  GRAPH, plait_graph_cross_entropy(g, X, plait_graph_integers(g, "l", SIZE(3))),
      expect(g, "labels of the cross entropy are (8, 3); allowed: (8, 5)");
  x = (GRAPH, X), plait_graph_cross_entropy(g, x, plait_graph_scale(g, "t", x, 2)),
  expect(g, "the target of the cross entropy is not an input");
  x = (GRAPH, X), plait_graph_linear_cross_entropy(g, x, V, I), expect(g, "w of linear cross entropy is (5)");
  x = (GRAPH, X), plait_graph_cross_entropy(g, x, I), plait_graph_cross_entropy(g, x, -1), expect(g, "a second loss");
  GRAPH, plait_graph_output(g, "o", W), expect(g, "the output o has no samples");
  GRAPH, plait_graph_output(g, "o", 77), expect(g, "o reads tensor 77, which does not exist");
  x = (GRAPH, X), plait_graph_output(g, "x", x), expect(g, "\"x\" is used twice");
  GRAPH, plait_graph_reduce(g, "r", X, 0, 0), expect(g, "dim 0 of r; allowed: 1 to 2");
  GRAPH, plait_graph_broadcast(g, "b", X, 4, 2), expect(g, "dim 4 of b; allowed: 1 to 3");
  GRAPH, plait_graph_broadcast(g, "b", X, 1, 0), expect(g, "the size of b is 0");
  EINSUM(NULL, X, -1, "is not understood");
  EINSUM("b s e", X, -1, "\"b s e\" is not understood at \"\"");
  EINSUM("b s e -> b S", X, -1, "is not understood at \"S\"");
  EINSUM("b s e, v e -> b s v", X, -1, "has two operands, but one tensor was given");
  EINSUM("b s e -> b s", X, W, "has one operand, but two tensors were given");
  EINSUM("b s -> b", X, -1, "names 2 dims of a, which is (8, 5, 8)");
  EINSUM("b s b -> b s", X, -1, "has b twice in one operand; diagonals are not taken");
  EINSUM("b s e, e v -> b s v", X, W, "has e of size 8 in a and 12 in b");
  EINSUM("b s e -> s e", X, -1, "must have the samples b first in its result; a sum over samples");
  EINSUM("b s e -> s b e", X, -1, "must have the samples b first");
  EINSUM("b s e, v b -> b s v", X, W, "must name the samples b, first in each operand that has them and in no other");
  EINSUM("b s e -> b s e r", X, -1,
         "has r in its result and in no operand; to repeat along it give it a size, as in \"r=16\"");
  EINSUM("b s e -> b s=5 e", X, -1, "gives s a size, but an operand has it");
  EINSUM("b s e=8 -> b s", X, -1, "has a size that is not a number above 0 of a dim that the result repeats");
  EINSUM("b s e -> b s r=0", X, -1, "has a size that is not a number above 0");
  EINSUM("b s i -> b s", I, -1, "e reads i, which is of integers");
}

static void wrong_inputs_say_where(void **state) {
  PlaitTraining *t = create(LINEAR, 0, &(PlaitTrainingOptions){.mesh = "dp=2", .seed = 5});
  PlaitError error = {0};
  Data d = data_of(0, LINEAR);
  d.tokens[2 * S + 1] = VOCAB;
  const void *inputs[] = {d.tokens, d.documents, d.labels};
  assert_int_equal(plait_training_step(t, inputs, 0.1, NULL, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "sample 2 of the input tokens has 12; allowed: 0 to 11, and -1 for none");
  assert_int_equal(plait_training_forward(t, inputs, NULL, NULL, NULL), PLAIT_BAD_INPUT);
  d.tokens[2 * S + 1] = 0, d.labels[0] = -2, error = (PlaitError){0};
  assert_int_equal(plait_training_step(t, inputs, 0.1, NULL, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "sample 0 of the input labels has -2"));
  inputs[2] = NULL, error = (PlaitError){0};
  assert_int_equal(plait_training_step(t, inputs, 0.1, NULL, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "input labels of the step is NULL"));
  inputs[0] = NULL, error = (PlaitError){0};
  assert_int_equal(plait_training_forward(t, inputs, NULL, NULL, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "input tokens of the step is NULL"));
  Run r;
  train(t, LINEAR, 0, 1, &r); // nothing was done, and it continues
  plait_training_destroy(t);
}

// An input that is an output too cannot be left out, although the loss alone computes with it.
static void outputs_of_inputs_need_them(void **state) {
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP32);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(E)), target = plait_graph_input(g, "target", SIZE(E));
  plait_graph_squared_error(g, plait_graph_linear(g, "y", x, matrix(g, "w", SIZE(E, E)), -1), target);
  plait_graph_output(g, "copy_of_target", target);
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, &(PlaitTrainingOptions){.mesh = "dp=2"}, &t, &error), &error, "");
  plait_graph_destroy(g);
  float xs[SAMPLES * E], copy[SAMPLES * E];
  for (int i = 0; i < SAMPLES * E; i++) xs[i] = (float)i;
  assert_int_equal(plait_training_forward(t, (const void *[]){xs, NULL}, (void *[]){copy}, NULL, &error),
                   PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "input target of the step is NULL");
  error = (PlaitError){0};
  must(plait_training_forward(t, (const void *[]){xs, xs}, (void *[]){copy}, NULL, &error), &error, "");
  assert_memory_equal(copy, xs, sizeof xs);
  plait_training_destroy(t);
}

// Nodes that only outputs need are not part of a step, and the loss must depend on every parameter.
static void steps_leave_outputs_out(void **state) {
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP32);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(E)), w = plait_graph_parameter(g, "w", SIZE(E, E), 1);
  PlaitTensor y = plait_graph_linear(g, "y", x, w, -1);
  plait_graph_output(g, "o", plait_graph_softmax(g, "only_output", y));
  plait_graph_squared_error(g, y, x);
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, NULL, &t, &error), &error, "");
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  plait_training_print(t, out);
  fclose(out);
  assert_non_null(strstr(text, "matmul"));
  assert_null(strstr(text, "only_output"));
  free(text);
  plait_training_destroy(t);
  plait_graph_linear(g, "more", x, plait_graph_parameter(g, "v", SIZE(E, E), 1), -1);
  assert_int_equal(plait_training_create(g, NULL, &t, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "the loss does not depend on the parameter v");
  plait_graph_destroy(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_is_one_rank), cmocka_unit_test(attention_is_what_it_says),
      cmocka_unit_test(cross_entropy_by_formula), cmocka_unit_test(dropout_is_off_forward),
      cmocka_unit_test(einsums_by_loops),         cmocka_unit_test(bf16_is_near),
      cmocka_unit_test(wrong_graphs_say_why),     cmocka_unit_test(wrong_inputs_say_where),
      cmocka_unit_test(steps_leave_outputs_out),
      cmocka_unit_test(rope_by_formula),
      cmocka_unit_test(einsums_under_any_placement),
      cmocka_unit_test(a_parameter_is_added_to_the_last_dims),
      cmocka_unit_test(outputs_of_inputs_need_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
