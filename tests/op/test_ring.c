// ATTENTION and its gradient, expanded over a ring of ranks that are played one after the other, equal one rank; and
// what the ring moves.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/op_case.h"
#include "compile/verify.h"
#include "check/evaluate.h"
#include "op/attention_ring.h"
#include "sharding/rule.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_RANKS = 5 };

typedef struct Ring {
  OpCase c;
  Node node;
  int ranks, zigzag, first; // first node of the expansion
  int lowered[CASE_OUTPUTS];
  Operand *tensor[MOST_RANKS]; // by tensor of the graph
} Ring;

// Rank r's positions of n: chunk r of `ranks`, which may differ by one, or chunks r and 2 · ranks - 1 - r of twice as
// many.
static IndexMap positions(const Ring *ring, int r, int64_t n) {
  int chunks = ring->zigzag ? 2 * ring->ranks : ring->ranks, last = chunks - 1 - r;
  int64_t a = r * n / chunks, na = (r + 1) * n / chunks - a, b = last * n / chunks, nb = (last + 1) * n / chunks - b;
  if (!ring->zigzag) return index_range(a, na, n);
  return (IndexMap){.local = na + nb, .valid = na + nb, .global = n, .runs = 2, .run = {{0, a}, {na, b}}};
}

static int is_position(int8_t factor) { return factor == 's' - 'a' || factor == 't' - 'a'; }

// Calls `visit` with each element of the rank's part and its place in the whole.
static void each_element(Operand *part, const Operand *whole,
                         void (*visit)(Operand *part, int64_t i, const Operand *whole, int64_t at)) {
  for (int64_t i = 0; i < operand_elements(part); i++) {
    int64_t at = 0, stride = 1, rest = i;
    for (int d = part->rank - 1; d >= 0; d--) {
      at += stride * index_map(&part->map[d], rest % part->size[d]);
      stride *= whole->size[d];
      rest /= part->size[d];
    }
    visit(part, i, whole, at);
  }
}

static void take(Operand *part, int64_t i, const Operand *whole, int64_t at) {
  operand_store(part, i, operand_load(whole, at));
}

static void expect(Operand *part, int64_t i, const Operand *whole, int64_t at) {
  double got = operand_load(part, i), expected = operand_load(whole, at),
         most = whole->dtype == DTYPE_F64 ? 1e-13 : whole->dtype == DTYPE_F32 ? 2e-6 : 0x1p-6;
  if (got != expected && !(fabs(got - expected) <= most * fmax(1, fabs(expected))))
    fail_msg("element %lld is %.17g, on one rank %.17g", (long long)at, got, expected);
}

static Operand part_like(const Ring *ring, const Operand *whole, const int8_t *factor, int r) {
  Operand part = *whole;
  for (int d = 0; d < part.rank; d++) {
    part.map[d] = is_position(factor[d]) ? positions(ring, r, whole->size[d]) : index_whole(whole->size[d]);
    part.size[d] = part.map[d].local;
  }
  operand_allocate(&part);
  return part;
}

static void run_shift(Ring *ring, const Node *n) {
  int distance = node_attr(n, CommAttr)->distance;
  for (int k = 0; k < n->ninput; k++)
    for (int r = 0; r < ring->ranks; r++) {
      const Operand *from = &ring->tensor[(r - distance + ring->ranks) % ring->ranks][n->input[k]];
      Operand to = *from;
      operand_allocate(&to);
      memcpy(to.data, from->data, (size_t)operand_elements(from) * dtype_size(from->dtype));
      ring->tensor[r][n->output[k]] = to;
    }
}

static void run_node(Ring *ring, const Node *n) {
  Arena scratch = {0};
  Rule rule = rule_of(&scratch, ring->c.graph, n);
  for (int r = 0; r < ring->ranks; r++) {
    Operand input[CASE_INPUTS] = {{0}}, output[CASE_OUTPUTS];
    IndexMap of[MAX_FACTORS];
    for (int k = 0; k < n->ninput; k++) {
      input[k] = ring->tensor[r][n->input[k]];
      for (int d = 0; d < input[k].rank; d++) of[(int)rule.input[k][d]] = input[k].map[d];
    }
    for (int k = 0; k < n->noutput; k++) {
      const Tensor *t = graph_tensor(ring->c.graph, n->output[k]);
      output[k] = (Operand){.dtype = t->dtype, .rank = t->shape.rank};
      for (int d = 0; d < t->shape.rank; d++) {
        output[k].map[d] = of[(int)rule.output[k][d]];
        output[k].size[d] = output[k].map[d].local;
      }
      operand_allocate(&output[k]);
      ring->tensor[r][n->output[k]] = output[k];
    }
    KernelCall call = {.ninput = n->ninput,
                       .noutput = n->noutput,
                       .input = input,
                       .output = output,
                       .attr = n->attr,
                       .parameters = &ring->c.parameters};
    op_def(n->op)->reference(&call);
  }
  arena_free(&scratch);
}

// 0: the case is of another op, or too short.
static int ring_start(Ring *ring, int i, Dtype dtype, int ranks, int zigzag) {
  *ring = (Ring){.ranks = ranks, .zigzag = zigzag};
  op_case_get(i, dtype, &ring->c);
  OpCase *c = &ring->c;
  int gradient = c->op == OP_ATTENTION_GRAD, chunks = ranks * (zigzag ? 2 : 1);
  if ((c->op != OP_ATTENTION && !gradient) || c->input[0].size[1] != c->input[1].size[1] ||
      c->input[0].size[1] < chunks || (zigzag && c->input[0].size[1] % chunks))
    return 0;
  ring->node = c->graph->node.data[c->node];
  ring->first = c->graph->node.count;
  (gradient ? attention_grad_ring_lower : attention_ring_lower)(c->graph, &ring->node, 4, ranks, ring->node.input,
                                                                ring->lowered);
  Error error = {0};
  if (graph_verify(c->graph, "lower", &error)) fail_msg("%s", error.message);
  Arena scratch = {0};
  Rule rule = rule_of(&scratch, c->graph, &ring->node);
  for (int r = 0; r < ranks; r++) {
    ring->tensor[r] = xcalloc((size_t)c->graph->tensor.count, sizeof(Operand));
    for (int k = 0; k < c->ninput; k++) {
      Operand part = part_like(ring, &c->input[k], rule.input[k], r);
      each_element(&part, &c->input[k], take);
      ring->tensor[r][ring->node.input[k]] = part;
    }
  }
  arena_free(&scratch);
  return 1;
}

static void ring_end(Ring *ring) {
  for (int r = 0; r < ring->ranks && ring->tensor[r]; r++) {
    for (int t = 0; t < ring->c.graph->tensor.count; t++) free(ring->tensor[r][t].data);
    free(ring->tensor[r]);
  }
  op_case_free(&ring->c);
}

static void rings_equal_one_rank(void **state) {
  static const Dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};
  int checked = 0;
  for (int i = 0; i < op_cases_count(); i++)
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
      for (int variant = 0; variant < 6; variant++) {
        Ring ring;
        if (ring_start(&ring, i, dtypes[variant / 2], ranks, variant % 2)) {
          const Graph *g = ring.c.graph;
          for (int n = ring.first; n < g->node.count; n++)
            if (node_calls(&g->node.data[n], COMM_SHIFT)) run_shift(&ring, &g->node.data[n]);
            else run_node(&ring, &g->node.data[n]);
          KernelCall whole = op_case_call(&ring.c);
          op_def(ring.c.op)->reference(&whole);
          for (int k = 0; k < ring.c.noutput; k++)
            for (int r = 0; r < ranks; r++) each_element(&ring.tensor[r][ring.lowered[k]], &ring.c.output[k], expect);
          checked++;
        }
        ring_end(&ring);
      }
  assert_true(checked > 60);
}

// In forward keys and values move P - 1 times, in backward these and their gradients, in the dtype of statistics, as
// often.
static void rings_move_what_they_must(void **state) {
  int checked = 0;
  for (int i = 0; i < op_cases_count(); i++)
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
      Ring ring;
      if (ring_start(&ring, i, DTYPE_BF16, ranks, 0)) {
        const Graph *g = ring.c.graph;
        int64_t kv = 2 * operand_elements(&ring.c.input[1]), narrow = 0, wide = 0;
        for (int n = ring.first; n < g->node.count; n++)
          for (int k = 0; node_calls(&g->node.data[n], COMM_SHIFT) && k < g->node.data[n].ninput; k++) {
            const Tensor *t = graph_tensor(g, g->node.data[n].input[k]);
            if (t->dtype == DTYPE_BF16) narrow += shape_elements(&t->shape);
            if (t->dtype == DTYPE_F32) wide += shape_elements(&t->shape);
          }
        assert_int_equal(narrow, (ranks - 1) * kv);
        assert_int_equal(wide, ring.c.op == OP_ATTENTION_GRAD ? (ranks - 1) * kv : 0);
        checked++;
      }
      ring_end(&ring);
    }
  assert_true(checked > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rings_equal_one_rank),
                                     cmocka_unit_test(rings_move_what_they_must)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
