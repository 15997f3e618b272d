// Accumulators of real Programs: each rank's list is gone along. Nothing reads an accumulator that nobody has written
// in its step, and BEGIN sets those to zero alone that the first microbatch cannot store into.
#include "op/op.h"
#include "program/cost.h"
#include "program/rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("gpt.json", // its head is the embedding
             "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 32, \"n_head\": 4, \"n_positions\": 16,"
             " \"vocab_size\": 126, \"activation_function\": \"gelu_new\"}");
  write_file("untied.json",
             "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 32, \"n_head\": 4, \"n_positions\": 16,"
             " \"vocab_size\": 126, \"activation_function\": \"gelu_new\", \"tie_word_embeddings\": false}");
  write_experts_and_recipe();
  return 0;
}

static Case compiled(const char *keys) {
  char text[512];
  const char *model = !strncmp(keys, "moe ", 4) ? "moe.json" : !strncmp(keys, "untied ", 7) ? "untied.json" : NULL;
  if (!model) return compiled_by(keys);
  snprintf(text, sizeof text, "model.config=%s %s", path_of(model), strchr(keys, ' ') + 1);
  return compiled_by(text);
}

static const char *const settings[] = {
    "mesh.dp=1",
    "batch.micro=8", // one microbatch: the tied embedding alone has an accumulator
    "mesh.dp=2 parallel.zero=1 precision=bf16 parallel.grad_dtype=bf16",
    "mesh.dp=2 parallel.zero=3 mesh.tp=2 parallel.sequence=true",
    "mesh.dp=3 parallel.zero=2 mesh.pp=2 batch.global=7",
    "mesh.dp=2 parallel.zero=2 parallel.unsplit_tensors=true",
    "mesh.pp=2 parallel.recompute=full",
    "mesh.pp=2 mesh.tp=2 parallel.pipeline=gpipe",
    "mesh.pp=2 parallel.pipeline=interleaved parallel.stages_per_rank=2",
    "mesh.pp=2 parallel.pipeline=zb-h1",
    "mesh.pp=2 parallel.pipeline=zb-v", // the first rank has the embedding and the head
    "mesh.pp=2 parallel.pipeline=2bw optimizer.delay=1",
    "untied mesh.pp=2 parallel.pipeline=2bw optimizer.delay=1",
    "mesh.cp=2 parallel.context=ring",
    "mesh.tp=4 parallel.tensor=2d",
    "mesh.dp=2 optimizer.name=muon",
    "moe mesh.dp=2 parallel.ep=2",
    "moe mesh.dp=2 moe.chunks=4",
};
enum { SETTINGS = sizeof settings / sizeof *settings, STEPS = 4, MOST = 16 };

static int is_accumulator(const Graph *g, int tensor) {
  const Tensor *t = tensor < 0 ? NULL : graph_tensor(g, tensor);
  return t && t->variable >= 0 && g->variable.data[t->variable].kind == VARIABLE_GRADIENT;
}

// A run of some steps: what has been written of each step.
typedef struct Run {
  const Program *p;
  const char *keys;
  char *written;
  int stored;
} Run;

static char *written(const Run *r, int step, int tensor) {
  assert_true(step < MOST);
  return &r->written[step * r->p->graph->variable.count + graph_tensor(r->p->graph, tensor)->variable];
}

static void run_body(Run *r, const Body *body, int from, int to, int step, int microbatch) {
  const Graph *g = r->p->graph;
  for (int i = from; i < to; i++) {
    const Node *n = &g->node.data[body->instruction[i].node];
    for (int k = 0; k < n->ninput; k++) {
      if (!is_accumulator(g, n->input[k]) || node_is(n, ROLE_FILL)) continue;
      int lacks = n->region == REGION_MICRO && program_call_lacks(r->p, n, k, microbatch);
      if (lacks == !*written(r, step, n->input[k])) r->stored += lacks;
      else
        fail_msg("%s: %s, microbatch %d, %s an accumulator that %s", r->keys, n->name, microbatch,
                 lacks ? "stores into" : "reads", lacks ? "has something" : "is empty");
    }
    for (int k = 0; k < n->noutput; k++)
      if (is_accumulator(g, n->output[k])) *written(r, step, n->output[k]) = 1;
  }
}

static void run_action(Run *r, const Action *a, int step) {
  const Body *body = action_runs_body(a)                               ? &r->p->micro[a->stage][action_phase(a)]
                     : a->kind == ACTION_BEGIN                         ? &r->p->begin
                     : a->kind == ACTION_END || a->kind == ACTION_SUMS ? &r->p->end
                                                                       : NULL;
  if (body) run_body(r, body, a->from, a->to ? a->to : body->count, step, a->microbatch);
}

static void run_part(Run *r, ListPart part, int step) {
  for (int i = 0; i < r->p->actions.count; i++)
    if (r->p->actions.data[i].part == part) run_action(r, &r->p->actions.data[i], step + r->p->actions.data[i].step);
}

static void nothing_reads_an_empty_accumulator(void **state) {
  for (int i = 0; i < SETTINGS; i++) {
    Case c = compiled(settings[i]);
    for (int pp = 0; pp < job_pipeline_ranks(c.job); pp++) {
      Run r = {.p = job_train(c.job)->program[pp], .keys = settings[i]};
      const Graph *g = r.p->graph;
      r.written = xcalloc((size_t)g->variable.count * MOST, 1);
      run_part(&r, LIST_PROLOGUE, 0);
      for (int step = 0; step < STEPS; step++) run_part(&r, LIST_BODY, step);
      int expected = 0;
      for (int n = 0; n < g->node.count; n++)
        for (int k = 0; k < g->node.data[n].noutput; k++)
          expected += r.p->stores[n] && is_accumulator(g, g->node.data[n].output[k]);
      assert_true(r.stored >= STEPS * expected && expected > 0);
      for (int k = 0; k < r.p->begin.count; k++) { // all of them can be stored into
        const Node *n = &g->node.data[r.p->begin.instruction[k].node];
        if (node_is(n, ROLE_FILL) && is_accumulator(g, n->output[0])) fail_msg("%s: %s", settings[i], n->name);
      }
      free(r.written);
    }
    release(&c);
  }
}

// ---- where zeros stay

static Program *program_of(const Case *c, const Graph *g) {
  Program *p;
  Error error = {0};
  ProgramOptions o = {.schedule = c->job->options.parallel.pipeline.schedule,
                      .microbatches = job_train(c->job)->shares.microbatches,
                      .shares = &job_train(c->job)->shares,
                      .device = c->job->options.device,
                      .threads = 1};
  if (program_create(g, &c->job->options.parallel.mesh, &o, &p, &error)) fail_msg("%s", error.message);
  return p;
}

static int fills_of(const Program *p, int variable) {
  int count = 0;
  for (int i = 0; i < p->begin.count; i++) {
    const Node *n = &p->graph->node.data[p->begin.instruction[i].node];
    count += node_is(n, ROLE_FILL) && graph_tensor(p->graph, n->output[0])->variable == variable;
  }
  return count;
}

static Node *node_with(Graph *g, Region region, int variable) {
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; k < g->node.data[i].noutput; k++)
      if (g->node.data[i].region == region && graph_tensor(g, g->node.data[i].output[k])->variable == variable)
        return &g->node.data[i];
  return NULL;
}

enum { AS_IT_IS, ANOTHER_VALUE, TWICE, NO_ADDER, READ_ELSEWHERE, CHANGES };

static void zeros_stay_where_something_else_comes_first(void **state) {
  Case c = compiled("mesh.dp=1");
  for (int change = 0; change < CHANGES; change++) {
    Graph *g = graph_copy(job_train(c.job)->graph);
    int v = graph_find_variable(g, "gradient.layer.0.ffn.down.weight");
    assert_true(v >= 0);
    Node *fill = node_with(g, REGION_BEGIN, v), *adder = node_with(g, REGION_MICRO, v);
    assert_non_null(fill);
    assert_int_equal(adder->op, OP_MATMUL);
    if (change == ANOTHER_VALUE) node_attr(fill, FillAttr)->value = 1;
    if (change == TWICE)
      graph_add_node(g, &(Node){.op = OP_IDENTITY,
                                .region = REGION_BEGIN,
                                .phase = fill->phase,
                                .layer = fill->layer,
                                .name = "look",
                                .stages = fill->stages,
                                .ninput = 1,
                                .noutput = 1,
                                .input = fill->output,
                                .output = fill->output});
    if (change == NO_ADDER) adder->op = OP_IDENTITY, adder->input[0] = adder->input[2], adder->ninput = 1;
    if (change == READ_ELSEWHERE) adder->input[1] = adder->input[2];
    Program *p = program_of(&c, g);
    int stays = fills_of(p, v);
    if (stays != (change != AS_IT_IS)) fail_msg("change %d: BEGIN has %d zeros", change, stays);
    program_destroy(p);
    graph_destroy(g);
  }
  release(&c);
}

// ---- costs

// A step reads less by all accumulators, once: the first microbatch does not.
static void the_first_microbatch_reads_less(void **state) {
  Case c = compiled("mesh.dp=1");
  const Program *p = job_train(c.job)->program[0];
  RowsKinds kinds = rows_kinds(p);
  assert_int_equal(kinds.count, 2);
  assert_true(kinds.kind[0].times == 1 && kinds.kind[1].times == 7);
  double saved = 0, expected = 0;
  for (int i = 0; i < p->graph->node.count; i++) {
    const Node *n = &p->graph->node.data[i];
    if (!p->stores[i]) continue;
    OpWork first = program_work(p, n, 0), other = program_work(p, n, 1);
    saved += other.read - first.read;
    expected += (double)tensor_local_elements(p->graph, graph_tensor(p->graph, n->input[p->stores[i] - 1])) * 4;
    assert_true(first.matrix == other.matrix);
    assert_true(first.written == other.written || n->op == OP_EMBEDDING_GRAD);
  }
  // But for the positions, whose rows are looked up, and the sum of losses, a scalar.
  const Variable *positions = &p->graph->variable.data[graph_find_variable(p->graph, "gradient.wpe")];
  assert_true(saved <= expected && saved >= expected - 8 - 4 * (double)shape_elements(&positions->shape));
  ProgramCost cost = program_cost(p);
  assert_true(cost.bytes > 0);
  release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_reads_an_empty_accumulator),
      cmocka_unit_test(zeros_stay_where_something_else_comes_first),
      cmocka_unit_test(the_first_microbatch_reads_less),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
