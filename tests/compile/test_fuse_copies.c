// Which updates write the Copy of what they update, on small graphs: V in fp32 and its Copy in bf16, which BEGIN casts,
// MICRO reads, and an update, if any, writes after that.
#include "op/build.h"
#include "op/optimizer.h"
#include "compile/pass.h"
#include "compile/verify.h"
#include "device/cpu/cpu.h"
#include "compile/place_node.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

typedef enum Change {
  AS_IT_IS,
  NO_UPDATE,
  UPDATE_IN_MICRO,
  READ_LATER_IN_MICRO,
  READ_LATER_IN_END,
  WRITTEN_TWICE,
  PLACED_OTHERWISE,
  OF_OTHER_STAGES,
  STREAMS,
  NO_KERNELS,
} Change;

static int read_copy(Graph *g, int w) {
  int t = graph_read_apart(g, w);
  graph_tensor(g, t)->copy = 0;
  graph_tensor(g, t)->dtype = DTYPE_BF16;
  return t;
}

static void update(Graph *g, int w, const int *scalar) {
  OptimizerAttr attr = {.decay = 0.1};
  int gradient = graph_read(g, graph_variable_of(g, "gradient", w, VARIABLE_GRADIENT));
  op_optimizer(g, OP_SGD, graph_read_apart(g, w), gradient, scalar[0], scalar[1], scalar[2], scalar[3], &attr);
}

// (5, 4) each
static Graph *graph_with(Change change) {
  static const char *const names[] = {"a", "b", "c", "d"};
  Graph *g = graph_create();
  int scalar[4], w = graph_variable(g, "w", VARIABLE_PARAMETER, DTYPE_F32,
                                    shape_of(2, (int64_t[]){5, 4}, (DimName[]){DIM_FFN, DIM_EMBED}), (Init){0});
  g->variable.data[w].parameter = w;
  g->variable.data[w].copies = 1;
  g->variable.data[w].copy[0].dtype = DTYPE_BF16;
  for (int i = 0; i < 4; i++)
    scalar[i] = graph_read(g, graph_variable(g, names[i], VARIABLE_COUNTER, DTYPE_F64, (Shape){0}, (Init){0}));
  g->region = REGION_BEGIN;
  graph_bind(g, op_cast(g, "refresh", graph_read(g, w), DTYPE_BF16), w, 0);
  g->region = REGION_MICRO;
  op_sum_squares(g, "forward", read_copy(g, w));
  if (change == UPDATE_IN_MICRO || change == READ_LATER_IN_MICRO) update(g, w, scalar);
  if (change == READ_LATER_IN_MICRO) op_sum_squares(g, "backward", read_copy(g, w));
  g->region = REGION_END;
  if (g->node.count < 3 && change != NO_UPDATE) update(g, w, scalar);
  if (change == WRITTEN_TWICE) op_fill(g, "zero", w, 0);
  if (change == READ_LATER_IN_END) op_sum_squares(g, "norm", read_copy(g, w));
  const Placement *whole = placement_new(g, &(Placement){.rank = 2}), *owned =
                             placement_new(g, &(Placement){.rank = 2, .owner_axes = 1});
  for (int i = 0; i < g->tensor.count; i++) {
    g->tensor.data[i].placement = change == PLACED_OTHERWISE && g->tensor.data[i].copy == 0 ? owned : whole;
    if (g->tensor.data[i].variable < 0) g->tensor.data[i].input = 0; // or made by a node
  }
  if (change == OF_OTHER_STAGES) g->node.data[0].stages = STAGES_ALL;
  return g;
}

static void the_update_writes_what_begin_would_cast(void **state) {
  static const struct { Change change; int refreshes, outputs; } rows[] = {
      {AS_IT_IS, 1, 2},          {NO_UPDATE, 1, 0},        {UPDATE_IN_MICRO, 1, 2},  {READ_LATER_IN_MICRO, 0, 1},
      {READ_LATER_IN_END, 0, 1}, {WRITTEN_TWICE, 0, 1},    {PLACED_OTHERWISE, 0, 1}, {OF_OTHER_STAGES, 0, 1},
      {STREAMS, 0, 1},           {NO_KERNELS, 0, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Error error = {0};
    Device without = *device_cpu_at(CPU_PORTABLE);
    without.fuses &= ~(unsigned)DEVICE_FUSES_COPY;
    Graph *g = graph_with(rows[i].change);
    CompileOptions o = {.device = rows[i].change == NO_KERNELS ? &without : device_cpu_at(CPU_PORTABLE)};
    if (rows[i].change == STREAMS) o.parallel.pipeline.schedule = schedule_by_name("2bw");
    if (pass_fuse(&g, &o, &error)) fail_msg("%s", error.message);
    if (graph_verify(g, "fuse", &error)) fail_msg("graph %zu: %s", i, error.message);
    int outputs = 0;
    for (int k = 0; k < g->node.count; k++) {
      const Node *n = &g->node.data[k];
      if (n->op != OP_SGD) continue;
      outputs = n->noutput;
      const Tensor *last = graph_tensor(g, n->output[n->noutput - 1]);
      assert_int_equal(last->copy, outputs - 2); // -1: the storage
      assert_int_equal(last->producer, k);
      assert_int_equal(last->dtype, outputs > 1 ? DTYPE_BF16 : DTYPE_F32);
    }
    assert_int_equal(g->node.data[0].op, OP_CAST);
    if (g->node.data[0].refreshes != rows[i].refreshes || outputs != rows[i].outputs)
      fail_msg("graph %zu: refreshes %d, an update of %d outputs", i, g->node.data[0].refreshes, outputs);
    graph_destroy(g);
  }
}

// What may be passed over makes a Copy in BEGIN, alone.
static void other_nodes_are_always_run(void **state) {
  for (int k = 0; k < 3; k++) {
    Error error = {0};
    Graph *g = graph_with(AS_IT_IS);
    g->node.data[k].refreshes = 1;
    int code = graph_verify(g, "this test", &error);
    if (k ? !strstr(error.message, "it may be passed over") : code) fail_msg("node %d: %s", k, error.message);
    graph_destroy(g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_update_writes_what_begin_would_cast),
                                     cmocka_unit_test(other_nodes_are_always_run)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
