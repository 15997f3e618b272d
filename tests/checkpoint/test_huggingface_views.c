// tier 1; rooms model
// Views alone: lines of text and Variables in, the layout of tensors out; loads and saves through them, both ways.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface_views.h"
#include <stdlib.h>
#include <string.h>

typedef struct Parameter {
  const char *name;
  int rank;
  int64_t size[4];
  DimName dim[4];
} Parameter;

static Graph *graph_of(const Parameter *p, int count, int layers) {
  Graph *g = graph_create();
  g->layers = layers;
  for (int i = 0; i < count; i++)
    graph_variable(g, p[i].name, VARIABLE_PARAMETER, DTYPE_F32, shape_of(p[i].rank, p[i].size, p[i].dim), (Init){0});
  return g;
}
#define GRAPH(layers, ...)                                                                                             \
  graph_of((const Parameter[]){__VA_ARGS__}, sizeof(const Parameter[]){__VA_ARGS__} / sizeof(Parameter), layers)

static HuggingfaceViews views_of(const char *text, Graph *g) {
  HuggingfaceViews v;
  Error error = {0};
  if (huggingface_views_create(&v, text, g, &error)) fail_msg("%s", error.message);
  return v;
}

// The number that stands for element i of a Variable.
static double value_of(int variable, int64_t i) { return 1000.0 * (variable + 1) + (double)i; }

// Tensor t as a folder has it, made of its pieces.
static double *assemble(const HuggingfaceViews *v, int t, int64_t *elements) {
  const HuggingfaceTensor *tensor = &v->tensor.data[t];
  *elements = 1;
  for (int d = 0; d < tensor->rank; d++) *elements *= tensor->dims[d];
  double *out = xcalloc((size_t)*elements, sizeof *out);
  for (int i = tensor->piece; i < tensor->piece + tensor->pieces; i++) {
    const HuggingfacePiece *p = &v->piece.data[i];
    const Shape *s = &v->graph->variable.data[p->variable].shape;
    Box whole = {.rank = s->rank};
    int64_t plain[BOX_MAX_RANK], n = shape_elements(s);
    assert_int_equal(p->tensor, t);
    memcpy(whole.local, s->size, sizeof *whole.local * (size_t)s->rank);
    box_strides(&whole, plain);
    double *values = xcalloc((size_t)n, sizeof *values);
    for (int64_t k = 0; k < n; k++) values[k] = value_of(p->variable, k);
    box_copy(&p->box, out + p->first, &p->box, p->stride, DTYPE_F64, values, &whole, plain, DTYPE_F64);
    free(values);
  }
  return out;
}

// From the tensors back: every Variable has its numbers, all of them once.
static void assert_comes_back(const HuggingfaceViews *v) {
  double **tensor = xcalloc((size_t)v->tensor.count, sizeof *tensor);
  int64_t elements, in_tensors = 0, in_variables = 0;
  for (int t = 0; t < v->tensor.count; t++, in_tensors += elements) {
    tensor[t] = assemble(v, t, &elements);
    for (int64_t i = 0; i < elements; i++) assert_true(tensor[t][i] >= 1000); // nothing is left out
  }
  for (int k = 0; k < v->graph->variable.count; k++) {
    const Shape *s = &v->graph->variable.data[k].shape;
    int64_t n = shape_elements(s), plain[BOX_MAX_RANK];
    Box whole = {.rank = s->rank};
    memcpy(whole.local, s->size, sizeof *whole.local * (size_t)s->rank);
    box_strides(&whole, plain);
    double *values = xcalloc((size_t)n, sizeof *values);
    for (int i = v->of_variable.data[k]; i >= 0; i = v->piece.data[i].next) {
      const HuggingfacePiece *p = &v->piece.data[i];
      assert_int_equal(p->variable, k);
      box_copy(&p->box, values, &whole, plain, DTYPE_F64, tensor[p->tensor] + p->first, &p->box, p->stride, DTYPE_F64);
    }
    for (int64_t i = 0; i < n; i++) assert_true(values[i] == value_of(k, i));
    free(values);
    in_variables += n;
  }
  assert_int_equal(in_tensors, in_variables);
  for (int t = 0; t < v->tensor.count; t++) free(tensor[t]);
  free(tensor);
}

static int find(const HuggingfaceViews *v, const char *name) {
  for (int t = 0; t < v->tensor.count; t++)
    if (!strcmp(v->tensor.data[t].name, name)) return t;
  fail_msg("no tensor %s", name);
  return -1;
}

static void assert_dims(const HuggingfaceViews *v, const char *name, const char *expected) {
  char text[200];
  const HuggingfaceTensor *t = &v->tensor.data[find(v, name)];
  assert_string_equal(dims_text(t->rank, t->dims, text), expected);
}

#define EMBED                                                                                                          \
  { DIM_EMBED }
static void test_plain(void **state) {
  HuggingfaceViews v =
      views_of("emb = wte\nblocks.N.w = layer.N.up\nblocks.N.b = layer.N.bias\nscale = gain\nhead.w = head\n",
               GRAPH(2, {"wte", 2, {5, 4}, {DIM_VOCAB, DIM_EMBED}}, {"layer.0.up", 2, {6, 4}, {DIM_FFN, DIM_EMBED}},
                     {"layer.0.bias", 1, {6}, {DIM_FFN}}, {"layer.1.up", 2, {6, 4}, {DIM_FFN, DIM_EMBED}},
                     {"layer.1.bias", 1, {6}, {DIM_FFN}}, {"gain", 1, {4}, EMBED}));
  static const char *const order[] = {"emb", "blocks.0.w", "blocks.0.b", "blocks.1.w", "blocks.1.b", "scale"};
  assert_int_equal(v.tensor.count, 6); // tied: no head
  for (int i = 0; i < 6; i++) assert_string_equal(v.tensor.data[i].name, order[i]);
  assert_string_equal(v.head, "head.w");
  assert_dims(&v, "blocks.1.w", "[6, 4]");
  assert_comes_back(&v);
  huggingface_views_free(&v);
  huggingface_views_free(&v);
}

// Grouped queries: q is larger than k and v. Heads are one dim over there; fused, and the other way round.
static void test_fused(void **state) {
  Graph *g = GRAPH(1, {"q", 4, {2, 3, 4, 5}, {DIM_KV_HEADS, DIM_GROUP, DIM_HEAD_DIM, DIM_EMBED}},
                   {"k", 3, {2, 4, 5}, {DIM_KV_HEADS, DIM_HEAD_DIM, DIM_EMBED}},
                   {"v", 3, {2, 4, 5}, {DIM_KV_HEADS, DIM_HEAD_DIM, DIM_EMBED}},
                   {"qb", 3, {2, 3, 4}, {DIM_KV_HEADS, DIM_GROUP, DIM_HEAD_DIM}},
                   {"kb", 2, {2, 4}, {DIM_KV_HEADS, DIM_HEAD_DIM}}, {"vb", 2, {2, 4}, {DIM_KV_HEADS, DIM_HEAD_DIM}},
                   {"o", 4, {5, 2, 3, 4}, {DIM_EMBED, DIM_KV_HEADS, DIM_GROUP, DIM_HEAD_DIM}});
  HuggingfaceViews v = views_of("qkv.weight^T = q | k | v\nqkv.bias = qb | kb | vb\nout.weight = o\n", g);
  assert_dims(&v, "qkv.weight", "[5, 40]");
  assert_dims(&v, "qkv.bias", "[40]");
  assert_dims(&v, "out.weight", "[5, 24]");
  int64_t n;
  double *w = assemble(&v, find(&v, "qkv.weight"), &n), *b = assemble(&v, find(&v, "qkv.bias"), &n);
  for (int e = 0; e < 5; e++)
    for (int row = 0; row < 40; row++) {
      int variable = row < 24 ? 0 : row < 32 ? 1 : 2, within = row - (row < 24 ? 0 : row < 32 ? 24 : 32);
      assert_true(w[e * 40 + row] == value_of(variable, within * 5 + e));
      assert_true(b[row] == value_of(3 + variable, within));
    }
  free(w);
  free(b);
  assert_comes_back(&v);
  huggingface_views_free(&v);
}

// Experts: many tensors are one Variable; or all of them are one tensor, whose second dim has two Variables.
static void test_stacked(void **state) {
  HuggingfaceViews v =
      views_of("moe.N.experts.E.w1 = layer.N.up\nmoe.N.experts.E.w2^T = layer.N.down\n",
               GRAPH(2, {"layer.0.up", 3, {3, 6, 4}, {DIM_EXPERT, DIM_FFN, DIM_EMBED}},
                     {"layer.0.down", 3, {3, 4, 6}, {DIM_EXPERT, DIM_EMBED, DIM_FFN}},
                     {"layer.1.up", 3, {3, 6, 4}, {DIM_EXPERT, DIM_FFN, DIM_EMBED}}, // layer 0 has both, 1 one
                     ));
  assert_int_equal(v.tensor.count, 9);
  assert_dims(&v, "moe.1.experts.2.w1", "[6, 4]");
  int64_t n;
  double *w = assemble(&v, find(&v, "moe.0.experts.2.w2"), &n);
  for (int f = 0; f < 6; f++)
    for (int e = 0; e < 4; e++) assert_true(w[f * 4 + e] == value_of(1, 2 * 24 + e * 6 + f));
  free(w);
  assert_comes_back(&v);

  // A box that a rank wants reaches over several of the tensors.
  float part[2][2][4];
  CheckpointTensor wanted = {.name = "layer.1.up",
                             .dtype = DTYPE_F32,
                             .rank = 3,
                             .global = {3, 6, 4},
                             .offset = {1, 3},
                             .local = {2, 2, 4},
                             .data = part};
  Box box = checkpoint_box(&wanted), both;
  for (int i = v.of_variable.data[2], k = 0; i >= 0; i = v.piece.data[i].next, k++) {
    const HuggingfacePiece *p = &v.piece.data[i];
    assert_int_equal(box_intersect(&box, &p->box, &both), k > 0);
    if (!k) continue;
    double *tensor = assemble(&v, p->tensor, &n);
    checkpoint_tensor_put(&wanted, &both, tensor + p->first, &p->box, p->stride, DTYPE_F64);
    free(tensor);
  }
  for (int x = 0; x < 2; x++)
    for (int f = 0; f < 2; f++)
      for (int e = 0; e < 4; e++) assert_true(part[x][f][e] == (float)value_of(2, (1 + x) * 24 + (3 + f) * 4 + e));
  huggingface_views_free(&v);

  v = views_of("gate_up_proj^T = gate |1 up\nexperts.E.both = a |1 b\n",
               GRAPH(1, {"gate", 3, {3, 6, 4}, {DIM_EXPERT, DIM_FFN, DIM_EMBED}},
                     {"up", 3, {3, 5, 4}, {DIM_EXPERT, DIM_FFN, DIM_EMBED}},
                     {"a", 3, {2, 3, 2}, {DIM_EXPERT, DIM_FFN, DIM_EMBED}},
                     {"b", 3, {2, 3, 1}, {DIM_EXPERT, DIM_FFN, DIM_EMBED}}));
  assert_dims(&v, "gate_up_proj", "[3, 4, 11]");
  assert_dims(&v, "experts.1.both", "[3, 3]");
  w = assemble(&v, 0, &n);
  for (int x = 0; x < 3; x++)
    for (int e = 0; e < 4; e++)
      for (int f = 0; f < 11; f++)
        assert_true(w[(x * 4 + e) * 11 + f] ==
                    (f < 6 ? value_of(0, (x * 6 + f) * 4 + e) : value_of(1, (x * 5 + f - 6) * 4 + e)));
  free(w);
  assert_comes_back(&v);
  huggingface_views_free(&v);
}

static void test_wrong_lines(void **state) {
  static const struct {
    const char *text, *says;
  } wrong[] = {
      {"a\n", "view \"a\": no \"=\" after the tensor"},
      {"a =\n", "a Variable is missing"},
      {"\n", "no tensor"},
      {"a = x |\n", "a Variable is missing"},
      {"a = x y\n", "separated by |"},
      {"a = x |12 y\n", "separated by |"},
      {"a = x | y |1 z\n", "in one dim"},
      {"a.N = x\n", "N stands on one side only"},
      {"a = layer.N.x\n", "N stands on one side only"},
      {"a = x | nowhere\nb = y\nc = z\n", "some of the Variables only"},
      {"a = x\nb = x\nc = y\nd = z\n", "view \"b = x\": another line has the Variable"},
      {"a = x | x\n", "another line has the Variable"},
      {"a = x\nb = z\n", "no view has the Variable y"},
      {"a = x | z\nb = y\n", "another dim"},
      {"a = x | y\nb = z\n", "number of dims"},
      {"a^T = y\nb = x\nc = z\n", "^T needs two dims"},
      {"a = x |2 z\nb = y\n", "no such dim"},
      {"a.E = y\nb = x\nc = z\n", "E needs"},
      {"a.E = x | z\nb = y\n", "E needs"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    HuggingfaceViews v;
    Error error = {0};
    Graph *g =
        GRAPH(1, {"x", 2, {3, 4}, {DIM_FFN, DIM_EMBED}}, {"y", 1, {4}, EMBED}, {"z", 2, {5, 3}, {DIM_FFN, DIM_EMBED}});
    int code = huggingface_views_create(&v, wrong[i].text, g, &error);
    if (code != PLAIT_FAILED || !strstr(error.message, wrong[i].says))
      fail_msg("%s: %d: %s (expected: %s)", wrong[i].text, code, error.message, wrong[i].says);
    assert_null(v.graph);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_fused),
                                     cmocka_unit_test(test_stacked), cmocka_unit_test(test_wrong_lines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
