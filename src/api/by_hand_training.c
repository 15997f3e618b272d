// Half by hand: compiling a user's graph for a mesh, its steps, and parameters as wholes. See plait/graph.h.
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include "runtime/launch.h"
#include "runtime/session.h"
#include "api/by_hand.h"
#include "runtime/gather.h"
#include "runtime/state_tensors.h"
#include <math.h>
#include <string.h>

enum { MOST_MICROBATCHES = 1 << 16 };

struct PlaitTraining {
  Mesh mesh;
  char axis[MAX_AXES][BY_HAND_NAME];
  Dtype storage;         // of inputs and parameters
  int inputs, dp;        // dp: axis
  Job *job;
  PlaitComm *comm;       // the user's: this process is one rank; NULL: ranks are threads
  Session *session;
  int failed;            // outside of the session
};

// Options ------------------------------------------------------------------------------------------------------------

static int add_axis(PlaitTraining *t, const char *name, size_t length, int size, Error *error) {
  if (t->mesh.naxis == MAX_AXES - 2 && mesh_pipeline(&t->mesh) < 0)
    return error_set(error, PLAIT_BAD_INPUT, "mesh: more than %d axes", MAX_AXES - 2);
  if (t->mesh.naxis == MAX_AXES) return error_set(error, PLAIT_BAD_INPUT, "mesh: more than %d axes", MAX_AXES);
  char *own = t->axis[t->mesh.naxis];
  memcpy(own, name, length);
  own[length] = 0;
  if (mesh_axis(&t->mesh, own) >= 0) return error_set(error, PLAIT_BAD_INPUT, "mesh: the axis %s is there twice", own);
  mesh_add(&t->mesh, own, size);
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

static int check_options(const PlaitGraph *h, const PlaitTrainingOptions *o, const Mesh *mesh, int microbatches,
                         Error *error) {
  int64_t unit = (int64_t)microbatches * mesh->axis[mesh_axis(mesh, "dp")].size, below = h->samples / unit * unit;
  if (o->microbatches < 0 || microbatches > MOST_MICROBATCHES)
    return error_set(error, PLAIT_BAD_INPUT, "microbatches is %d; allowed: 1 to %d", o->microbatches,
                     MOST_MICROBATCHES);
  if (h->samples % unit) {
    char nearest[64];
    if (below) snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)below, (long long)(below + unit));
    else snprintf(nearest, sizeof nearest, "%lld", (long long)unit);
    return error_set(
        error, PLAIT_BAD_INPUT,
        "the graph has %lld samples, which must be a multiple of microbatches (%d) · dp (%d); the nearest is %s",
        (long long)h->samples, microbatches, mesh->axis[mesh_axis(mesh, "dp")].size, nearest);
  }
  const ScheduleGenerator *schedule = schedule_by_name(o->schedule ? o->schedule : "1f1b");
  if (!schedule || !schedule_can_run(schedule, 1)) {
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

static int check_graph(const PlaitGraph *h, Error *error) {
  const Graph *g = h->g;
  if (h->error.code) return error_set(error, h->error.code, "%s", h->error.message);
  if (h->loss < 0) return error_set(error, PLAIT_BAD_INPUT, "the graph has no loss");
  for (int v = 0; v < g->variable.count; v++) {
    int read = g->variable.data[v].kind != VARIABLE_PARAMETER;
    for (int i = 0; i < g->node.count; i++)
      for (int k = 0; k < g->node.data[i].ninput; k++)
        read |= g->node.data[i].input[k] >= 0 && graph_tensor(g, g->node.data[i].input[k])->variable == v;
    if (!read)
      return error_set(error, PLAIT_BAD_INPUT, "no op reads the parameter %s",
                       g->variable.data[v].name + strlen(BY_HAND_PARAMETER));
  }
  return PLAIT_OK;
}

// Compiling ----------------------------------------------------------------------------------------------------------

// The forward graph of one microbatch.
static Graph *micro_graph(const PlaitGraph *h, int64_t samples) {
  Graph *g = graph_copy(h->g);
  for (int i = 0; i < g->tensor.count; i++) {
    Shape *s = &g->tensor.data[i].shape;
    if (s->rank && s->dim[0] == DIM_BATCH) s->size[0] = samples;
  }
  g->node.data[graph_tensor(g, h->loss)->producer].layer = g->layers - 1;
  return g;
}

// The placements that the user has given, for axes that the mesh has. Returns their count.
static int placements_from(const PlaitGraph *h, const Mesh *mesh, LayoutTensor *annotation) {
  int n = 0;
  for (int i = 0; i < h->annotation.count; i++) {
    const ByHandAnnotation *a = &h->annotation.data[i];
    int axis = a->dim < 0 ? -1 : mesh_axis(mesh, a->axis);
    if (a->dim < 0 || axis >= 0) annotation[n++] = (LayoutTensor){graph_tensor(h->g, a->tensor)->name, a->dim, axis};
  }
  return n;
}

static int compile(PlaitTraining *t, const PlaitGraph *h, const PlaitTrainingOptions *o, int microbatches,
                   Error *error) {
  Op optimizer = (Op)optimizer_find(o->optimizer ? o->optimizer : "sgd");
  const double *betas = op_def(optimizer)->optimizer->betas;
  LayoutTensor *annotation = xcalloc((size_t)h->annotation.count + 1, sizeof *annotation);
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
                       .micro = h->samples / microbatches / t->mesh.axis[t->dp].size,
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
        .device = device_cpu(),
        .precision = h->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32, // the graph is in its own dtype otherwise
        .parallel = parallel_create(&parallel, &workload),
        .update = {.optimizer = optimizer,
                   .beta1 = betas[0],
                   .beta2 = betas[1],
                   .epsilon = 1e-8,
                   .decay = o->weight_decay,
                   .momentum = o->momentum,
                   .clip = o->clip,
                   .count = h->elements}};
    JobOptions run = {.threads = o->threads ? o->threads : 1, .seed = o->seed};
    compile_set_batch(&options, h->samples, workload.micro);
    code = job_create_built(micro_graph(h, options.micro_samples), h->loss, &options, &run, &t->job, error);
  }
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

// The first rank of this process.
static Rank *own_rank(const PlaitTraining *t) {
  return session_rank(t->session, t->comm ? plait_comm_rank(t->comm) : 0);
}

int plait_training_create(const PlaitGraph *h, const PlaitTrainingOptions *options, PlaitTraining **training,
                          PlaitError *error) {
  Error own = {0};
  PlaitTrainingOptions o = options ? *options : (PlaitTrainingOptions){0};
  if (!error) error = &own;
  *training = NULL;
  PlaitTraining *t = xcalloc(1, sizeof *t);
  int microbatches = o.microbatches > 0 ? o.microbatches : 1;
  int code = check_graph(h, error);
  if (!code) code = parse_mesh(t, o.mesh, error);
  if (!code) code = check_options(h, &o, &t->mesh, microbatches, error);
  t->comm = o.comm;
  t->storage = by_hand_storage(h->dtype);
  t->inputs = h->inputs;
  if (!code) code = check_comm(t, error);
  if (!code) code = compile(t, h, &o, microbatches, error);
  if (!code) code = start(t, error);
  if (code) plait_training_destroy(t);
  else *training = t;
  return code;
}

void plait_training_destroy(PlaitTraining *t) {
  if (!t) return;
  session_close(t->session);
  job_destroy(t->job);
  free(t);
}

// Steps --------------------------------------------------------------------------------------------------------------

typedef struct Step { const PlaitTraining *t; const void *const *inputs; double learning_rate; uint64_t number; } Step;

// Microbatch m of data rank r is the samples m · M + r · M / dp … of the step, M being those of a microbatch.
static void find_samples(const Step *s, int rank, StepInput *own) {
  const PlaitTraining *t = s->t;
  const Graph *g = t->job->train.graph;
  int64_t local = t->job->options.micro_samples / t->mesh.axis[t->dp].size,
          first = mesh_coordinate(&t->mesh, rank, t->dp) * local;
  for (int i = 0; i < g->input.count; i++) {
    const GraphInput *in = &g->input.data[i];
    if (in->known != INPUT_OWN) continue;
    const Tensor *x = graph_tensor(g, in->tensor);
    int64_t row = shape_elements(&x->shape) / x->shape.size[0] * (int64_t)dtype_size(x->dtype);
    own[in->own] = (StepInput){(const char *)s->inputs[in->own] + first * row, t->job->options.micro_samples * row, 0};
  }
}

static int step_rank(Rank *r, void *step, Error *error) {
  const Step *s = step;
  StepInput own[BY_HAND_INPUTS];
  find_samples(s, r->rank, own);
  StepInputs inputs = {
      .known = {[INPUT_LEARNING_RATE] = {&s->learning_rate, 0, 0}}, .own = own, .own_count = s->t->inputs};
  return executor_run(r->train, s->number, &inputs, error);
}

static int usable(const PlaitTraining *t, Error *error) {
  return t->failed || session_culprit(t->session) >= 0
             ? error_set(error, PLAIT_BAD_INPUT, "the training has failed before; it can only be destroyed")
             : PLAIT_OK;
}

int plait_training_step(PlaitTraining *t, const void *const *inputs, double learning_rate, PlaitStepResult *result,
                        PlaitError *error) {
  int code = usable(t, error);
  if (code) return code;
  const Graph *g = t->job->train.graph;
  for (int i = 0; i < g->input.count; i++)
    if (g->input.data[i].known == INPUT_OWN && !inputs[g->input.data[i].own])
      return error_set(error, PLAIT_BAD_INPUT, "input %s of the step is NULL", g->input.data[i].name);
  if (!isfinite(learning_rate)) return error_set(error, PLAIT_BAD_INPUT, "the learning rate is not finite");
  const State *state = own_rank(t)->state;
  Step s = {t, inputs, learning_rate, (uint64_t)state_scalar(state, KNOWN_OPTIMIZER_STEP) + 1};
  if ((code = session_run(t->session, step_rank, &s, error))) return code;
  if (result)
    *result = (PlaitStepResult){.loss = state_scalar(state, KNOWN_LOSS),
                                .gradient_norm = state_scalar(state, KNOWN_GRAD_NORM),
                                .skipped = state_scalar(state, KNOWN_SKIP) != 0};
  return PLAIT_OK;
}

// Parameters ---------------------------------------------------------------------------------------------------------

static const Variable *find_parameter(const PlaitTraining *t, const char *name, size_t size, Error *error) {
  const Graph *g = t->job->train.graph;
  for (int v = 0; v < g->variable.count; v++) {
    const Variable *p = &g->variable.data[v];
    if (p->kind != VARIABLE_PARAMETER || strcmp(p->name + strlen(BY_HAND_PARAMETER), name)) continue;
    size_t bytes = (size_t)shape_elements(&p->shape) * dtype_size(p->dtype);
    if (bytes == size) return p;
    error_set(error, PLAIT_BAD_INPUT, "%s has %zu bytes, not %zu", name, bytes, size);
    return NULL;
  }
  error_set(error, PLAIT_BAD_INPUT, "there is no parameter \"%.80s\"", name);
  return NULL;
}

// Copies the pieces of a parameter to the whole tensor, or its elements back to them. Replicas are written, but not
// read.
static void copy_boxes(const CheckpointTensor *boxes, int count, const Variable *p, void *whole, int write) {
  for (int i = 0; i < count; i++) {
    if (write) checkpoint_tensor_from_whole(&boxes[i], whole, p->dtype);
    else if (boxes[i].primary) checkpoint_tensor_to_whole(&boxes[i], whole, p->dtype);
  }
}

static void copy_local(const PlaitTraining *t, const Variable *p, void *whole, int write) {
  for (int i = 0; i < t->mesh.ranks; i++) {
    const Rank *r = session_rank(t->session, i);
    if (!r) continue;
    CheckpointTensor *boxes;
    int n = state_tensor(r->state, p->id, &boxes);
    copy_boxes(boxes, n, p, whole, write);
    free(boxes);
  }
}

static int gather_whole(PlaitTraining *t, const Variable *p, void *whole, size_t size, Error *error) {
  CheckpointTensor *boxes;
  Gathered all = {0};
  int n = state_tensor(own_rank(t)->state, p->id, &boxes);
  int code = gather_boxes(t->comm, boxes, n, &all, error);
  free(boxes);
  if (!code && plait_comm_rank(t->comm) == 0) copy_boxes(all.boxes, all.count, p, whole, 0);
  gather_free(&all);
  if (!code && plait_broadcast(t->comm, &(PlaitBuffer){whole, whole, size}, 1, PLAIT_UINT8, 0, NULL, NULL))
    code = error_set(error, PLAIT_FAILED, "%s", plait_comm_error(t->comm));
  if (code) t->failed = 1;
  return code;
}

int plait_training_read(PlaitTraining *t, const char *parameter, void *data, size_t size, PlaitError *error) {
  Error own = {0};
  if (!error) error = &own;
  int code = usable(t, error);
  const Variable *p = code ? NULL : find_parameter(t, parameter, size, error);
  if (!p) return error->code;
  if (t->comm) return gather_whole(t, p, data, size, error);
  copy_local(t, p, data, 0);
  return PLAIT_OK;
}

int plait_training_write(PlaitTraining *t, const char *parameter, const void *data, size_t size, PlaitError *error) {
  Error own = {0};
  if (!error) error = &own;
  int code = usable(t, error);
  const Variable *p = code ? NULL : find_parameter(t, parameter, size, error);
  if (!p) return error->code;
  copy_local(t, p, (void *)(uintptr_t)data, 1);
  return PLAIT_OK;
}

void plait_training_print(const PlaitTraining *t, FILE *out) {
  graph_print(t->job->train.graph, out, placement_printer, &t->mesh);
}
