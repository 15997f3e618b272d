// STATE_UPDATE: an optimizer's op on moments that are codes (state_code.h): they are decoded, the op updates them, and
// they are encoded again. Where ranks have parts of a block, its scale is the maximum over them: STATE_UPDATE is
// lowered to STATE_SCALES, which finds what a rank's part makes of the scale, an all_reduce, and STATE_UPDATE with
// scales given.
//
// Inputs: those of the op (StateAttr.ninput), of which moments are U8; the scales of each of these, in this order;
// perhaps their new scales. Outputs: those of the op, then the scales; moments and scales in place.
#include "op/optimizer.h"
#include "op/state_update.h"
#include <math.h>

static uint32_t bit(int k) { return 1u << k; }

uint32_t op_moments(Op op, uint32_t *squares) {
  const OpDef *d = op_def(op);
  uint32_t moments = d->moments;
  for (int k = 0; d->optimizer && d->optimizer->state[k]; k++) moments |= bit(1 + k);
  *squares = d->optimizer ? d->optimizer->squares << 1 : 0;
  return moments;
}

StateMoments state_moments(const StateAttr *attr, const int *present, const Dtype *dtype) {
  StateMoments s = {.count = 0};
  uint32_t squares, moments = op_moments((Op)attr->op, &squares);
  for (int k = 0, output = 0; k < attr->ninput; k++) {
    if (!present[k]) continue;
    const EncodingDef *e = &encodings[attr->encoding];
    if (moments >> k & 1 && dtype[k] == e->storage) {
      CHECK(s.count < OPTIMIZER_STATES);
      s.moment[s.count++] = (StateMoment){k, output, squares >> k & 1 ? e->squares : (Encoding)attr->encoding};
    }
    output++;
  }
  return s;
}

static StateMoments moments_of_node(const Graph *g, const Node *n) {
  const StateAttr *attr = node_attr(n, StateAttr);
  int present[STATE_MOST];
  Dtype dtype[STATE_MOST];
  CHECK(attr->ninput <= STATE_MOST && attr->ninput <= n->ninput, "%s", n->name);
  for (int k = 0; k < attr->ninput; k++) {
    present[k] = n->input[k] >= 0;
    dtype[k] = present[k] ? graph_tensor(g, n->input[k])->dtype : DTYPE_F32;
  }
  return state_moments(attr, present, dtype);
}

StateMoments state_moments_of_call(const KernelCall *call) {
  const StateAttr *attr = call->attr;
  int present[STATE_MOST];
  Dtype dtype[STATE_MOST];
  for (int k = 0; k < attr->ninput; k++) {
    present[k] = call->input[k].data != NULL;
    dtype[k] = call->input[k].dtype;
  }
  return state_moments(attr, present, dtype);
}

// Of the op's own outputs, with moments as wide as it computes; then they are narrow again.
static void shape_of_op(Graph *g, Node *node, const StateMoments *s) {
  const StateAttr attr = *node_attr(node, StateAttr);
  Op op = node->op;
  int ninput = node->ninput;
  memcpy(node->attr, &attr.attr, sizeof attr.attr);
  for (int i = 0; i < s->count; i++) graph_tensor(g, node->input[s->moment[i].input])->dtype = (Dtype)attr.dtype;
  node->op = (Op)attr.op;
  node->ninput = attr.ninput;
  op_def((Op)attr.op)->shape(g, node);
  memcpy(node->attr, &attr, sizeof attr);
  node->op = op;
  node->ninput = ninput;
  CHECK(node->noutput == attr.noutput, "%s", node->name);
  for (int i = 0; i < s->count; i++) {
    Dtype codes = encodings[s->moment[i].encoding].storage;
    graph_tensor(g, node->input[s->moment[i].input])->dtype = codes;
    graph_tensor(g, node->output[s->moment[i].output])->dtype = codes;
  }
}

static void check_scales(const Graph *g, const Node *node, const StateMoments *s, int sets) {
  int first = node_attr(node, StateAttr)->ninput;
  CHECK(s->count && node->ninput == first + sets * s->count, "%s", node->name);
  for (int i = 0; i < sets * s->count; i++) {
    const Tensor *scales = graph_tensor(g, node->input[first + i]);
    Shape should = encoding_scales_shape(s->moment[0].encoding,
                                         &graph_tensor(g, node->input[s->moment[0].input])->shape);
    CHECK(scales->dtype == DTYPE_F32 && scales->shape.rank == should.rank &&
              !memcmp(scales->shape.size, should.size, sizeof *should.size * (size_t)should.rank),
          "%s", node->name);
  }
}

static int are_given(const Node *n, const StateMoments *s) {
  return n->ninput > node_attr(n, StateAttr)->ninput + s->count;
}

static void update_shape(Graph *g, Node *node) {
  StateMoments s = moments_of_node(g, node);
  check_scales(g, node, &s, are_given(node, &s) ? 2 : 1);
  shape_of_op(g, node, &s);
  Shape scales = graph_tensor(g, node->input[node_attr(node, StateAttr)->ninput])->shape;
  for (int i = 0; i < s.count; i++) graph_output(g, node, "scales", DTYPE_F32, scales);
}

static void scales_shape(Graph *g, Node *node) {
  StateMoments s = moments_of_node(g, node);
  check_scales(g, node, &s, 1);
  Shape scales = graph_tensor(g, node->input[node_attr(node, StateAttr)->ninput])->shape;
  for (int i = 0; i < s.count; i++) graph_output(g, node, "scales", DTYPE_F32, scales);
}

// Dims before EncodingBlocks.lead are dims of the scales as well; of all others scales are a maximum.
static void write_rule(const Graph *g, const Node *node, int own_outputs, int lower, char *text, size_t size) {
  const StateAttr *attr = node_attr(node, StateAttr);
  int ninput = attr->ninput, rank = graph_tensor(g, node->input[0])->shape.rank;
  char letters[RULE_LETTERS], scales[RULE_LETTERS + 1], clauses[192] = "";
  const char *in[3 * STATE_MOST], *out[2 * STATE_MOST];
  uint32_t used = 0;
  op_letters(g, node->input[0], &used, letters);
  int lead = encoding_blocks((Encoding)attr->encoding, rank, graph_tensor(g, node->input[0])->shape.size).lead;
  memcpy(scales, letters, (size_t)lead);
  scales[lead] = op_letter(&used, DIM_NONE);
  scales[lead + 1] = 0;
  for (int k = 0; k < node->ninput; k++)
    in[k] = k >= ninput ? scales : node->input[k] >= 0 && graph_tensor(g, node->input[k])->shape.rank ? letters : "";
  for (int k = 0; k < node->noutput; k++) out[k] = k >= own_outputs ? scales : letters;
  size_t n = (size_t)snprintf(clauses, sizeof clauses, "; whole %c", scales[lead]);
  if (lower) n += (size_t)snprintf(clauses + n, sizeof clauses - n, " ; lower");
  for (int d = lead; lower && d < rank; d++)
    n += (size_t)snprintf(clauses + n, sizeof clauses - n, " %c", letters[d]);
  if (own_outputs) n += (size_t)snprintf(clauses + n, sizeof clauses - n, " ; complete");
  for (int k = own_outputs; own_outputs && k < node->noutput; k++) {
    n += (size_t)snprintf(clauses + n, sizeof clauses - n, " %d", k);
    for (int d = lead; d < rank; d++) n += (size_t)snprintf(clauses + n, sizeof clauses - n, " %c", letters[d]);
  }
  op_rule(text, size, in, node->ninput, out, node->noutput, clauses);
}

static void update_rule(const Graph *g, const Node *node, char *text, size_t size) {
  StateMoments s = moments_of_node(g, node);
  write_rule(g, node, node_attr(node, StateAttr)->noutput, !are_given(node, &s), text, size);
}

static void scales_rule(const Graph *g, const Node *node, char *text, size_t size) {
  write_rule(g, node, 0, 0, text, size);
}

static void update_lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  Node node = *like;
  StateMoments s = moments_of_node(g, like);
  CommAttr reduce = {.axes = axes, .maximum = FAULT(scales_are_added, 1, 0)};
  int all[3 * STATE_MOST], n = node.ninput;
  memcpy(all, input, sizeof *all * (size_t)n);
  int local = graph_node(g, OP_STATE_SCALES, op_derived_name(g, &node, "scales"), all, n, node.attr, sizeof(StateAttr));
  for (int i = 0; i < s.count; i++) {
    const char *name = op_derived_name(g, &node, arena_format(&g->arena, "all_reduce_scales%d", i));
    int reduced = graph_node(g, OP_ALL_REDUCE, name, &g->node.data[local].output[i], 1, &reduce, sizeof reduce);
    all[n + i] = g->node.data[reduced].output[0];
  }
  int id = graph_node(g, OP_STATE_UPDATE, op_derived_name(g, &node, "apply"), all, n + s.count, node.attr,
                      sizeof(StateAttr));
  for (int k = 0; k < node.noutput; k++) output[k] = g->node.data[id].output[k];
}

KernelCall state_inner_call(const KernelCall *call, const Operand *input, Operand *output) {
  const StateAttr *attr = call->attr;
  KernelCall inner = *call;
  inner.ninput = attr->ninput;
  inner.noutput = attr->noutput;
  inner.input = input;
  inner.output = output;
  inner.attr = &attr->attr;
  inner.queue = NULL;
  return inner;
}

// Reference kernels --------------------------------------------------------------------------------------------------

typedef struct Wide {
  KernelCall call; // of the op, on wide moments
  Operand input[STATE_MOST], output[STATE_MOST];
  void *memory[2 * STATE_MOST];
  int n;
} Wide;

static void *wide_memory(Wide *w, const Operand *x, Dtype dtype) {
  return w->memory[w->n++] = xcalloc((size_t)operand_elements(x) + 1, dtype_size(dtype));
}

// The op on copies of its moments, decoded; its other outputs are those of the call, or with `apart` copies too.
static void run_op(Wide *w, const KernelCall *call, const StateMoments *s, int apart) {
  const StateAttr *attr = call->attr;
  *w = (Wide){.n = 0};
  w->call = state_inner_call(call, w->input, w->output);
  memcpy(w->input, call->input, sizeof *w->input * (size_t)attr->ninput);
  for (int k = 0, out = 0; k < attr->ninput && out < attr->noutput; k++) {
    if (!call->input[k].data) continue;
    w->output[out] = apart ? call->input[k] : call->output[out];
    // Of an op that makes something new (MUON_MOMENTUM) as of one that has its last operand in place.
    if (out == attr->noutput - 1 && call->input[attr->ninput - 1].dtype == DTYPE_U16 && apart)
      w->output[out] = call->input[attr->ninput - 1];
    if (apart) w->output[out].data = wide_memory(w, &w->output[out], DTYPE_F64);
    out++;
  }
  for (int i = 0; i < s->count; i++) {
    const StateMoment *m = &s->moment[i];
    Operand *x = &w->input[m->input];
    const Operand *codes = &call->input[m->input], *scales = &call->input[attr->ninput + i];
    StateCode code;
    state_code(m->encoding, &code);
    x->dtype = (Dtype)attr->dtype;
    x->data = wide_memory(w, x, x->dtype);
    StateRuns runs = state_runs(m->encoding, codes, 0, operand_elements(codes));
    while (state_next_run(&runs))
      for (int64_t e = 0; e < runs.run.n; e++)
        operand_store(x, runs.run.at + e,
                      state_decode(&code, packed_load(codes->data, code.bits, runs.run.at + e),
                                   ((const float *)scales->data)[runs.run.scale]));
    if (apart && w->output[m->output].data) { // as wide as its input, which it must not write over
      w->output[m->output].dtype = x->dtype;
    } else {
      w->output[m->output] = *x;
    }
  }
  op_def((Op)attr->op)->reference(&w->call);
}

static void wide_free(Wide *w) {
  for (int i = 0; i < w->n; i++) free(w->memory[i]);
}

static void scales_of(Encoding encoding, const Operand *x, float *scale, int64_t n) {
  memset(scale, 0, sizeof *scale * (size_t)n);
  StateRuns runs = state_runs(encoding, x, 0, operand_elements(x));
  while (state_next_run(&runs))
    for (int64_t e = 0; e < runs.run.n; e++) {
      float one = state_scale((float)operand_load(x, runs.run.at + e));
      if (one > scale[runs.run.scale]) scale[runs.run.scale] = one;
    }
}

static void update_reference(const KernelCall *call) {
  const StateAttr *attr = call->attr;
  StateMoments s = state_moments_of_call(call);
  Wide w;
  run_op(&w, call, &s, 0);
  PhiloxKey key = philox_key(call->parameters->seed, call->parameters->step, attr->stream);
  for (int i = 0; i < s.count; i++) {
    const StateMoment *m = &s.moment[i];
    const Operand *x = &w.output[m->output], *scales = &call->output[attr->noutput + i];
    int64_t n = operand_elements(scales);
    float *scale = scales->data;
    if (call->ninput > attr->ninput + s.count)
      memcpy(scale, call->input[attr->ninput + s.count + i].data, sizeof *scale * (size_t)n);
    else scales_of(m->encoding, x, scale, n);
    StateCode code;
    state_code(m->encoding, &code);
    void *codes = call->output[m->output].data;
    memset(codes, 0, (size_t)(operand_elements(x) * code.bits + 7) / 8); // padding
    StateRuns runs = state_runs(m->encoding, &call->output[m->output], 0, operand_elements(x));
    while (state_next_run(&runs)) {
      float inverse = state_inverse(scale[runs.run.scale]);
      for (int64_t e = 0; e < runs.run.n; e++)
        packed_store(codes, code.bits, runs.run.at + e,
                     state_encode(&code, (float)operand_load(x, runs.run.at + e), inverse,
                                  state_random(key, i, runs.run.index + (uint64_t)e)));
    }
  }
  wide_free(&w);
}

static void scales_reference(const KernelCall *call) {
  StateMoments s = state_moments_of_call(call);
  Wide w;
  run_op(&w, call, &s, 1);
  for (int i = 0; i < s.count; i++)
    scales_of(s.moment[i].encoding, &w.output[s.moment[i].output], call->output[i].data,
              operand_elements(&call->output[i]));
  wide_free(&w);
}

// After the outputs of the op, before the scales.
static int writes_copy(Node *node, Dtype dtype) {
  StateAttr *attr = node_attr(node, StateAttr);
  const OpDef *op = op_def((Op)attr->op);
  Node inner = *node;
  memcpy(inner.attr, &attr->attr, sizeof attr->attr);
  inner.noutput = attr->noutput;
  int k = op->writes_copy ? op->writes_copy(&inner, dtype) : -1;
  if (k < 0) return -1;
  memcpy(&attr->attr, inner.attr, sizeof attr->attr);
  attr->noutput++;
  return k;
}

const OpDef op_def_state_update = {
    .name = "state_update",
    .meaning =
        "an optimizer's op, whose moments are codes of a few bits with a scale for each block by global index "
        "(state_code.h); scales are those of the new moments, or given; moments and scales in place",
    .shape = update_shape,
    .rule = update_rule,
    .lower = update_lower,
    .reference = update_reference,
    .writes_copy = writes_copy,
};

const OpDef op_def_state_scales = {
    .name = "state_scales",
    .meaning = "inputs of a STATE_UPDATE → for each of its moments the scales that this rank's elements ask for, to be "
               "reduced by maximum; 0 of blocks of which it has none",
    .shape = scales_shape,
    .rule = scales_rule,
    .reference = scales_reference,
};

// Building -----------------------------------------------------------------------------------------------------------

static int scales_of_variable(Graph *g, int moment) {
  int v = graph_find_of(g, OF_SCALES, moment);
  if (v >= 0) return v;
  Shape shape = encoding_scales_shape(g->variable.data[moment].encoding, &g->variable.data[moment].shape);
  v = graph_known_own(g, OF_SCALES, moment, shape);
  g->variable.data[v].dtype = DTYPE_F32;
  g->variable.data[v].parameter = g->variable.data[moment].parameter;
  g->variable.data[v].stages = g->variable.data[moment].stages;
  return v;
}

void op_encode_states(Graph *g, int node, Encoding encoding, Dtype dtype) {
  Node n = op_node(g, node);
  StateAttr attr = {.op = (int32_t)n.op, .dtype = (int32_t)dtype, .encoding = (int32_t)encoding, .ninput = n.ninput,
                   .noutput = n.noutput};
  memcpy(&attr.attr, n.attr, sizeof attr.attr);
  const Tensor first = *graph_tensor(g, n.input[0]);
  attr.stream = philox_name(g->variable.data[g->variable.data[first.variable].parameter].name);
  n.op = OP_STATE_UPDATE;
  memset(n.attr, 0, sizeof n.attr);
  memcpy(n.attr, &attr, sizeof attr);
  StateMoments s = moments_of_node(g, &n);
  if (!s.count) return;
  g->region = n.region;
  int *input = arena_array(&g->arena, int, n.ninput + s.count);
  memcpy(input, n.input, sizeof *input * (size_t)n.ninput);
  for (int i = 0; i < s.count; i++) {
    input[n.ninput + i] =
        graph_read_apart(g, scales_of_variable(g, graph_tensor(g, n.input[s.moment[i].input])->variable));
    graph_tensor(g, input[n.ninput + i])->stages = first.stages;
  }
  n.input = input;
  n.ninput += s.count;
  for (int i = 0; i < s.count; i++) {
    const Tensor scales = *graph_tensor(g, input[attr.ninput + i]);
    graph_output(g, &n, "scales", DTYPE_F32, scales.shape);
    graph_tensor(g, n.output[n.noutput - 1])->stages = n.stages;
  }
  g->node.data[node] = n;
  for (int i = 0; i < s.count; i++) op_update(g, node, attr.noutput + i, attr.ninput + i);
  g->region = REGION_MICRO;
}
