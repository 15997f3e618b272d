// graph_verify: whole graphs pass, and each thing that a pass may break is found.
#include "op/build.h"
#include "compile/verify.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

typedef struct Small { Graph *g; int x, w, y, z, sum, scalar; } Small;

// MICRO: y = x wᵀ; z = y + y; count accumulates sum(…) ; END reads the Variable.
static Small small_graph(void) {
  Small s = {.g = graph_create()};
  DimName bse[] = {DIM_BATCH, DIM_SEQ, DIM_EMBED}, fe[] = {DIM_FFN, DIM_EMBED};
  s.x = graph_input(s.g, "x", DTYPE_F32, shape_of(3, (int64_t[]){2, 3, 4}, bse));
  s.w = graph_variable(s.g, "w", VARIABLE_PARAMETER, DTYPE_F32, shape_of(2, (int64_t[]){5, 4}, fe), (Init){0});
  s.scalar = graph_variable(s.g, "total", VARIABLE_METRIC, DTYPE_F64, (Shape){0}, (Init){0});
  s.y = op_matmul(s.g, "y", s.x, graph_read(s.g, s.w), 1);
  s.z = op_add(s.g, "z", (int[]){s.y, s.y}, 2);
  s.sum = op_accumulate(s.g, "accumulate", graph_read(s.g, s.scalar), op_sum_squares(s.g, "squares", s.z));
  s.g->region = REGION_END;
  op_mul(s.g, "end", graph_read(s.g, s.scalar), graph_read(s.g, s.scalar));
  return s;
}

static void expect(const Graph *g, const char *what) {
  Error error = {0};
  int code = graph_verify(g, "this test", &error);
  if (!what) {
    if (code) fail_msg("a whole graph is refused: %s", error.message);
    return;
  }
  if (!code) fail_msg("not found: %s", what);
  if (!strstr(error.message, what) || !strstr(error.message, "this test"))
    fail_msg("\"%s\" does not say \"%s\"", error.message, what);
}

static Node *maker(Small *s, int tensor) { return &s->g->node.data[graph_tensor(s->g, tensor)->producer]; }

static void whole_graphs_pass(void **state) {
  Small s = small_graph();
  expect(s.g, NULL);
  Graph *copy = graph_copy(s.g);
  graph_destroy(s.g);
  expect(copy, NULL);
  graph_destroy(copy);
}

#define BREAKS(name, what, ...)         \
  static void name(void **state) {      \
    Small s = small_graph();            \
    __VA_ARGS__;                        \
    expect(s.g, what);                  \
    graph_destroy(s.g);                 \
  }
BREAKS(node_id, "its id is not its place", maker(&s, s.z)->id++)
BREAKS(input_missing, "an input does not exist", maker(&s, s.z)->input[0] = s.g->tensor.count)
BREAKS(input_below, "an input does not exist", maker(&s, s.z)->input[0] = -2)
BREAKS(input_later, "an input is produced later", maker(&s, s.y)->input[0] = s.z)
BREAKS(input_of_itself, "an input is produced later", maker(&s, s.z)->input[1] = s.z)
BREAKS(input_without_source, "an input has no source", graph_tensor(s.g, s.x)->input = -1)
BREAKS(region_crossed, "crosses a region without a Variable", s.g->node.data[s.g->node.count - 1].input[0] = s.z)
BREAKS(region_backwards, "crosses a region", maker(&s, s.y)->region = REGION_BEGIN)
BREAKS(output_missing, "an output does not exist", maker(&s, s.z)->output[0] = s.g->tensor.count + 3)
BREAKS(output_of_another, "an output names another producer", graph_tensor(s.g, s.z)->producer = 0)
BREAKS(output_twice, "an output names another producer", maker(&s, s.z)->output[0] = s.y)
BREAKS(variable_missing, "is bound to no Variable", graph_tensor(s.g, s.y)->variable = 99)
BREAKS(variable_of_other_size, "does not fit its Variable", graph_tensor(s.g, s.y)->variable = s.w)
BREAKS(variable_of_other_dtype, "does not fit its Variable", s.g->variable.data[s.w].dtype = DTYPE_F64)
BREAKS(copy_missing, "Copy", graph_bind(s.g, graph_read(s.g, s.scalar), s.scalar, 0))

// A second accumulation takes the value from before the first, which has overwritten it.
BREAKS(overwritten, "an input is overwritten before it is read", {
  s.g->region = REGION_MICRO;
  op_accumulate(s.g, "again", graph_tensor(s.g, s.sum)->producer >= 0 ? maker(&s, s.sum)->input[0] : -1,
                maker(&s, s.sum)->input[1]);
})

// Against the ops' shape rules.
BREAKS(output_of_other_shape, "not of the shape that its op's rule gives", graph_tensor(s.g, s.y)->shape.size[2]++)
BREAKS(output_of_other_rank, "not of the shape that its op's rule gives", graph_tensor(s.g, s.z)->shape.rank--)
BREAKS(output_of_other_dtype, "not of the dtype that its op's rule gives", graph_tensor(s.g, s.z)->dtype = DTYPE_F64)
BREAKS(outputs_too_few, "not as many", maker(&s, s.z)->noutput = 0)

// What the graph's form says is known.
static const Placement *somewhere(Small *s) { return (const Placement *)(const void *)s->g; } // it is not looked into

static void form_of(Small *s, GraphForm form) {
  Graph *g = s->g;
  g->form = form;
  for (int i = 0; i < g->variable.count; i++) g->variable.data[i].storage = somewhere(s);
  for (int i = 0; i < g->variable.count && form == GRAPH_LOCAL; i++) g->variable.data[i].allocated_ = 1000;
  for (int i = 0; i < g->tensor.count; i++) {
    Tensor *t = &g->tensor.data[i];
    t->placement = somewhere(s);
    if (form != GRAPH_LOCAL) continue;
    memcpy(t->local_, t->shape.size, sizeof t->local_);
    t->allocated_ = shape_elements(&t->shape);
  }
  for (int i = 0; i < g->node.count && form == GRAPH_PLACED; i++) {
    Node *n = &g->node.data[i];
    n->want_ = arena_array(&g->arena, const Placement *, n->ninput);
    n->give_ = arena_array(&g->arena, const Placement *, n->noutput);
    for (int k = 0; k < n->ninput; k++) n->want_[k] = somewhere(s);
    for (int k = 0; k < n->noutput; k++) n->give_[k] = somewhere(s);
  }
}

static void whole_forms_pass(void **state) {
  static const GraphForm forms[] = {GRAPH_GLOBAL, GRAPH_PLACED, GRAPH_LOCAL};
  for (int i = 0; i < 3; i++) {
    Small s = small_graph();
    form_of(&s, forms[i]);
    expect(s.g, NULL);
    graph_destroy(s.g);
  }
}

BREAKS(local_too_early, "a local shape too early", graph_tensor(s.g, s.y)->allocated_ = 30)
BREAKS(not_placed, "has no placement", { form_of(&s, GRAPH_PLACED); graph_tensor(s.g, s.y)->placement = NULL; })
BREAKS(not_wished, "an operand has no want or give", { form_of(&s, GRAPH_PLACED); maker(&s, s.y)->give_ = NULL; })
BREAKS(wish_missing, "an operand has no want or give", { form_of(&s, GRAPH_PLACED); maker(&s, s.y)->want_[1] = NULL; })
BREAKS(not_stored, "total has no storage", { form_of(&s, GRAPH_PLACED); s.g->variable.data[s.scalar].storage = NULL; })
BREAKS(wish_left, "want or give is still set", {
  form_of(&s, GRAPH_PLACED);
  Node n = *maker(&s, s.y);
  form_of(&s, GRAPH_LOCAL);
  maker(&s, s.y)->want_ = n.want_;
})
BREAKS(buffer_too_small, "does not hold its local shape", {
  form_of(&s, GRAPH_LOCAL);
  graph_tensor(s.g, s.y)->allocated_--;
})
BREAKS(storage_too_small, "storage of Variable w does not hold", {
  form_of(&s, GRAPH_LOCAL);
  s.g->variable.data[s.w].local_[0] = s.g->variable.data[s.w].local_[1] = 40;
})

// ---- compact tensors

typedef struct Experts { Graph *g; int weights, mask, rows; } Experts;

// x (b, s, e) and logits (b, s, x), routed and dispatched.
static Experts experts_graph(void) {
  Experts e = {.g = graph_create()};
  DimName bse[] = {DIM_BATCH, DIM_SEQ, DIM_EMBED}, bsx[] = {DIM_BATCH, DIM_SEQ, DIM_EXPERT};
  int x = graph_input(e.g, "x", DTYPE_F32, shape_of(3, (int64_t[]){2, 3, 4}, bse)),
      logits = graph_input(e.g, "logits", DTYPE_F32, shape_of(3, (int64_t[]){2, 3, 5}, bsx));
  op_route(e.g, "route", logits, -1, &(RouteAttr){.k = 2}, &e.weights, &e.mask);
  e.rows = op_dispatch(e.g, "rows", x, e.mask, 2);
  op_combine(e.g, "combine", op_activation(e.g, "act", e.rows, ACTIVATION_SILU), e.weights);
  return e;
}

#define BREAKS_ROWS(name, what, ...)                                                                                   \
  static void name(void **state) {                                                                                     \
    Experts e = experts_graph();                                                                                       \
    expect(e.g, NULL);                                                                                                 \
    __VA_ARGS__;                                                                                                       \
    expect(e.g, what);                                                                                                 \
    graph_destroy(e.g);                                                                                                \
  }
BREAKS_ROWS(mask_missing, "its mask does not exist", graph_tensor(e.g, e.rows)->mask = 100)
BREAKS_ROWS(mask_of_floats, "its mask does not exist or is none", graph_tensor(e.g, e.rows)->mask = e.weights)
BREAKS_ROWS(mask_of_no_choice, "its mask does not exist or is none", graph_tensor(e.g, e.rows)->choices = 0)
BREAKS_ROWS(mask_later, "its mask is made later", {
  int weights, mask;
  op_route(e.g, "again", e.g->node.data[0].input[0], -1, &(RouteAttr){.k = 2}, &weights, &mask);
  graph_tensor(e.g, e.rows)->mask = mask;
})
BREAKS_ROWS(mask_unread, "its node does not wait for its mask", {
  int weights, mask, x = e.g->node.data[graph_tensor(e.g, e.rows)->producer].input[0];
  op_route(e.g, "again", e.g->node.data[0].input[0], -1, &(RouteAttr){.k = 2}, &weights, &mask);
  graph_tensor(e.g, op_dispatch(e.g, "more", x, mask, 2))->mask = e.mask;
})
BREAKS_ROWS(mask_unmade, "its mask is no longer made", {
  Tensor other = *graph_tensor(e.g, e.mask);
  int mask = graph_add_tensor(e.g, &other);
  graph_tensor(e.g, e.rows)->mask = mask;
})
BREAKS_ROWS(mask_elsewhere, "its mask is made on another stage",
            e.g->node.data[graph_tensor(e.g, e.rows)->producer].stage = 1)

// What is made element by element inherits the mask, memory has room for two of five experts, and a listing says so.
static void compact_tensors_are_bounded(void **state) {
  Experts e = experts_graph();
  const Tensor *rows = graph_tensor(e.g, e.rows), *act = rows + 1;
  char text[4096] = "";
  assert_int_equal(act->mask, e.mask);
  assert_int_equal(act->choices, 2);
  assert_int_equal(tensor_elements(rows, rows->shape.size), 2 * 3 * 2 * 4);
  assert_int_equal(tensor_elements(rows, (int64_t[]){2, 3, 1, 4}), 2 * 3 * 1 * 4); // a rank with one expert
  FILE *out = fmemopen(text, sizeof text, "w");
  graph_print(e.g, out, NULL, NULL);
  fclose(out);
  assert_non_null(strstr(text, "expert=5 embed=4)[≤2 of %3] = dispatch"));
  graph_destroy(e.g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_graphs_pass),
      cmocka_unit_test(node_id),
      cmocka_unit_test(input_missing),
      cmocka_unit_test(input_below),
      cmocka_unit_test(input_later),
      cmocka_unit_test(input_of_itself),
      cmocka_unit_test(input_without_source),
      cmocka_unit_test(region_crossed),
      cmocka_unit_test(region_backwards),
      cmocka_unit_test(output_missing),
      cmocka_unit_test(output_of_another),
      cmocka_unit_test(output_twice),
      cmocka_unit_test(variable_missing),
      cmocka_unit_test(variable_of_other_size),
      cmocka_unit_test(variable_of_other_dtype),
      cmocka_unit_test(copy_missing),
      cmocka_unit_test(overwritten),
      cmocka_unit_test(output_of_other_shape),
      cmocka_unit_test(output_of_other_rank),
      cmocka_unit_test(output_of_other_dtype),
      cmocka_unit_test(outputs_too_few),
      cmocka_unit_test(whole_forms_pass),
      cmocka_unit_test(local_too_early),
      cmocka_unit_test(not_placed),
      cmocka_unit_test(not_wished),
      cmocka_unit_test(wish_missing),
      cmocka_unit_test(not_stored),
      cmocka_unit_test(wish_left),
      cmocka_unit_test(buffer_too_small),
      cmocka_unit_test(storage_too_small),
      cmocka_unit_test(mask_missing),
      cmocka_unit_test(mask_of_floats),
      cmocka_unit_test(mask_of_no_choice),
      cmocka_unit_test(mask_later),
      cmocka_unit_test(mask_unread),
      cmocka_unit_test(mask_unmade),
      cmocka_unit_test(mask_elsewhere),
      cmocka_unit_test(compact_tensors_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
