// Half by hand: compiling a user's graph for a mesh, to train on it and to run it forward. See plait/graph.h.
#include "op/build.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include "runtime/launch.h"
#include "api/by_hand.h"
#include "base/fault.h"
#include "base/nearest.h"
#include "base/shares.h"
#include <ctype.h>
#include <math.h>
#include <string.h>

enum { MOST_MICROBATCHES = 1 << 16, MOST_NAMES = 64 };

// Options ------------------------------------------------------------------------------------------------------------

static int add_axis(PlaitTraining *t, const char *name, size_t length, int size, Error *error) {
  char own[BY_HAND_NAME] = "";
  memcpy(own, name, length);
  if (mesh_axis(&t->mesh, own) >= 0) return error_set(error, PLAIT_BAD_INPUT, "mesh: the axis %s is there twice", own);
  int others = t->mesh.naxis - (mesh_axis(&t->mesh, "pp") >= 0) - (mesh_axis(&t->mesh, "dp") >= 0);
  if (strcmp(own, "pp") && strcmp(own, "dp") && others == MAX_AXES - 2)
    return error_set(error, PLAIT_BAD_INPUT, "mesh: more than %d axes beside pp and dp", MAX_AXES - 2);
  mesh_add(&t->mesh, strcpy(t->axis[t->mesh.naxis], own), size);
  return PLAIT_OK;
}

// "pp=2 dp=2 tp=2"; axes that plait asks for and the user did not name have size 1.
static int parse_mesh(PlaitTraining *t, const char *text, Error *error) {
  t->mesh = (Mesh){.ranks = 1};
  int code = PLAIT_OK;
  for (const char *p = text ? text : ""; *(p += strspn(p, " ")) && !code;) {
    size_t length = strspn(p, "abcdefghijklmnopqrstuvwxyz_"), word = strcspn(p, " ");
    char *end = NULL;
    long size = p[length] == '=' && p[length + 1] >= '0' && p[length + 1] <= '9' ? strtol(p + length + 1, &end, 10) : 0;
    if (!length || length >= BY_HAND_NAME || !end || end != p + word || size < 1 || size > 1 << 16 ||
        (int64_t)t->mesh.ranks * size > 1 << 20)
      return error_set(error, PLAIT_BAD_INPUT,
                       "mesh: \"%.*s\" in \"%.200s\"; allowed: NAME=SIZE in small letters, as in \"pp=2 dp=2 tp=2\", "
                       "and at most %d ranks",
                       (int)(word < 80 ? word : 80), p, text, 1 << 20);
    code = add_axis(t, p, length, (int)size, error);
    p += word;
  }
  static const char *const needed[] = {"pp", "dp"};
  for (int i = 0; i < 2 && !code; i++)
    if (mesh_axis(&t->mesh, needed[i]) < 0) code = add_axis(t, needed[i], 2, 1, error);
  if (!code) t->dp = mesh_axis(&t->mesh, "dp");
  return code;
}

// Axes that mean something to the graph, each once; returns their count.
static int axes_of(const PlaitGraph *h, const char *names[MOST_NAMES], char *list, size_t size) {
  int n = 0;
  names[n++] = "dp";
  names[n++] = "pp";
  for (int i = 0; i < h->annotation.count && n < MOST_NAMES; i++) {
    const ByHandAnnotation *a = &h->annotation.data[i];
    int seen = a->dim < 0;
    for (int k = 0; k < n; k++) seen |= !strcmp(names[k], a->axis);
    if (!seen) names[n++] = a->axis;
  }
  size_t at = 0;
  for (int k = 0; k < n && at < size; k++)
    at += (size_t)snprintf(list + at, size - at, "%s%s", k ? ", " : "", names[k]);
  return n;
}

// Ranks of an axis that nothing names would all do the same.
static int check_axes(const PlaitGraph *h, const Mesh *mesh, Error *error) {
  const char *names[MOST_NAMES];
  char list[256];
  int n = axes_of(h, names, list, sizeof list);
  for (int a = 0; a < mesh->naxis; a++) {
    const char *axis = mesh->axis[a].name, *near;
    int known = mesh->axis[a].size == 1;
    for (int k = 0; k < n; k++) known |= !strcmp(names[k], axis);
    if (known) continue;
    near = nearest_word(axis, names, n);
    return error_set(error, PLAIT_BAD_INPUT,
                     "mesh: no plait_graph_shard of the graph names the axis \"%s\", so that its %d ranks would all "
                     "compute the same; %s%s%sallowed: %s",
                     axis, mesh->axis[a].size, near ? "did you mean \"" : "", near ? near : "", near ? "\"? " : "",
                     list);
  }
  return PLAIT_OK;
}

// A tensor whose samples are cut by an annotation, or NULL: shares that differ from rank to rank are those of dp.
static const char *cuts_samples(const PlaitGraph *h, const Mesh *mesh) {
  for (int i = 0; i < h->annotation.count; i++) {
    const ByHandAnnotation *a = &h->annotation.data[i];
    int axis = a->dim == 0 && by_hand_samples(h, a->tensor) ? mesh_axis(mesh, a->axis) : -1;
    if (axis >= 0 && mesh->axis[axis].size > 1) return graph_tensor(h->g, a->tensor)->name;
  }
  return NULL;
}

// The samples of a step among ranks of dp and microbatches.
static int check_shares(const PlaitGraph *h, const Mesh *mesh, int asked, int microbatches, Error *error) {
  int dp = mesh->axis[mesh_axis(mesh, "dp")].size;
  int64_t unit = (int64_t)microbatches * dp, below = h->samples / unit * unit, most = (h->samples + dp - 1) / dp;
  const char *tensor = h->samples % unit ? cuts_samples(h, mesh) : NULL;
  if (asked < 0 || microbatches > MOST_MICROBATCHES)
    return error_set(error, PLAIT_BAD_INPUT, "microbatches is %d; allowed: 1 to %d", asked, MOST_MICROBATCHES);
  if (microbatches > most)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "microbatches is %d, but of the graph's %lld samples a rank of dp (%d) has %lld at most; allowed: 1 "
        "to %lld",
        microbatches, (long long)h->samples, dp, (long long)most, (long long)most);
  if (!tensor) return PLAIT_OK;
  char nearest[64];
  if (below) snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)below, (long long)(below + unit));
  else snprintf(nearest, sizeof nearest, "%lld", (long long)unit);
  return error_set(
      error, PLAIT_BAD_INPUT,
      "the graph has %lld samples, which must be a multiple of microbatches (%d) · dp (%d) where a placement "
      "cuts the samples of a tensor, as of %s; the nearest is %s",
      (long long)h->samples, microbatches, dp, tensor, nearest);
}

static int check_options(const PlaitGraph *h, const PlaitTrainingOptions *o, const Mesh *mesh, int microbatches,
                         Error *error) {
  int code = check_axes(h, mesh, error);
  if (!code) code = check_shares(h, mesh, o->microbatches, microbatches, error);
  if (code) return code;
  const ScheduleGenerator *schedule = schedule_by_name(o->schedule ? o->schedule : "1f1b");
  if (!schedule || !schedule_can_run(schedule, 1) || schedule->streams) { // gradients here have no delay
    char names[256];
    schedule_names(1, names, sizeof names);
    return error_set(error, PLAIT_BAD_INPUT, "schedule is \"%.80s\"; allowed: %s", o->schedule, names);
  }
  if (o->zero < 0 || o->zero > 3) return error_set(error, PLAIT_BAD_INPUT, "zero is %d; allowed: 0 to 3", o->zero);
  if (o->threads < 0 || o->threads > 1024)
    return error_set(error, PLAIT_BAD_INPUT, "threads is %d; allowed: 0 to 1024", o->threads);
  if (o->optimizer && optimizer_find(o->optimizer) < 0) {
    char names[256];
    optimizer_names(names, sizeof names);
    return error_set(error, PLAIT_BAD_INPUT, "optimizer is \"%.80s\"; allowed: %s", o->optimizer, names);
  }
  if (!(o->momentum >= 0 && o->momentum < 1))
    return error_set(error, PLAIT_BAD_INPUT, "momentum is %g; allowed: at least 0 and below 1", o->momentum);
  if (!(o->weight_decay >= 0 && isfinite(o->weight_decay)))
    return error_set(error, PLAIT_BAD_INPUT, "weight_decay is %g; allowed: at least 0", o->weight_decay);
  if (!(o->clip >= 0)) return error_set(error, PLAIT_BAD_INPUT, "clip is %g; allowed: at least 0", o->clip);
  return PLAIT_OK;
}

static int check_comm(const PlaitTraining *t, Error *error) {
  if (!t->comm && t->mesh.ranks > LAUNCH_MOST_THREADS)
    return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks; allowed in one process: %d", t->mesh.ranks,
                     LAUNCH_MOST_THREADS);
  if (!t->comm) return PLAIT_OK;
  int n = plait_comm_size(t->comm);
  if (n != t->mesh.ranks)
    return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks, but comm has %d", t->mesh.ranks, n);
  for (int r = 0; r < n; r++)
    if (plait_comm_world_rank(t->comm, r) != r)
      return error_set(error, PLAIT_BAD_INPUT, "comm is not the communicator of all ranks of its world");
  return PLAIT_OK;
}

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

static int check_graph(const PlaitGraph *h, Error *error) {
  const Graph *g = h->g;
  if (h->error.code) return error_set(error, h->error.code, "%s", h->error.message);
  if (h->loss.tensor < 0) return error_set(error, PLAIT_BAD_INPUT, "the graph has no loss");
  char *needed = needed_for(g, &h->loss.tensor, 1);
  int code = PLAIT_OK;
  for (int v = 0; v < g->variable.count && !code; v++) {
    int read = 0, depends = g->variable.data[v].kind != VARIABLE_PARAMETER;
    for (int i = 0; i < g->node.count; i++)
      for (int k = 0; k < g->node.data[i].ninput; k++)
        if (g->node.data[i].input[k] >= 0 && graph_tensor(g, g->node.data[i].input[k])->variable == v)
          read = 1, depends |= needed[i];
    if (!depends)
      code = error_set(error, PLAIT_BAD_INPUT,
                read ? "the loss does not depend on the parameter %s" : "no op reads the parameter %s",
                g->variable.data[v].name + strlen(BY_HAND_PARAMETER));
  }
  free(needed);
  return code;
}

// Compiling ----------------------------------------------------------------------------------------------------------

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

// Without what only training does, and with the outputs. What is put out is a copy, which placements_from places.
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
    const ByHandOutput *o = &h->output.data[i];
    int producer = graph_tensor(g, o->tensor)->producer;
    g->layer = producer < 0 ? 0 : g->node.data[producer].layer;
    op_output(g, o->name, op_identity(g, o->copy, o->tensor));
  }
  return g;
}

// The placements that the user has given, for axes that the mesh has; of outputs samples are cut over dp alone. Returns
// their count.
static int placements_from(const PlaitGraph *h, const Mesh *mesh, LayoutTensor *annotation) {
  int n = 0;
  for (int i = 0; i < h->annotation.count; i++) {
    const ByHandAnnotation *a = &h->annotation.data[i];
    int axis = a->dim < 0 ? -1 : mesh_axis(mesh, a->axis);
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
    if (h->g->input.data[i].own == h->loss.labels)
      return shape_elements(&graph_tensor(h->g, h->g->input.data[i].tensor)->shape) / h->samples;
  return 1;
}

// What passes say of a parameter, with the user's name for it.
static void use_user_names(Error *error) {
  const size_t prefix = strlen(BY_HAND_PARAMETER);
  for (char *at = error->message; (at = strstr(at, BY_HAND_PARAMETER)); at++)
    if (isalnum((unsigned char)at[prefix]) || at[prefix] == '_' || at[prefix] == '-')
      memmove(at, at + prefix, strlen(at + prefix) + 1);
}

static int compile(PlaitTraining *t, const PlaitGraph *h, const PlaitTrainingOptions *o, int microbatches,
                   Error *error) {
  Op optimizer = (Op)optimizer_find(o->optimizer ? o->optimizer : "sgd");
  const double *betas = op_def(optimizer)->optimizer->betas;
  LayoutTensor *annotation = xcalloc((size_t)(h->annotation.count + h->output.count) + 1, sizeof *annotation);
  int layers = h->g->layers, stages = mesh_pipeline_ranks(&t->mesh), cut[MAX_STAGES] = {0};
  ParallelOptions parallel = {.mesh = t->mesh,
                              .layout = layout_shipped(LAYOUT_SHIPPED_DATA),
                              .annotations = placements_from(h, &t->mesh, annotation),
                              .annotation = annotation,
                              .propagate = 1,
                              .zero = o->zero,
                              .reshard = 1,
                              .overlap = {.on = 1, .bucket_bytes = 25000000, .read_ahead = 1},
                              .schedule = schedule_by_name(o->schedule ? o->schedule : "1f1b"),
                              .stages_per_rank = 1};
  Workload workload = {.model = "the graph",
                       .layers = layers,
                       .samples = h->samples,
                       .micro = micro_of(h, t->mesh.axis[t->dp].size, microbatches),
                       .seq = 1};
  ParallelProblem problem;
  int code = parallel_check(&parallel, &workload, &problem);
  if (code) error_set(error, code, "%s", problem.text);
  for (int l = 0; !code && l < layers; l++) cut[l * stages / layers]++; // evenly
  parallel.cut = stages;
  parallel.layers = cut;
  if (!code) {
    CompileOptions options = {
        .mode = MODEL_TRAIN,
        .seq = labels_of(h),
        .device = device_cpu(),
        .precision = h->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32, // the graph is in its own dtype otherwise
        .parallel = parallel_create(&parallel, &workload),
        .update = {.optimizer = optimizer,
                   .beta1 = betas[0],
                   .beta2 = betas[1],
                   .epsilon = 1e-8,
                   .decay = o->weight_decay,
                   .momentum = o->momentum > 0 ? o->momentum : op_def(optimizer)->optimizer->momentum,
                   .clip = o->clip,
                   .count = h->loss.labels < 0 ? h->loss.elements : 0}};
    JobOptions run = {.threads = o->threads ? o->threads : 1, .seed = o->seed};
    compile_set_batch(&options, h->samples, workload.micro);
    code = job_create_built(training_graph(h, options.micro_samples), h->loss.tensor, &options, &run, &t->job, error);
    if (!code)
      code = job_add_evaluation(t->job, forward_graph(h, options.micro_samples), h->loss.tensor, error);
  }
  if (code) use_user_names(error);
  if (t->job) t->job->options.parallel.layout.annotation = NULL;
  free(annotation);
  return code;
}

// Ranks --------------------------------------------------------------------------------------------------------------

static int start_rank(Rank *r, void *training, Error *error) {
  const PlaitTraining *t = training;
  int code = rank_load(r, t->job, error);
  if (!code) rank_initialise(r);
  return code;
}

static int start(PlaitTraining *t, Error *error) {
  int code = session_open(&(SessionOptions){.ranks = t->mesh.ranks, .comm = t->comm}, &t->session, error);
  return code ? code : session_run(t->session, start_rank, t, error);
}

Rank *by_hand_rank(const PlaitTraining *t) {
  return session_rank(t->session, t->comm ? plait_comm_rank(t->comm) : 0);
}

int by_hand_report(PlaitError *error, int code, const Error *own) {
  return code ? error_set(error, code, "%s", own->message) : PLAIT_OK;
}

int by_hand_usable(const PlaitTraining *t, Error *error) {
  return t->failed || session_culprit(t->session) >= 0
             ? error_set(error, PLAIT_BAD_INPUT, "the training has failed before; it can only be destroyed")
             : PLAIT_OK;
}

static int32_t *constant_of(int which, int64_t n, int64_t s) {
  int32_t *values = xcalloc((size_t)n, sizeof *values);
  for (int64_t i = 0; i < n && which == BY_HAND_POSITIONS; i++) values[i] = (int32_t)(i % s);
  return values;
}

// What steps need of the graph, and memory for inputs that nobody gives.
static void keep(PlaitTraining *t, const PlaitGraph *h) {
  int64_t bytes = 8;
  t->storage = by_hand_storage(h->dtype);
  t->samples = h->samples;
  t->inputs = h->inputs;
  t->labels = h->loss.labels;
  t->dropout = h->dropout;
  memcpy(t->input, h->input, sizeof t->input);
  for (int i = 0; i < h->g->input.count; i++) {
    const Tensor *x = graph_tensor(h->g, h->g->input.data[i].tensor);
    int64_t n = shape_elements(&x->shape);
    const ByHandInput *in = &h->input[h->g->input.data[i].own];
    if (in->user < 0) t->constant[h->g->input.data[i].own] = constant_of(in->user, n, x->shape.size[1]);
    if (!in->needed_forward && n * (int64_t)dtype_size(x->dtype) > bytes) bytes = n * (int64_t)dtype_size(x->dtype);
  }
  t->none = memset(xcalloc((size_t)bytes, 1), 0xff, (size_t)bytes); // labels -1, and numbers that are none
  t->output = xcalloc((size_t)h->output.count + 1, sizeof *t->output);
  t->output_width = xcalloc((size_t)h->output.count + 1, sizeof *t->output_width);
  for (t->outputs = 0; t->outputs < h->output.count; t->outputs++) {
    const ByHandOutput *o = &h->output.data[t->outputs];
    t->output[t->outputs] = xstrdup(o->name);
    t->output_width[t->outputs] = shape_elements(&graph_tensor(h->g, o->tensor)->shape) / h->samples;
  }
}

int plait_training_create(const PlaitGraph *h, const PlaitTrainingOptions *options, PlaitTraining **training,
                          PlaitError *error) {
  Error own = {0};
  PlaitTrainingOptions o = options ? *options : (PlaitTrainingOptions){0};
  *training = NULL;
  PlaitTraining *t = xcalloc(1, sizeof *t);
  int microbatches = o.microbatches > 0 ? o.microbatches : 1;
  int code = check_graph(h, &own);
  if (!code) code = parse_mesh(t, o.mesh, &own);
  if (!code) code = check_options(h, &o, &t->mesh, microbatches, &own);
  t->comm = o.comm;
  t->seed = o.seed;
  if (!code) keep(t, h);
  if (!code) code = check_comm(t, &own);
  if (!code) code = compile(t, h, &o, microbatches, &own);
  if (!code) code = start(t, &own);
  if (code) plait_training_destroy(t);
  else *training = t;
  return by_hand_report(error, code, &own);
}

void plait_training_destroy(PlaitTraining *t) {
  if (!t) return;
  session_close(t->session);
  job_destroy(t->job);
  for (int i = 0; i < t->outputs; i++) free(t->output[i]);
  free(t->output);
  free(t->output_width);
  for (int i = 0; i < t->inputs; i++) free(t->constant[i]);
  free(t->none);
  free(t);
}

void plait_training_print(const PlaitTraining *t, FILE *out) {
  graph_print(t->job->train.graph, out, placement_printer, &t->mesh);
}
