// Half by hand: from a user's graph to a job, to train it and to run it forward.
#include "op/build.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include "api/graph_compile.h"
#include "base/fault.h"
#include <string.h>

// The nodes that some tensors depend on: 1 each; the caller frees it.
static char *needed_for(const Graph *g, const int *tensor, int count) {
  char *needed = xcalloc((size_t)g->node.count + 1, 1);
  for (int i = 0; i < count; i++)
    if (graph_tensor(g, tensor[i])->producer >= 0) needed[graph_tensor(g, tensor[i])->producer] = 1;
  for (int i = g->node.count - 1; i >= 0; i--)
    for (int k = 0; needed[i] && k < g->node.data[i].ninput; k++) {
      int producer = g->node.data[i].input[k] < 0 ? -1 : graph_tensor(g, g->node.data[i].input[k])->producer;
      if (producer >= 0) needed[producer] = 1;
    }
  return needed;
}

int api_graph_check_graph(const PlaitGraph *h, Error *error) {
  const Graph *g = h->g;
  if (h->error.code) return error_set(error, h->error.code, "%s", h->error.message);
  if (h->loss.tensor < 0) return error_set(error, PLAIT_BAD_INPUT, "the graph has no loss");
  char *needed = needed_for(g, &h->loss.tensor, 1);
  int code = PLAIT_OK;
  for (int v = 0; v < g->variable.count && !code; v++) {
    int read = 0, depends = !variable_is_trained(&g->variable.data[v]);
    for (int i = 0; i < g->node.count; i++)
      for (int k = 0; k < g->node.data[i].ninput; k++)
        if (g->node.data[i].input[k] >= 0 && graph_tensor(g, g->node.data[i].input[k])->variable == v)
          read = 1, depends |= needed[i];
    if (!depends)
      code = error_set(error, PLAIT_BAD_INPUT,
                read ? "the loss does not depend on the parameter %s" : "no op reads the parameter %s",
                g->variable.data[v].name + strlen(USER_PARAMETER));
  }
  free(needed);
  return code;
}

// The forward graph of one microbatch.
static Graph *micro_graph(const PlaitGraph *h, int64_t samples) {
  Graph *g = graph_copy(h->g);
  for (int i = 0; i < g->tensor.count; i++) {
    Shape *s = &g->tensor.data[i].shape;
    if (s->rank && s->dim[0] == DIM_BATCH) s->size[0] = samples;
  }
  g->node.data[graph_tensor(g, h->loss.tensor)->producer].layer = g->layers - 1;
  return g;
}

// Leaves out what is computed for outputs alone.
static void drop_others(Graph *g, const int *tensor, int tensors) {
  char *needed = needed_for(g, tensor, tensors);
  int count = 0;
  for (int i = 0; i < g->node.count; i++) {
    Node n = g->node.data[i];
    if (needed[i]) {
      n.id = count;
      g->node.data[count++] = n;
    }
    for (int k = 0; k < n.noutput; k++) graph_tensor(g, n.output[k])->producer = needed[i] ? n.id : -1;
  }
  g->node.count = count;
  free(needed);
}

static Graph *training_graph(const PlaitGraph *h, int64_t samples) {
  Graph *g = micro_graph(h, samples);
  drop_others(g, &h->loss.tensor, 1);
  return g;
}

// Without what only training does, and with the outputs. Each output is a copy, which placements_from places.
static Graph *forward_graph(const PlaitGraph *h, int64_t samples) {
  Graph *g = micro_graph(h, samples);
  int *tensor = xcalloc((size_t)h->output.count + 1, sizeof *tensor);
  tensor[0] = h->loss.tensor;
  for (int i = 0; i < h->output.count; i++) tensor[i + 1] = h->output.data[i].tensor;
  drop_others(g, tensor, h->output.count + 1);
  free(tensor);
  for (int i = 0; i < g->node.count; i++) {
    const OpDef *def = op_def(g->node.data[i].op);
    if (FAULT(forward_drops_out, def->evaluate != NULL, 0)) def->evaluate(&g->node.data[i]);
  }
  for (int i = 0; i < h->output.count; i++) {
    const ApiGraphOutput *o = &h->output.data[i];
    int producer = graph_tensor(g, o->tensor)->producer;
    g->layer = producer < 0 ? 0 : g->node.data[producer].layer;
    op_output(g, o->name, op_identity(g, o->copy, o->tensor));
  }
  return g;
}

// The placements that the user and the plan have given, for axes that the mesh has; of outputs samples are cut over dp
// alone. Returns their count.
static int placements_from(const ApiGraphSetup *s, LayoutTensor *annotation) {
  const PlaitGraph *h = s->graph;
  const Mesh *mesh = &s->at->mesh;
  int n = 0;
  for (int i = 0; i < s->annotation.count; i++) {
    const ApiGraphAnnotation *a = &s->annotation.data[i];
    int axis = a->dim < 0 ? -1 : mesh_find(mesh, a->axis);
    if (a->dim < 0 || axis >= 0) annotation[n++] = (LayoutTensor){graph_tensor(h->g, a->tensor)->name, a->dim, axis};
  }
  for (int i = 0; i < h->output.count; i++) annotation[n++] = (LayoutTensor){h->output.data[i].copy, -1, -1};
  return n;
}

// The most samples that a rank of dp has of a microbatch.
static int64_t micro_of(const PlaitGraph *h, int dp, int microbatches) {
  int64_t most = (h->samples + dp - 1) / dp;
  return (most + microbatches - 1) / microbatches;
}

// Of a sample: labels, or 1 where there are none.
static int64_t labels_of(const PlaitGraph *h) {
  for (int i = 0; i < h->g->input.count && h->loss.labels >= 0; i++)
    if (input_own(&h->g->input.data[i]) == h->loss.labels)
      return shape_elements(&graph_tensor(h->g, h->g->input.data[i].tensor)->shape) / h->samples;
  return 1;
}

// Layers of each stage, evenly.
static int cut_evenly(int layers, int stages, int *cut) {
  for (int l = 0; l < layers; l++) cut[l * stages / layers]++;
  return stages;
}

static StepParallel parallel_of(const ApiGraphSetup *s, LayoutTensor *annotation) {
  const PlaitTrainingOptions *o = &s->options;
  return (StepParallel){.mesh = s->at->mesh,
                           .layout = layout_shipped(LAYOUT_SHIPPED_DATA),
                           .annotations = placements_from(s, annotation),
                           .annotation = annotation,
                           .propagate = 1,
                           .zero = o->zero,
                           .reshard = 1,
                           .overlap = {.on = 1, .bucket_bytes = 25000000, .read_ahead = 1},
                           .schedule = schedule_by_name(o->schedule ? o->schedule : "1f1b"),
                           .stages_per_rank = 1};
}

static void fill_step(const ApiGraphSetup *s, LayoutTensor *annotation, const StepModel *model, Step *step) {
  const PlaitGraph *h = s->graph;
  const PlaitTrainingOptions *o = &s->options;
  Op optimizer = (Op)optimizer_find(o->optimizer ? o->optimizer : "sgd");
  const OptimizerDef *def = op_def(optimizer)->optimizer;
  *step = (Step){
      .parallel = parallel_of(s, annotation),
      .batch = {.samples = h->samples,
                .micro = micro_of(h, s->at->mesh.axis[s->at->dp].size, s->microbatches),
                .length = {[DIM_SEQ] = 1}}, // no placement of the user's is one of a sequence
      .precision = h->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32, // the graph is in its own dtype otherwise
      .update = {.optimizer = optimizer,
                 .beta1 = def->betas[0],
                 .beta2 = def->betas[1],
                 .epsilon = 1e-8,
                 .decay = o->weight_decay,
                 .momentum = o->momentum > 0 ? o->momentum : def->momentum,
                 .clip = o->clip,
                 .count = h->loss.labels < 0 ? h->loss.elements : 0}};
  step_choose(step, model);
}

int api_graph_compile(const ApiGraphSetup *s, const Device *device, int forward, Job **job, Error *error) {
  const PlaitGraph *h = s->graph;
  LayoutTensor *annotation = xcalloc((size_t)(s->annotation.count + h->output.count) + 1, sizeof *annotation);
  int cut[MAX_STAGES] = {0};
  StepModel model = {.known = 1, .name = "the graph", .layers = h->g->layers};
  CompileOptions options = {.mode = MODEL_TRAIN, .device = device};
  fill_step(s, annotation, &model, &options.step);
  ParallelProblem problem;
  *job = NULL;
  int code = parallel_check(&options.step, &model, &problem);
  if (code) error_set(error, code, "%s", problem.text);
  else {
    options.step.parallel.cut = cut_evenly(h->g->layers, mesh_pipeline_ranks(&s->at->mesh), cut);
    options.step.parallel.layers = cut;
    options.parallel = parallel_create(&options.step, &model);
    options.step.batch.length[DIM_SEQ] = labels_of(h);
    JobOptions run = {.threads = s->options.threads ? s->options.threads : 1, .seed = s->options.seed};
    compile_set_batch(&options, h->samples, options.step.batch.micro);
    code = job_create_built(training_graph(h, options.micro_samples), h->loss.tensor, &options, &run, job, error);
    if (!code && forward)
      code = job_add(*job, &role_evaluate, forward_graph(h, options.micro_samples), h->loss.tensor, error);
  }
  if (*job) (*job)->options.parallel.layout.annotation = (*job)->options.step.parallel.annotation = NULL;
  free(annotation);
  return code;
}
