// Stages: which contiguous layers each virtual pipeline stage runs, and so where nodes run and Variables live.
#include "base/fault.h"
#include "sharding/rule.h"
#include "op/op.h"
#include "compile/cut.h"
#include "compile/pass.h"
#include "model/model.h"
#include <string.h>

// ---- the cut -------------------------------------------------------------------------------------------------------

// Of a tensor as one data rank has it, where nothing else cuts it; activations in the dtype of the model's products.
static void whole_operand(const Tensor *x, const CompileOptions *o, Operand *operand) {
  int ranks = parallel_data_ranks(&o->parallel);
  operand->dtype = x->dtype == DTYPE_F32 ? o->step.precision : x->dtype;
  operand->rank = x->shape.rank;
  for (int d = 0; d < x->shape.rank; d++) {
    int64_t size = x->shape.size[d];
    if (x->shape.dim[d] == DIM_BATCH) size = (size + ranks - 1) / ranks;
    operand->size[d] = size, operand->map[d] = index_whole(size);
  }
  if (!tensor_is_compact(x)) return;
  operand->size[0] = tensor_most_rows(x, operand->size);
  operand->size[1] = operand->size[2] = 1;
}

static OpWork node_work(const Graph *g, const Node *n, const CompileOptions *o) {
  Arena scratch = {0};
  Operand *operand = arena_array(&scratch, Operand, n->ninput + n->noutput);
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    if (t >= 0) whole_operand(graph_tensor(g, t), o, &operand[k]);
  }
  OpWork work = op_work(op_def(n->op), operand, n->ninput, operand + n->ninput, n->noutput, n->attr);
  arena_free(&scratch);
  return work;
}

static double node_cost(const Graph *g, const Node *n, const CompileOptions *o) {
  OpWork work = node_work(g, n, o);
  return FAULT(stages_by_flops, o->seconds, NULL) ? o->seconds(o->times, o->step.precision, &work) : work.matrix;
}

// sum[l]: the cost of everything before layer l, the embedding included; sum[layers + 1]: of all, with the head.
static double *sums_of_costs(const Graph *g, const CompileOptions *o, Arena *scratch) {
  double *sum = arena_array(scratch, double, g->layers + 2), before = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO) continue;
    sum[n->layer < 0 ? 0 : n->layer >= g->layers ? g->layers + 1 : n->layer + 1] += node_cost(g, n, o);
  }
  for (int l = 0; l <= g->layers + 1; l++) before = sum[l] += before;
  return sum;
}

static void cut_by_cost(Graph *g, const CompileOptions *o) {
  Arena scratch = {0};
  const double *sum = sums_of_costs(g, o, &scratch);
  cut_layers(sum, g->layers, g->stages, mesh_stage_map(&o->parallel.mesh), g->cut);
  arena_free(&scratch);
}

// ---- where things are ----------------------------------------------------------------------------------------------

static void stage_micro(Graph *g) {
  int *alone = xcalloc((size_t)g->stages, sizeof *alone); // (stages) the set of each one
  StageSet *users = xcalloc((size_t)g->variable.count + 1, sizeof *users); // (Variables)
  for (int s = 0; s < g->stages; s++) {
    StageSet one = stages_one(s);
    alone[s] = graph_stage_set(g, &one);
  }
  for (int i = 0; i < g->node.count; i++) {
    Node *n = &g->node.data[i];
    if (n->region != REGION_MICRO) continue;
    n->stage = graph_stage_of_layer(g, n->layer);
    n->stages = alone[n->stage];
    for (int k = 0; k < n->ninput + n->noutput; k++) {
      int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
      if (t < 0) continue;
      if (k >= n->ninput) graph_tensor(g, t)->stages = n->stages;
      int v = graph_tensor(g, t)->variable;
      if (v >= 0) stages_add(&users[v], n->stage);
    }
  }
  for (int v = 0; v < g->variable.count; v++) g->variable.data[v].stages = graph_stage_set(g, &users[v]);
  free(users);
  free(alone);
}

// Scalars live everywhere, but one that an update in MICRO writes where that runs; what belongs to a parameter lives
// where the parameter does; outputs and caches live where they are made, as stage_micro has found.
static void stage_variables(Graph *g) {
  StageSet all = stages_below(g->stages);
  int everywhere = graph_stage_set(g, &all);
  for (int i = 0; i < g->variable.count; i++) {
    Variable *v = &g->variable.data[i];
    if (variable_is_stored(v) || variable_follows_its_maker(v)) continue;
    v->stages = v->parameter >= 0 ? g->variable.data[v->parameter].stages : everywhere;
  }
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    for (int k = 0; n->region == REGION_MICRO && n->update && k < n->noutput; k++) {
      const Tensor *t = graph_tensor(g, n->output[k]);
      if (t->variable >= 0 && !t->shape.rank) g->variable.data[t->variable].stages = n->stages;
    }
  }
}

static int is_only_reader(const Graph *g, int tensor, const Node *reader) {
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; i != reader->id && k < g->node.data[i].ninput; k++)
      if (g->node.data[i].input[k] == tensor) return 0;
  return 1;
}

// A term that lives on several stages (of a tied Variable) is added by the first of them alone, see executor. Where
// nobody else reads it, it is not even computed on the others.
static void narrow_terms(Graph *g, const Node *sum) {
  for (int k = 0; k < sum->ninput; k++) {
    Tensor *t = graph_tensor(g, sum->input[k]);
    if (t->variable >= 0 || t->producer < 0 || stages_count(graph_stages(g, t->stages)) < 2 ||
        !is_only_reader(g, t->id, sum))
      continue;
    Node *maker = &g->node.data[t->producer];
    StageSet first = stages_one(stages_next(graph_stages(g, t->stages), 0));
    if (maker->noutput == 1)
      t->stages = maker->stages = FAULT(norm_counts_tied_twice, graph_stage_set(g, &first), t->stages);
  }
}

// A node of BEGIN or END runs where all its operands live. A sum of terms that live on different stages runs on all of
// them, each adding what it has; what is left is a partial sum over pp (see place).
static void stage_node(Graph *g, Node *n, Arena *scratch) {
  StageSet all = stages_below(g->stages), stages = all, some = {{0}};
  for (int k = 0; k < n->ninput; k++) {
    if (n->input[k] < 0) continue;
    StageSet s = *graph_stages(g, graph_holders(g, n->input[k]));
    stages_intersect(&s, &all);
    stages_intersect(&stages, &s);
    stages_unite(&some, &s);
  }
  for (int k = 0; k < n->noutput; k++)
    if (graph_tensor(g, n->output[k])->variable >= 0)
      stages_intersect(&stages, graph_stages(g, g->variable.data[graph_tensor(g, n->output[k])->variable].stages));
  if (stages_count(&some) && !stages_equal(&some, &stages) && n->ninput > 1) {
    Rule r = rule_of(scratch, g, n);
    if (rule_is_sum(&r)) {
      stages = all;
      narrow_terms(g, n);
    }
  }
  n->stages = graph_stage_set(g, &stages);
  for (int k = 0; k < n->noutput; k++) graph_tensor(g, n->output[k])->stages = n->stages;
}

// "[2,2,1,0]": what optimizer.delay must be where stages update at once, one microbatch a step.
static void right_delays(const Graph *g, char *text, size_t size) {
  size_t n = 0;
  for (int l = 0; l < g->layers && n < size; l++)
    n += (size_t)snprintf(text + n, size - n, "%s%d", l ? "," : "[", g->stages - 1 - graph_stage_of_layer(g, l));
  if (n < size) snprintf(text + n, size - n, "]");
}

// An update of stage s comes p - 1 - s steps before the next one's forward there.
static int check_delays(const Graph *g, const CompileOptions *o, Error *error) {
  char right[400], given[400] = "0";
  const char *name = o->parallel.pipeline.schedule->name;
  const Delay *delay = &o->step.update.delay;
  int wrong = 0;
  for (int l = -1; l <= g->layers; l++) {
    int steps = g->stages - 1 - graph_stage_of_layer(g, l), nearest = l < 0 ? 0 : l >= g->layers ? g->layers - 1 : l;
    if (steps != g->stages - 1 - graph_stage_of_layer(g, nearest))
      return error_set(error, PLAIT_BAD_INPUT,
                       "parallel.pipeline is %s, but the %s stage has no layer, so that the %s would have "
                       "another delay than the layer beside it; give every stage one with parallel.layers",
                       name, l < 0 ? "first" : "last", l < 0 ? "embedding" : "head");
    wrong |= delay_of_layer(delay, l, g->layers) != steps;
  }
  if (!wrong) return PLAIT_OK;
  right_delays(g, right, sizeof right);
  for (size_t i = 0, n = 0; i < (size_t)delay->count && n < sizeof given; i++)
    n += (size_t)snprintf(given + n, sizeof given - n, "%s%d%s", delay->count == 1 ? "" : i ? "," : "[", delay->of[i],
                          delay->count > 1 && i + 1 == (size_t)delay->count ? "]" : "");
  return error_set(
      error, PLAIT_BAD_INPUT,
      "optimizer.delay is %s, but parallel.pipeline is %s, whose gradients are those of the weights "
      "of as many steps ago as there are stages after a layer's; take optimizer.delay %s, or parallel.pipeline "
      "1f1b",
      given, name, right);
}

int pass_stage(Graph **graph, const CompileOptions *o, Error *error) {
  Graph *g = *graph;
  int stages = o->parallel.pipeline.stages;
  const int *layers = o->parallel.pipeline.cut_given ? o->parallel.pipeline.layers : NULL;
  CHECK(stages <= MAX_STAGES && (stages == 1 || layers || stages <= g->layers), "%d stages of %d layers", stages,
        g->layers); // parallel_check refuses them
  g->stages = stages;
  if (layers) {
    for (int s = 0; s < stages; s++) g->cut[s + 1] = g->cut[s] + layers[s];
    CHECK(g->cut[stages] == g->layers, "%d layers of %d in stages", g->cut[stages], g->layers);
  } else {
    cut_by_cost(g, o);
  }
  int code = o->mode == MODEL_TRAIN && o->parallel.pipeline.schedule && o->parallel.pipeline.schedule->at_once
                 ? check_delays(g, o, error)
                 : PLAIT_OK;
  if (code) return code;
  stage_micro(g);
  stage_variables(g);
  Arena scratch = {0};
  for (int i = 0; i < g->node.count; i++)
    if (g->node.data[i].region != REGION_MICRO) stage_node(g, &g->node.data[i], &scratch);
  arena_free(&scratch);
  return PLAIT_OK;
}
