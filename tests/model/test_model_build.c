// The graphs of all families: parameters, roles, layers, dropout; logits and loss as transformers computes them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "checkpoint/huggingface_folder.h"
#include "compile/verify.h"
#include "evaluate.h"
#include "golden.h"
#include "model/model.h"

static char *golden(const char *name) { return xformat("%s/model/golden/%s", TESTS_FOLDER, name); }

static void load(const char *name, ModelConfig *c) {
  char *path = golden(name);
  Error error = {0};
  if (model_config_load(c, path, &error)) fail_msg("%s", error.message);
  free(path);
}

enum { REQUESTS = 8, PAGE = 4, PAGES = SEQ / PAGE }; // of a cache

static Graph *build(const ModelConfig *c, int mode, ModelOutputs *outputs) {
  Graph *g = graph_create();
  Error error = {0};
  ModelOptions options = {.batch = BATCH,
                          .length = {[DIM_SEQ] = SEQ,
                                     [DIM_REQUEST] = REQUESTS,
                                     [DIM_PAGE] = PAGES,
                                     [DIM_CACHE] = REQUESTS * PAGES * PAGE,
                                     [DIM_LOGITS] = 1},
                          .page = PAGE,
                          .mode = mode};
  if (model_build(g, c, &options, outputs, &error))
    fail_msg("%s", error.message);
  if (graph_verify(g, "model", &error)) fail_msg("%s", error.message);
  return g;
}

static int is(const ModelConfig *c, const char *family) { return !strcmp(model_family_name(c->family), family); }

static int count_op(const Graph *g, Op op) {
  int n = 0;
  for (int i = 0; i < g->node.count; i++) n += g->node.data[i].op == op;
  return n;
}

// Is the tensor the sum of losses, or that of one layer's router?
static int is_loss(const Graph *g, const ModelOutputs *outputs, int tensor) {
  for (int i = 0; i < g->further.count; i++)
    if (g->further.data[i].tensor == tensor) return 1;
  return outputs->loss_sum == tensor;
}

static void test_parameters(void **state) {
  for (int i = 0; i < CASES; i++) {
    ModelConfig c;
    ModelOutputs outputs;
    load(cases[i], &c);
    Graph *g = build(&c, MODEL_TRAIN, &outputs);
    HuggingfaceViews views;
    int64_t total = 0;
    int seeds = 0;
    huggingface_views_of(&views, &c, 0);
    for (int k = 0; k < g->variable.count; k++) {
      const Variable *v = &g->variable.data[k];
      if (v->kind != VARIABLE_PARAMETER) {
        int of_routers = v->known == KNOWN_BALANCE_LOSS_SEED || v->known == KNOWN_Z_LOSS_SEED;
        assert_true(v->known == KNOWN_GRADIENT_SEED || (c.experts && of_routers));
        assert_true(v->dtype == DTYPE_F64 && v->shape.rank == 0 && v->kind == VARIABLE_METRIC);
        seeds++; // of one name each
        continue;
      }
      int there = graph_find_variable(views.graph, v->name);
      assert_true(there >= 0 && views.of_variable.data[there] >= 0);
      const HuggingfacePiece *piece = &views.piece.data[views.of_variable.data[there]];
      int matrix = views.tensor.data[piece->tensor].rank > 1; // biases and gains are not, whatever their rank
      int64_t elements = 0;
      for (int at = views.of_variable.data[there]; at >= 0; at = views.piece.data[at].next)
        elements += box_elements(&views.piece.data[at].box);
      assert_int_equal(shape_elements(&v->shape), elements);
      assert_int_equal(v->weight_decay, matrix);
      assert_int_equal(v->narrow_copy, matrix);
      assert_true(v->learning_rate == 1);
      int gain = strstr(v->name, "norm.weight") != NULL;
      assert_int_equal(v->init.kind, matrix ? INIT_NORMAL : gain ? INIT_CONSTANT : INIT_ZERO);
      if (gain) assert_true(v->init.value == 1);
      int smaller = is(&c, "gpt2") && (strstr(v->name, "output.weight") || strstr(v->name, "down.weight"));
      if (matrix) assert_true(fabs(v->init.value - 0.02 / (smaller ? 2 : 1)) < 1e-15); // sqrt(2 · 2 layers)
      total += shape_elements(&v->shape);
    }
    assert_int_equal(total, model_config_parameters(&c));
    assert_int_equal(seeds, c.experts ? 3 : 1);
    huggingface_views_free(&views);
    graph_destroy(g);
    model_config_free(&c);
  }
}

static void test_structure(void **state) {
  for (int i = 0; i < CASES; i++) {
    ModelConfig c;
    ModelOutputs outputs;
    load(cases[i], &c);
    c.attention_dropout = 0.1;
    int learned = is(&c, "gpt2") || is(&c, "gpt_neo");
    if (learned) c.residual_dropout = c.embedding_dropout = 0.2;
    for (int mode = MODEL_TRAIN; mode <= MODEL_GENERATE; mode++) {
      Graph *g = build(&c, mode, &outputs);
      int layers = (int)c.layers, moe = 0;
      for (int l = 0; l < layers; l++) moe += model_layer_has_experts(&c, l);
      assert_int_equal(g->layers, layers);
      assert_int_equal(count_op(g, OP_DROPOUT), mode == MODEL_TRAIN && learned ? 5 : 0);
      assert_int_equal(count_op(g, mode == MODEL_GENERATE ? OP_CACHE_ATTENTION : OP_ATTENTION), layers);
      assert_int_equal(count_op(g, OP_CACHE_WRITE), mode == MODEL_GENERATE ? 2 * layers : 0);
      assert_int_equal(count_op(g, OP_ROPE), learned ? 0 : 2 * layers);
      assert_int_equal(count_op(g, OP_RMS_NORM), learned ? 0 : (c.head_norm ? 4 : 2) * layers + 1);
      assert_int_equal(count_op(g, OP_ROUTE), moe);
      assert_int_equal(count_op(g, OP_GROUPED), 3 * moe);
      int routers = mode == MODEL_TRAIN ? moe : 0;
      assert_int_equal(count_op(g, OP_ROUTER_BALANCE), routers);
      assert_int_equal(count_op(g, OP_ROUTER_Z), routers);
      assert_int_equal(count_op(g, OP_ROUTER_LOAD), routers);
      assert_true(g->further.count == 2 * routers && g->router.count == routers);
      assert_int_equal(count_op(g, OP_EINSUM), c.shared_ffn ? moe : 0);
      assert_int_equal(count_op(g, OP_LINEAR_CROSS_ENTROPY), mode != MODEL_GENERATE);
      assert_int_equal(g->known[KNOWN_GRADIENT_SEED] >= 0, mode == MODEL_TRAIN);
      assert_int_equal(g->input.count, mode == MODEL_GENERATE ? 6 : 4);
      int layer = -1;
      for (int k = 0; k < g->node.count; k++) {
        const Node *n = &g->node.data[k];
        assert_true(n->region == REGION_MICRO && n->phase == PHASE_FORWARD && n->layer >= layer &&
                    n->layer <= layer + 1);
        layer = n->layer;
        if (n->op == OP_ATTENTION)
          assert_true(node_attr(n, AttentionAttr)->dropout == (mode == MODEL_TRAIN ? 0.1 : 0) &&
                      node_attr(n, AttentionAttr)->causal);
        // What blocks add to, and what they add, is the residual stream; what is inside of them is not.
        int stream = n->layer < layers && (n->op == OP_ADD || n->op == OP_DROPOUT || n->op == OP_EMBEDDING ||
                                           n->op == OP_COMBINE || strstr(n->name, ".output") ||
                                           strstr(n->name, ".shared.scaled") || strstr(n->name, ".ffn.down"));
        if (n->op == OP_GROUPED) assert_int_equal(graph_tensor(g, n->output[0])->choices, c.experts_per_token);
        int role = stream ? ROLE_RESIDUAL : is_loss(g, &outputs, n->output[0]) ? ROLE_SCALAR : ROLE_INTERIOR;
        assert_int_equal(graph_tensor(g, n->output[0])->role, role);
        for (int other = 0; other < k; other++)
          assert_string_not_equal(n->name, g->node.data[other].name); // masks differ by name
      }
      assert_int_equal(layer, layers);
      if (mode == MODEL_GENERATE) {
        const Shape *s = &graph_tensor(g, outputs.logits)->shape;
        assert_true(outputs.loss_sum == -1 && s->rank == 3 && s->size[0] == BATCH && s->size[2] == c.vocab &&
                    s->dim[2] == DIM_VOCAB);
      } else {
        assert_true(outputs.logits == -1 && graph_tensor(g, outputs.loss_sum)->shape.rank == 0);
      }
      graph_destroy(g);
    }
    model_config_free(&c);
  }
}

static void test_too_long(void **state) {
  ModelConfig c;
  ModelOutputs outputs;
  load("gpt2-tied", &c);
  Graph *g = graph_create();
  Error error = {0};
  assert_int_equal(model_build(g, &c, &(ModelOptions){.batch = 1, .length = {[DIM_SEQ] = 33}}, &outputs, &error),
                   PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "n_positions is 32, but data.seq_len is 33; take at most 32"));
  model_config_free(&c);
  error = (Error){0};
  load("qwen3-untied", &c); // whose window is as long as its golden sequences
  assert_int_equal(model_build(g, &c, &(ModelOptions){.batch = 1, .length = {[DIM_SEQ] = 25}}, &outputs, &error),
                   PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "sliding_window is 24, but data.seq_len is 25; take at most 24"));
  assert_int_equal(g->node.count, 0);
  graph_destroy(g);
  model_config_free(&c);
}

// --- against transformers -------------------------------------------------------------------------------------------

static void fill(Evaluation *e, const char *folder, const ModelConfig *c, const Safetensors *data) {
  CheckpointTensor wanted[64];
  int count = 0;
  for (int i = 0; i < e->graph->variable.count; i++) {
    const Variable *v = &e->graph->variable.data[i];
    if (v->kind != VARIABLE_PARAMETER) continue;
    assert_true(count < 64);
    CheckpointTensor *w = &wanted[count++];
    *w = (CheckpointTensor){.name = v->name, .dtype = v->dtype, .rank = v->shape.rank, .data = e->variable[i]};
    for (int d = 0; d < w->rank; d++) w->global[d] = w->local[d] = v->shape.size[d];
  }
  Error error = {0};
  if (huggingface_load(folder, c, wanted, count, &error)) fail_msg("%s", error.message);
  static const struct { KnownInput known; const char *name;
  } inputs[] = {{INPUT_TOKENS, "tokens"},
                {INPUT_POSITIONS, "positions"},
                {INPUT_DOCUMENTS, "documents"},
                {INPUT_TARGETS, "targets"}};
  for (int i = 0; i < 4; i++) {
    int32_t *to = evaluation_input(e, inputs[i].known);
    const SafetensorsEntry *entry = safetensors_find(data, inputs[i].name);
    assert_true(entry && entry->dtype == DTYPE_I32 && entry->dims[1] == BATCH && entry->dims[2] == SEQ);
    if (to) memcpy(to, entry->data, sizeof(int32_t) * BATCH * SEQ); // step 0
  }
}

// Documents are requests; their pages follow each other.
static void fill_requests(Evaluation *e, const Safetensors *data) {
  const int32_t *positions = evaluation_input(e, INPUT_POSITIONS);
  const int32_t *documents = (const void *)safetensors_find(data, "documents")->data;
  int32_t *rows = evaluation_input(e, INPUT_CACHE_ROWS), *requests = evaluation_input(e, INPUT_REQUESTS),
          *pages = evaluation_input(e, INPUT_PAGES);
  memcpy(requests, documents, sizeof(int32_t) * BATCH * SEQ);
  for (int i = 0; i < BATCH * SEQ; i++) rows[i] = requests[i] * PAGES * PAGE + positions[i];
  for (int i = 0; i < BATCH * REQUESTS * PAGES; i++) pages[i] = i % (REQUESTS * PAGES);
}

static void compare_logits(const char *folder, const ModelConfig *c, const Safetensors *data) {
  static const int positions[] = {0, 1, 7, 15, 23};
  ModelOutputs outputs;
  Graph *g = build(c, MODEL_GENERATE, &outputs);
  Evaluation e;
  evaluation_begin(&e, g);
  fill(&e, folder, c, data);
  fill_requests(&e, data);
  const SafetensorsEntry *logits = safetensors_find(data, "logits");
  double worst = 0;
  for (int p = 0; p < 5; p++) {
    int32_t *index = evaluation_input(&e, INPUT_INDEX);
    for (int b = 0; b < BATCH; b++) index[b] = (positions[p] + 5 * b) % SEQ;
    evaluation_run(&e);
    const float *ours = e.tensor[outputs.logits];
    for (int b = 0; b < BATCH; b++)
      for (int64_t v = 0; v < c->vocab; v++)
        worst = fmax(worst, fabs(ours[b * c->vocab + v] -
                                 dtype_load(logits->data, DTYPE_F32, (b * SEQ + index[b]) * c->vocab + v)));
  }
  if (!(worst < 1e-4)) fail_msg("%s: logits differ by %g", folder, worst);
  print_message("%s: logits differ by %.2g\n", folder, worst);
  evaluation_end(&e);
  graph_destroy(g);
}

static void compare_loss(const char *folder, const ModelConfig *c, const Safetensors *data, int mode) {
  ModelOutputs outputs;
  Graph *g = build(c, mode, &outputs);
  Evaluation e;
  evaluation_begin(&e, g);
  fill(&e, folder, c, data);
  if (mode == MODEL_TRAIN) *(double *)evaluation_variable(&e, KNOWN_GRADIENT_SEED) = 1;
  evaluation_run(&e);
  const int32_t *targets = evaluation_input(&e, INPUT_TARGETS);
  int count = 0;
  for (int i = 0; i < BATCH * SEQ; i++) count += targets[i] >= 0;
  double loss = dtype_load(e.tensor[outputs.loss_sum], graph_tensor(g, outputs.loss_sum)->dtype, 0) / count;
  double expected = dtype_load(safetensors_find(data, "loss")->data, DTYPE_F64, 0);
  if (!(fabs(loss - expected) < 1e-5 * expected)) fail_msg("%s: loss %.9g, expected %.9g", folder, loss, expected);
  evaluation_end(&e);
  graph_destroy(g);
}

static void test_golden(void **state) {
  for (int i = 0; i < CASES; i++) {
    ModelConfig c;
    Safetensors data;
    Error error = {0};
    load(cases[i], &c);
    char *folder = golden(cases[i]), *file = xformat("%s/golden.safetensors", folder);
    if (safetensors_open(&data, file, &error)) fail_msg("%s", error.message);
    compare_logits(folder, &c, &data);
    compare_loss(folder, &c, &data, MODEL_EVALUATE);
    compare_loss(folder, &c, &data, MODEL_TRAIN);
    safetensors_close(&data);
    model_config_free(&c);
    free(folder);
    free(file);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parameters),
      cmocka_unit_test(test_structure),
      cmocka_unit_test(test_too_long),
      cmocka_unit_test(test_golden),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
