// Every legal sharding of every op equals the unsharded op, as its factor rule says: parts that are concatenated,
// partial sums that are added, linear inputs that are partial, dropout masks that stay, and the lowerings of the
// sharded loss and of norms.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/op_case.h"
#include "compile/verify.h"
#include "check/evaluate.h"
#include "parts.h"
#include "sharding/rule.h"
#include <math.h>

typedef enum Mode { EVEN, PADDED, ZIGZAG } Mode; // EVEN: contiguous, sizes differ by at most one
enum { MAX_SHARDS = 8 };

// How one factor is split.
typedef struct Split { int shards; IndexMap map[MAX_SHARDS]; } Split;

static IndexMap part_of(int64_t n, int shards, int j, Mode mode) {
  if (mode == PADDED) {
    int64_t local = (n + shards - 1) / shards, first = j * local, valid = n - first;
    return (IndexMap){.local = local,
                      .valid = valid < 0       ? 0
                               : valid < local ? valid
                                               : local,
                      .global = n,
                      .runs = 1,
                      .run = {{0, first}}};
  }
  if (mode == EVEN) {
    int64_t first = j * n / shards, local = (j + 1) * n / shards - first;
    return (IndexMap){.local = local, .valid = local, .global = n, .runs = 1, .run = {{0, first}}};
  }
  int last = 2 * shards - 1 - j; // shard j has chunks j and last of 2 · shards
  int64_t a = j * n / (2 * shards), na = (j + 1) * n / (2 * shards) - a, b = last * n / (2 * shards),
          nb = (last + 1) * n / (2 * shards) - b;
  return (IndexMap){.local = na + nb, .valid = na + nb, .global = n, .runs = 2, .run = {{0, a}, {na, b}}};
}

static Split split_of(int64_t n, int shards, Mode mode) {
  Split s = {.shards = shards};
  for (int j = 0; j < shards; j++) s.map[j] = part_of(n, shards, j, mode);
  return s;
}

static double tolerance_of(Dtype dtype) { return dtype == DTYPE_F64 ? 1e-12 : dtype == DTYPE_F32 ? 1e-6 : 0x1p-7; }

static void compare(const double *got, const Operand *expected, const char *name, const char *how, int output) {
  int64_t n = operand_elements(expected);
  double largest = 1;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(operand_load(expected, i))) largest = fmax(largest, fabs(operand_load(expected, i)));
  for (int64_t i = 0; i < n; i++)
    if (got[i] != operand_load(expected, i) &&
        !(fabs(got[i] - operand_load(expected, i)) <= tolerance_of(expected->dtype) * largest))
      fail_msg("%s, %s: output %d [%lld] is %.15g, unsharded %.15g", name, how, output, (long long)i, got[i],
               operand_load(expected, i));
}

// A case with its rule, and the outputs of the unsharded op (apart from the inputs, also for in-place ops).
typedef struct Subject {
  OpCase c;
  Node node;
  Rule rule;
  Arena arena;
  Operand expected[CASE_OUTPUTS];
} Subject;

static void run_on(const Subject *s, const Operand *input, const Operand *output) {
  KernelCall call = op_case_call(&s->c);
  call.input = input;
  call.output = output;
  op_def(s->c.op)->reference(&call);
}

static void subject_start(Subject *s, int i) {
  *s = (Subject){0};
  op_case_get(i, DTYPE_F64, &s->c);
  s->node = s->c.graph->node.data[s->c.node];
  s->rule = rule_of(&s->arena, s->c.graph, &s->node);
  for (int k = 0; k < s->c.noutput; k++) {
    s->expected[k] = s->c.output[k]; // as large, and compact as that
    operand_allocate(&s->expected[k]);
  }
  run_on(s, s->c.input, s->expected);
}

// Which input of the case is the mask of its operand (inputs, then outputs); -1: it is not compact.
static int mask_of_operand(const Subject *s, int k) {
  int id = k < s->c.ninput ? s->node.input[k] : s->node.output[k - s->c.ninput];
  if (id < 0 || !tensor_is_compact(graph_tensor(s->c.graph, id))) return -1;
  for (int i = 0; i < s->c.ninput; i++)
    if (s->node.input[i] == graph_tensor(s->c.graph, id)->mask) return i;
  fail_msg("%s: a mask that is not an input", s->c.name);
  return -1;
}

// The part of an operand of the case (or of an output that is expected) by maps; of a compact one as if it were dense.
static Operand dense_part(const Subject *s, int k, const Operand *whole, const IndexMap *map) {
  int mask = mask_of_operand(s, k);
  if (mask < 0) return take_part(whole, map);
  Operand dense = rows_unpacked(whole, &s->c.input[mask]), part = take_part(&dense, map);
  free(dense.data);
  return part;
}

static void repack(const Subject *s, int k, const Operand *mask, Operand *part) {
  if (mask_of_operand(s, k) < 0) return;
  Operand rows = rows_packed(part, mask);
  free(part->data);
  *part = rows;
}

static void subject_end(Subject *s) {
  for (int k = 0; k < s->c.noutput; k++) free(s->expected[k].data);
  op_case_free(&s->c);
  arena_free(&s->arena);
}

// The dim name of a factor, from an operand that has it.
static DimName dim_of_factor(const Subject *s, int factor) {
  for (int k = 0; k < s->c.ninput + s->c.noutput; k++) {
    int id = k < s->c.ninput ? s->node.input[k] : s->node.output[k - s->c.ninput];
    const int8_t *f = k < s->c.ninput ? s->rule.input[k] : s->rule.output[k - s->c.ninput];
    for (int d = 0; id >= 0 && d < graph_tensor(s->c.graph, id)->shape.rank; d++)
      if (f[d] == factor) return graph_tensor(s->c.graph, id)->shape.dim[d];
  }
  return DIM_NONE;
}

// The map of a dim, by that of its factor: where the rule says "parts", operands have that many times as much of each
// shard.
static IndexMap map_of_dim(const Subject *s, const IndexMap *of, int factor, const Operand *x, int d) {
  IndexMap m = of[factor];
  int64_t times = s->rule.parts >> factor & 1 ? x->size[d] / s->rule.size[factor] : 1;
  m.local *= times;
  m.valid *= times;
  m.global *= times;
  for (int r = 0; r < m.runs; r++) m.run[r].local *= times, m.run[r].global *= times;
  return m;
}

// Runs the op once per combination of shards and puts the outputs together as the rule says.
static void check_splits(const Subject *s, const Split *split, const char *how) {
  const OpCase *c = &s->c;
  double *whole[CASE_OUTPUTS];
  int combinations = 1;
  Operand expected[CASE_OUTPUTS];
  for (int k = 0; k < c->noutput; k++) {
    int mask = mask_of_operand(s, c->ninput + k);
    expected[k] = mask < 0 ? s->expected[k] : rows_unpacked(&s->expected[k], &c->input[mask]);
    whole[k] = xcalloc((size_t)operand_elements(&expected[k]) + 1, sizeof(double));
  }
  for (int f = 0; f < MAX_FACTORS; f++) combinations *= split[f].shards;
  for (int n = 0; n < combinations; n++) {
    IndexMap of[MAX_FACTORS] = {{0}}, map[MAX_RANK];
    for (int f = 0, rest = n; f < MAX_FACTORS; rest /= split[f].shards, f++)
      of[f] = split[f].map[rest % split[f].shards];
    Operand input[CASE_INPUTS], output[CASE_OUTPUTS];
    for (int k = 0; k < c->ninput; k++) {
      for (int d = 0; d < c->input[k].rank; d++) map[d] = map_of_dim(s, of, s->rule.input[k][d], &c->input[k], d);
      input[k] = dense_part(s, k, &c->input[k], map);
    }
    for (int k = 0; k < c->ninput; k++)
      if (mask_of_operand(s, k) >= 0) repack(s, k, &input[mask_of_operand(s, k)], &input[k]);
    for (int k = 0; k < c->noutput; k++) {
      for (int d = 0; d < s->expected[k].rank; d++)
        map[d] = map_of_dim(s, of, s->rule.output[k][d], &s->expected[k], d);
      output[k] = dense_part(s, c->ninput + k, &s->expected[k], map);
      if (mask_of_operand(s, c->ninput + k) >= 0)
        repack(s, c->ninput + k, &input[mask_of_operand(s, c->ninput + k)], &output[k]);
      for (int64_t i = operand_elements(&output[k]) - 1; i >= 0; i--)
        operand_store(&output[k], i, dtype_is_float(output[k].dtype) ? NAN : 99);
    }
    run_on(s, input, output);
    for (int k = 0; k < c->noutput; k++) {
      double weight = 1; // what is complete on every shard is averaged
      for (int f = 0; f < MAX_FACTORS; f++)
        if (s->rule.complete[k] >> f & 1) weight /= split[f].shards;
      if (mask_of_operand(s, c->ninput + k) >= 0) {
        Operand dense = rows_unpacked(&output[k], &input[mask_of_operand(s, c->ninput + k)]);
        free(output[k].data);
        output[k] = dense;
      }
      add_part(whole[k], &output[k], weight, c->name);
      free(output[k].data);
    }
    for (int k = 0; k < c->ninput; k++) free(input[k].data);
  }
  for (int k = 0; k < c->noutput; k++) {
    compare(whole[k], &expected[k], c->name, how, k);
    if (expected[k].data != s->expected[k].data) free(expected[k].data);
    free(whole[k]);
  }
}

// A factor that the rule lets be sharded without more ado. The local maximum of statistics is combined by `lower`.
static int shardable(const Subject *s, int f) {
  if (s->c.op == OP_CROSS_ENTROPY_STATISTICS && dim_of_factor(s, f) == DIM_VOCAB) return 0;
  if (s->c.op == OP_STATE_SCALES && dim_of_factor(s, f) == DIM_EMBED) return 0; // of parts of a block it is a maximum
  int of_capacity = s->c.op == OP_CAPACITY_COUNTS || s->c.op == OP_CAPACITY_APPLY;
  if (of_capacity && dim_of_factor(s, f) == DIM_SEQ) return 0; // how it is sharded is in `counts`
  return s->rule.size[f] > 1 && !((s->rule.whole | s->rule.lower) >> f & 1);
}

static int check_factor(const Subject *s, Split *split, int f) {
  static const struct { int shards; Mode mode; const char *name;
  } way[] = {{2, EVEN, "in 2"},
             {3, EVEN, "in 3"},
             {2, ZIGZAG, "zigzag in 2"},
             {2, PADDED, "padded in 2"},
             {3, PADDED, "padded in 3"}};
  DimName dim = dim_of_factor(s, f);
  Split before = split[f];
  char how[64];
  int checked = 0;
  for (size_t i = 0; i < sizeof way / sizeof way[0]; i++) {
    int64_t n = s->rule.size[f];
    if (way[i].mode == PADDED && !s->c.storage && dim != DIM_VOCAB && dim != DIM_POSITION) continue;
    if (n < way[i].shards * (way[i].mode == ZIGZAG ? 2 : 1)) continue;
    split[f] = split_of(n, way[i].shards, way[i].mode);
    snprintf(how, sizeof how, "%c (%s) %s", 'a' + f, dim_name(dim), way[i].name);
    check_splits(s, split, how);
    checked++;
  }
  split[f] = before;
  return checked;
}

static void every_legal_sharding_equals_unsharded(void **state) {
  int checked = 0;
  for (int i = 0; i < op_cases_count(); i++) {
    Subject s;
    subject_start(&s, i);
    Split split[MAX_FACTORS];
    for (int f = 0; f < MAX_FACTORS; f++) split[f] = split_of(s.rule.size[f], 1, EVEN);
    for (int f = 0; f < MAX_FACTORS; f++) {
      if (!shardable(&s, f)) continue;
      checked += check_factor(&s, split, f);
      for (int other = 0; other < f; other++) { // and two at once
        if (!shardable(&s, other)) continue;
        split[f] = split_of(s.rule.size[f], 2, EVEN);
        split[other] = split_of(s.rule.size[other], 2, s.rule.size[other] < 4 ? EVEN : ZIGZAG);
        check_splits(&s, split, "two factors");
        split[f] = split_of(s.rule.size[f], 1, EVEN);
        split[other] = split_of(s.rule.size[other], 1, EVEN);
        checked++;
      }
    }
    subject_end(&s);
  }
  assert_true(checked > 500);
}

// ---- linearity: f(a + b) = f(a) + f(b) where only a group's inputs are split

static void check_group(const Subject *s, int group) {
  const OpCase *c = &s->c;
  double *whole[CASE_OUTPUTS];
  for (int k = 0; k < c->noutput; k++)
    whole[k] = xcalloc((size_t)operand_elements(&s->expected[k]) + 1, sizeof(double));
  for (int half = 0; half < 2; half++) {
    Operand input[CASE_INPUTS], output[CASE_OUTPUTS];
    for (int k = 0; k < c->ninput; k++) {
      input[k] = take_part(&c->input[k], c->input[k].map);
      int64_t n = s->rule.linear[k] == group && input[k].data ? operand_elements(&input[k]) : 0;
      for (int64_t e = 0; e < n; e++) {
        double a = philox_normal((PhiloxKey){{(uint32_t)k, 3}}, (uint64_t)e);
        operand_store(&input[k], e, half ? operand_load(&input[k], e) - a : a);
      }
    }
    for (int k = 0; k < c->noutput; k++) output[k] = take_part(&s->expected[k], s->expected[k].map);
    run_on(s, input, output);
    for (int k = 0; k < c->noutput; k++) {
      add_part(whole[k], &output[k], 1, c->name);
      free(output[k].data);
    }
    for (int k = 0; k < c->ninput; k++) free(input[k].data);
  }
  for (int k = 0; k < c->noutput; k++) {
    compare(whole[k], &s->expected[k], c->name, "linear", k);
    free(whole[k]);
  }
}

static void linear_inputs_may_be_partial(void **state) {
  int checked = 0;
  for (int i = 0; i < op_cases_count(); i++) {
    Subject s;
    subject_start(&s, i);
    int groups = 0;
    for (int k = 0; k < s.c.ninput; k++) groups = s.rule.linear[k] > groups ? s.rule.linear[k] : groups;
    // Rescale takes the statistics of each shard, not partial sums: the test of `lower` covers it.
    for (int group = 1; group <= groups && s.c.op != OP_CROSS_ENTROPY_RESCALE; group++, checked++)
      check_group(&s, group);
    subject_end(&s);
  }
  assert_true(checked > 60);
}

// ---- lowering: the sharded vocabulary or row, shard by shard in lockstep

typedef struct Lockstep {
  const Graph *g;
  Operand *tensor[MAX_SHARDS]; // by tensor
  int shards;
  DimName dim; // that is sharded
  Split split;
} Lockstep;

static Operand shard_operand(const Lockstep *l, int id, int j) {
  const Tensor *t = graph_tensor(l->g, id);
  Operand x = {.dtype = t->dtype, .rank = t->shape.rank};
  for (int d = 0; d < x.rank; d++) {
    x.map[d] = t->shape.dim[d] == l->dim ? l->split.map[j] : index_whole(t->shape.size[d]);
    x.size[d] = x.map[d].local;
  }
  operand_allocate(&x);
  return x;
}

static void lockstep_all_reduce(Lockstep *l, const Node *n) {
  const CommAttr *attr = node_attr(n, CommAttr);
  assert_int_equal(attr->axes, 4);
  int64_t count = operand_elements(&l->tensor[0][n->input[0]]);
  for (int64_t i = 0; i < count; i++) {
    double value = attr->maximum ? -INFINITY : 0;
    for (int j = 0; j < l->shards; j++) {
      double x = operand_load(&l->tensor[j][n->input[0]], i);
      value = attr->maximum ? fmax(value, x) : value + x;
    }
    for (int j = 0; j < l->shards; j++) operand_store(&l->tensor[j][n->output[0]], i, value);
  }
}

static void lockstep_node(Lockstep *l, const Node *n, const CallParameters *parameters) {
  for (int j = 0; j < l->shards; j++) {
    Operand input[CASE_INPUTS] = {{0}}, output[CASE_OUTPUTS];
    for (int k = 0; k < n->noutput; k++) output[k] = l->tensor[j][n->output[k]] = shard_operand(l, n->output[k], j);
    if (op_def(n->op)->communicates) continue;
    for (int k = 0; k < n->ninput; k++)
      if (n->input[k] >= 0) input[k] = l->tensor[j][n->input[k]];
    KernelCall call = {.ninput = n->ninput,
                       .noutput = n->noutput,
                       .input = input,
                       .output = output,
                       .attr = n->attr,
                       .parameters = parameters};
    op_def(n->op)->reference(&call);
  }
  if (op_def(n->op)->communicates) lockstep_all_reduce(l, n);
}

static void check_lowering(Subject *s, int shards, int zigzag) {
  Graph *g = s->c.graph;
  int first = g->node.count, lowered[CASE_OUTPUTS];
  op_def(s->c.op)->lower(g, &s->node, 4, shards, s->node.input, lowered);
  Error error = {0};
  if (graph_verify(g, "lower", &error)) fail_msg("%s", error.message);
  int factor = 0;
  while (!(s->rule.lower >> factor & 1)) factor++;
  Lockstep l = {.g = g, .shards = shards, .dim = dim_of_factor(s, factor)};
  l.split = split_of(s->rule.size[factor], shards, zigzag ? ZIGZAG : l.dim == DIM_VOCAB ? PADDED : EVEN);
  for (int j = 0; j < shards; j++) {
    l.tensor[j] = xcalloc((size_t)g->tensor.count, sizeof(Operand));
    for (int k = 0; k < s->c.ninput; k++) {
      if (s->node.input[k] < 0) continue;
      Operand like = shard_operand(&l, s->node.input[k], j);
      l.tensor[j][s->node.input[k]] = take_part(&s->c.input[k], like.map);
      free(like.data);
    }
  }
  for (int i = first; i < g->node.count; i++) {
    rule_of(&s->arena, g, &g->node.data[i]);
    lockstep_node(&l, &g->node.data[i], &s->c.parameters);
  }
  for (int k = 0; k < s->c.noutput; k++) {
    double *whole = xcalloc((size_t)operand_elements(&s->expected[k]) + 1, sizeof *whole);
    for (int j = 0; j < shards; j++) {
      const Operand *part = &l.tensor[j][lowered[k]];
      int everywhere = s->rule.complete[k] >> factor & 1;
      if (everywhere) assert_true(operand_load(part, 0) == operand_load(&l.tensor[0][lowered[k]], 0));
      add_part(whole, part, everywhere ? 1.0 / shards : 1, s->c.name);
    }
    compare(whole, &s->expected[k], s->c.name, "lowered", k);
    free(whole);
  }
  for (int j = 0; j < shards; j++) {
    for (int t = 0; t < g->tensor.count; t++) free(l.tensor[j][t].data);
    free(l.tensor[j]);
  }
}

// The factor of a dim; MAX_FACTORS: the op has no such dim.
static int factor_of(const Subject *s, DimName dim) {
  int f = 0;
  while (f < MAX_FACTORS && dim_of_factor(s, f) != dim) f++;
  return f;
}

static void lowered_equals_unsharded(void **state) {
  static const int counts[] = {1, 2, 3, 8};
  int checked = 0;
  for (int i = 0; i < op_cases_count(); i++)
    for (int n = 0; n < 4; n++) {
      Subject s;
      subject_start(&s, i);
      int lower = op_def(s.c.op)->lower && s.rule.lower, zigzag = lower && s.rule.lower == 1u << factor_of(&s, DIM_SEQ);
      if (lower) {
        check_lowering(&s, counts[n], 0);
        checked++;
      }
      subject_end(&s);
      if (!zigzag || counts[n] == 1) continue;
      subject_start(&s, i);
      if (s.rule.size[factor_of(&s, DIM_SEQ)] % (2 * counts[n]) == 0) check_lowering(&s, counts[n], 1);
      subject_end(&s);
    }
  assert_true(checked >= 40);
}

// ---- dropout

// A microbatch of its own with a higher sample_base draws the same masks as its part of the whole batch.
static void masks_do_not_depend_on_microbatches(void **state) {
  int checked = 0;
  for (int i = 0; i < op_cases_count(); i++) {
    Subject s;
    subject_start(&s, i);
    if ((s.c.op == OP_DROPOUT || s.c.op == OP_ATTENTION) && s.c.input[0].size[0] > 1) {
      int64_t batch = s.c.input[0].size[0];
      for (int64_t b = 0; b < batch; b++) {
        OpCase one = s.c; // one sample, as if the microbatch were no more
        Operand output = s.expected[0];
        int64_t in = operand_elements(&output) / batch;
        for (int k = 0; k < one.ninput; k++) {
          one.input[k].data = (char *)one.input[k].data +
                              dtype_size(one.input[k].dtype) * (size_t)(operand_elements(&one.input[k]) / batch * b);
          one.input[k].size[0] = 1;
          one.input[k].map[0] = index_whole(1);
        }
        output.size[0] = 1;
        output.map[0] = index_whole(1);
        operand_allocate(&output);
        Operand outputs[2] = {output, s.expected[1]};
        if (one.noutput > 1) {
          outputs[1].size[0] = 1;
          outputs[1].map[0] = index_whole(1);
          operand_allocate(&outputs[1]);
        }
        one.parameters.sample_base += b;
        KernelCall call = op_case_call(&one);
        call.output = outputs;
        op_def(one.op)->reference(&call);
        for (int64_t e = 0; e < in; e++)
          if (operand_load(&output, e) != operand_load(&s.expected[0], b * in + e))
            fail_msg("%s: sample %lld differs", s.c.name, (long long)b);
        free(output.data);
        if (one.noutput > 1) free(outputs[1].data);
        checked++;
      }
    }
    subject_end(&s);
  }
  assert_true(checked > 10);
}

// Fraction kept, and how many elements differ from another mask.
static void mask_of(OpCase *c, uint8_t *kept) {
  KernelCall call = op_case_call(c);
  op_def(OP_DROPOUT)->reference(&call);
  for (int64_t i = operand_elements(&c->output[0]) - 1; i >= 0; i--) kept[i] = operand_load(&c->output[0], i) != 0;
}

static void masks_differ_by_step_seed_and_stream(void **state) {
  for (int i = 0; i < op_cases_count(); i++) {
    OpCase c;
    op_case_get(i, DTYPE_F64, &c);
    if (c.op == OP_DROPOUT && !strcmp(c.name, "dropout")) {
      uint8_t mask[4][4 * 6 * 7];
      mask_of(&c, mask[0]);
      c.parameters.step++;
      mask_of(&c, mask[1]);
      c.parameters.seed++;
      mask_of(&c, mask[2]);
      node_attr(&c.graph->node.data[c.node], DropoutAttr)->stream++;
      mask_of(&c, mask[3]);
      for (int a = 0; a < 4; a++) {
        int kept = 0, differ = 0;
        for (int e = 0; e < 168; e++) {
          kept += mask[a][e];
          differ += mask[a][e] != mask[(a + 1) % 4][e];
        }
        assert_in_range(kept, 98, 137); // 0.7 · 168 ± 3.3 standard deviations
        assert_in_range(differ, 40, 101);
      }
    }
    op_case_free(&c);
  }
}

// ---- slice

static void slice_takes_the_box_of_its_maps(void **state) {
  Shape shape = shape_of(3, (int64_t[]){7, 6, 3}, (DimName[]){DIM_VOCAB, DIM_EMBED, DIM_HEAD_DIM});
  Operand x = operand_create(DTYPE_I32, &shape);
  for (int i = 0; i < 126; i++) ((int32_t *)x.data)[i] = i + 1;
  static const Mode modes[] = {EVEN, PADDED, ZIGZAG};
  for (int a = 0; a < 3; a++)
    for (int b = 0; b < 3; b++)
      for (int c = 0; c < 2; c++)
        for (int n = 0; n < 12; n++) {
          IndexMap map[3] = {part_of(7, 3, n % 3, modes[a]), part_of(6, 2, n / 3 % 2, modes[b]),
                             part_of(3, 2, n / 6, modes[c])};
          Operand expected = take_part(&x, map), got = take_part(&x, map);
          memset(got.data, 0xff, (size_t)operand_elements(&got) * 4);
          KernelCall call = {.ninput = 1, .noutput = 1, .input = &x, .output = &got};
          op_def(OP_SLICE)->reference(&call);
          assert_memory_equal(got.data, expected.data, (size_t)operand_elements(&got) * 4);
          free(expected.data);
          free(got.data);
        }
  free(x.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_legal_sharding_equals_unsharded),
      cmocka_unit_test(linear_inputs_may_be_partial),
      cmocka_unit_test(lowered_equals_unsharded),
      cmocka_unit_test(masks_do_not_depend_on_microbatches),
      cmocka_unit_test(masks_differ_by_step_seed_and_stream),
      cmocka_unit_test(slice_takes_the_box_of_its_maps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
