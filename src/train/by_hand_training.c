// Half by hand: compiling a user's graph for a mesh, its steps, and parameters as wholes. See plait/graph.h.
#include "comm/comm.h"
#include "pipeline/schedule.h"
#include "train/by_hand.h"
#include "train/gather.h"
#include "train/rank.h"
#include "train/state_tensors.h"
#include <math.h>
#include <string.h>

enum { MOST_LOCAL_RANKS = 1024, MOST_MICROBATCHES = 1 << 16 };

struct PlaitTraining {
  Mesh mesh;
  char axis[MAX_AXES][BY_HAND_NAME];
  Dtype storage;         // of inputs and parameters
  int inputs, dp;        // dp: axis
  Job *job;
  PlaitWorld *world;     // own, where ranks are threads
  PlaitComm *comm;       // the user's
  Team *team;            // one thread a rank
  int first, ranks;      // the ranks of this process
  Rank **rank;           // (ranks)
  PlaitComm **world_comm; // (ranks) own, where ranks are threads
  Error *error;          // (ranks)
  int failed;
};

// Options --------------------------------------------------------------------------------------------------------------

static int add_axis(PlaitTraining *t, const char *name, size_t length, int size, Error *error) {
  if (t->mesh.naxis == MAX_AXES - 2 && mesh_axis(&t->mesh, "pp") < 0) return error_set(error, PLAIT_BAD_INPUT, "mesh: more than %d axes", MAX_AXES - 2);
  if (t->mesh.naxis == MAX_AXES) return error_set(error, PLAIT_BAD_INPUT, "mesh: more than %d axes", MAX_AXES);
  char *own = t->axis[t->mesh.naxis];
  memcpy(own, name, length);
  own[length] = 0;
  if (mesh_axis(&t->mesh, own) >= 0) return error_set(error, PLAIT_BAD_INPUT, "mesh: the axis %s is there twice", own);
  t->mesh.axis[t->mesh.naxis++] = (Axis){own, size};
  t->mesh.ranks *= size;
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
    if (!length || length >= BY_HAND_NAME || !end || end != p + word || size < 1 || size > 1 << 16 || (int64_t)t->mesh.ranks * size > 1 << 20)
      return error_set(error, PLAIT_BAD_INPUT, "mesh: \"%.*s\" in \"%.200s\"; allowed: NAME=SIZE in small letters, as in \"pp=2 dp=2 tp=2\", and at most %d ranks", (int)(word < 80 ? word : 80),
                 p, text, 1 << 20);
    code = add_axis(t, p, length, (int)size, error);
    p += word;
  }
  static const char *const needed[] = {"pp", "dp"};
  for (int i = 0; i < 2 && !code; i++)
    if (mesh_axis(&t->mesh, needed[i]) < 0) code = add_axis(t, needed[i], 2, 1, error);
  if (!code) t->dp = mesh_axis(&t->mesh, "dp");
  return code;
}

static int check_options(const PlaitGraph *h, const PlaitTrainingOptions *o, const Mesh *mesh, int microbatches, Error *error) {
  int64_t unit = (int64_t)microbatches * mesh->axis[mesh_axis(mesh, "dp")].size, below = h->samples / unit * unit;
  if (o->microbatches < 0 || microbatches > MOST_MICROBATCHES) return error_set(error, PLAIT_BAD_INPUT, "microbatches is %d; allowed: 1 to %d", o->microbatches, MOST_MICROBATCHES);
  if (h->samples % unit) {
    char nearest[64];
    if (below) snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)below, (long long)(below + unit));
    else snprintf(nearest, sizeof nearest, "%lld", (long long)unit);
    return error_set(error, PLAIT_BAD_INPUT, "the graph has %lld samples, which must be a multiple of microbatches (%d) · dp (%d); the nearest is %s", (long long)h->samples,
               microbatches, mesh->axis[mesh_axis(mesh, "dp")].size, nearest);
  }
  if (o->schedule && strcmp(o->schedule, "1f1b") && strcmp(o->schedule, "gpipe") && strcmp(o->schedule, "naive"))
    return error_set(error, PLAIT_BAD_INPUT, "schedule is \"%.80s\"; allowed: 1f1b, gpipe and naive", o->schedule);
  if (o->zero < 0 || o->zero > 3) return error_set(error, PLAIT_BAD_INPUT, "zero is %d; allowed: 0 to 3", o->zero);
  if (o->threads < 0 || o->threads > 1024) return error_set(error, PLAIT_BAD_INPUT, "threads is %d; allowed: 0 to 1024", o->threads);
  if (o->optimizer && strcmp(o->optimizer, "sgd") && strcmp(o->optimizer, "adamw"))
    return error_set(error, PLAIT_BAD_INPUT, "optimizer is \"%.80s\"; allowed: sgd and adamw", o->optimizer);
  if (!(o->momentum >= 0 && o->momentum < 1)) return error_set(error, PLAIT_BAD_INPUT, "momentum is %g; allowed: at least 0 and below 1", o->momentum);
  if (!(o->weight_decay >= 0 && isfinite(o->weight_decay))) return error_set(error, PLAIT_BAD_INPUT, "weight_decay is %g; allowed: at least 0", o->weight_decay);
  if (!(o->clip >= 0)) return error_set(error, PLAIT_BAD_INPUT, "clip is %g; allowed: at least 0", o->clip);
  return PLAIT_OK;
}

static int check_comm(const PlaitTraining *t, Error *error) {
  if (!t->comm && t->mesh.ranks > MOST_LOCAL_RANKS)
    return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks; allowed in one process: %d", t->mesh.ranks, MOST_LOCAL_RANKS);
  if (!t->comm) return PLAIT_OK;
  int n = plait_comm_size(t->comm);
  if (n != t->mesh.ranks) return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks, but comm has %d", t->mesh.ranks, n);
  for (int r = 0; r < n; r++)
    if (plait_comm_world_rank(t->comm, r) != r) return error_set(error, PLAIT_BAD_INPUT, "comm is not the communicator of all ranks of its world");
  return PLAIT_OK;
}

static int check_graph(const PlaitGraph *h, Error *error) {
  const Graph *g = h->g;
  if (h->error.code) return error_set(error, h->error.code, "%s", h->error.message);
  if (h->loss < 0) return error_set(error, PLAIT_BAD_INPUT, "the graph has no loss");
  for (int v = 0; v < g->variable.count; v++) {
    int read = g->variable.data[v].kind != VARIABLE_PARAMETER;
    for (int i = 0; i < g->node.count; i++)
      for (int k = 0; k < g->node.data[i].ninput; k++) read |= g->node.data[i].input[k] >= 0 && graph_tensor(g, g->node.data[i].input[k])->variable == v;
    if (!read) return error_set(error, PLAIT_BAD_INPUT, "no op reads the parameter %s", g->variable.data[v].name + strlen(BY_HAND_PARAMETER));
  }
  return PLAIT_OK;
}

// Compiling ------------------------------------------------------------------------------------------------------------

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

static Layout layout_from(const PlaitGraph *h, const PlaitTraining *t, int zero, LayoutTensor *annotation) {
  Layout l = {.zero = zero, .bucket_bytes = 25000000, .data_axes = 1u << t->dp, .shard_axes = 1u << t->dp, .annotation = annotation, .propagate = 1};
  layout_add(&l, ROLE_DATA, DIM_BATCH, t->dp);
  for (int i = 0; i < h->annotation.count; i++) {
    const ByHandAnnotation *a = &h->annotation.data[i];
    int axis = a->dim < 0 ? -1 : mesh_axis(&t->mesh, a->axis);
    if (a->dim >= 0 && axis < 0) continue; // a mesh without the axis
    annotation[l.annotations++] = (LayoutTensor){graph_tensor(h->g, a->tensor)->name, a->dim, axis};
  }
  return l;
}

static int compile(PlaitTraining *t, const PlaitGraph *h, const PlaitTrainingOptions *o, int microbatches, Error *error) {
  LayoutTensor *annotation = xcalloc((size_t)h->annotation.count + 1, sizeof *annotation);
  CompileOptions options = {
      .mode = MODEL_TRAIN,
      .micro_samples = h->samples / microbatches,
      .step_samples = h->samples,
      .precision = h->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32, // the graph is in its own dtype otherwise
      .mesh = t->mesh,
      .layout = layout_from(h, t, o->zero, annotation),
      .stages = t->mesh.axis[mesh_axis(&t->mesh, "pp")].size,
      .cut_given = 1, // below: evenly
      .update = {.optimizer = o->optimizer ? o->optimizer : "sgd", .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .decay = o->weight_decay,
                 .momentum = o->momentum, .clip = o->clip, .count = h->elements}};
  if (options.stages > MAX_STAGES || (options.stages > 1 && options.stages > h->g->layers)) {
    free(annotation);
    return error_set(error, PLAIT_INFEASIBLE, "mesh: pp is %d, but the graph has %d layers to share out, and at most %d stages are allowed", options.stages,
                     h->g->layers, MAX_STAGES);
  }
  for (int l = 0; l < h->g->layers; l++) options.layers[l * options.stages / h->g->layers]++;
  int code = job_create_built(micro_graph(h, options.micro_samples), h->loss, &options, schedule_by_name(o->schedule ? o->schedule : "1f1b"),
                              backend_cpu(), o->threads ? o->threads : 1, 0, o->seed, &t->job, error);
  if (t->job) t->job->options.layout.annotation = NULL;
  free(annotation);
  return code;
}

// Ranks ----------------------------------------------------------------------------------------------------------------

// Runs a task for every rank of this process at the same time, since ranks wait for each other. The first error is reported.
static int on_ranks(PlaitTraining *t, void (*task)(void *, int), void *argument, Error *error) {
  memset(t->error, 0, sizeof *t->error * (size_t)t->ranks);
  team_run(t->team, t->ranks, task, argument);
  for (int i = 0; i < t->ranks; i++)
    if (t->error[i].code) return t->failed = 1, error_set(error, t->error[i].code, "%s", t->error[i].message);
  return PLAIT_OK;
}

// The others must not wait for a rank that failed.
static void abort_others(PlaitTraining *t, int i) {
  PlaitWorld *world = t->comm ? t->comm->world : t->world;
  if (world) plait_world_abort(world, t->error[i].message);
}

static void start_rank(void *argument, int i) {
  PlaitTraining *t = argument;
  PlaitComm *comm = t->comm;
  int code = PLAIT_OK;
  check_set_rank(t->first + i);
  if (!comm && t->mesh.ranks > 1) {
    code = plait_comm_world(t->world, i, &t->world_comm[i], &t->error[i]);
    comm = t->world_comm[i];
  }
  if (!code) code = rank_create(t->job, t->first + i, comm, &t->rank[i], &t->error[i]);
  if (code) abort_others(t, i);
  check_set_rank(-1);
}

static int start(PlaitTraining *t, Error *error) {
  int code = PLAIT_OK;
  t->first = t->comm ? plait_comm_rank(t->comm) : 0;
  t->ranks = t->comm ? 1 : t->mesh.ranks;
  t->rank = xcalloc((size_t)t->ranks, sizeof *t->rank);
  t->world_comm = xcalloc((size_t)t->ranks, sizeof *t->world_comm);
  t->error = xcalloc((size_t)t->ranks, sizeof *t->error);
  t->team = team_create(t->ranks);
  if (!t->comm && t->ranks > 1) code = plait_world_local_create(t->ranks, &t->world, error);
  return code ? code : on_ranks(t, start_rank, t, error);
}

int plait_training_create(const PlaitGraph *h, const PlaitTrainingOptions *options, PlaitTraining **training, PlaitError *error) {
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
  for (int i = 0; i < t->ranks && t->rank; i++) {
    rank_destroy(t->rank[i]);
    plait_comm_destroy(t->world_comm[i]);
  }
  plait_world_destroy(t->world);
  team_destroy(t->team);
  job_destroy(t->job);
  free(t->error);
  free(t->world_comm);
  free(t->rank);
  free(t);
}

// Steps ----------------------------------------------------------------------------------------------------------------

typedef struct Step { PlaitTraining *t; const void *const *inputs; double learning_rate; uint64_t number; } Step;

// Microbatch m of data rank r is the samples m · M + r · M / dp … of the step, M being those of a microbatch.
static void bind_inputs(const Step *s, int rank, StepInput *inputs) {
  const PlaitTraining *t = s->t;
  const Graph *g = t->job->train;
  int64_t local = t->job->options.micro_samples / t->mesh.axis[t->dp].size, first = mesh_coordinate(&t->mesh, rank, t->dp) * local;
  for (int i = 0; i < g->input.count; i++) {
    const Tensor *x = graph_tensor(g, g->input.data[i].tensor);
    int64_t row = i < t->inputs ? shape_elements(&x->shape) / x->shape.size[0] * (int64_t)dtype_size(x->dtype) : 0;
    if (i < t->inputs) inputs[i] = (StepInput){(const char *)s->inputs[i] + first * row, t->job->options.micro_samples * row};
    else inputs[i] = (StepInput){&s->learning_rate, 0};
  }
}

static void step_rank(void *argument, int i) {
  Step *s = argument;
  PlaitTraining *t = s->t;
  StepInput inputs[BY_HAND_INPUTS + 1];
  CHECK(t->job->train->input.count == t->inputs + 1);
  check_set_rank(t->first + i);
  bind_inputs(s, t->first + i, inputs);
  int code = executor_run(t->rank[i]->train, s->number, inputs, &t->error[i]);
  if (code) abort_others(t, i);
  check_set_rank(-1);
}

static int usable(const PlaitTraining *t, Error *error) {
  return t->failed ? error_set(error, PLAIT_BAD_INPUT, "the training has failed before; it can only be destroyed") : PLAIT_OK;
}

int plait_training_step(PlaitTraining *t, const void *const *inputs, double learning_rate, PlaitStepResult *result, PlaitError *error) {
  int code = usable(t, error);
  if (code) return code;
  for (int i = 0; i < t->inputs; i++)
    if (!inputs[i]) return error_set(error, PLAIT_BAD_INPUT, "input %s of the step is NULL", t->job->train->input.data[i].name);
  if (!isfinite(learning_rate)) return error_set(error, PLAIT_BAD_INPUT, "the learning rate is not finite");
  const State *state = t->rank[0]->state;
  Step s = {t, inputs, learning_rate, (uint64_t)state_scalar(state, "optimizer_step") + 1};
  if ((code = on_ranks(t, step_rank, &s, error))) return code;
  if (result)
    *result = (PlaitStepResult){.loss = state_scalar(state, "loss"), .gradient_norm = state_scalar(state, "grad_norm"), .skipped = state_scalar(state, "skip") != 0};
  return PLAIT_OK;
}

// Parameters -----------------------------------------------------------------------------------------------------------

static const Variable *find_parameter(const PlaitTraining *t, const char *name, size_t size, Error *error) {
  const Graph *g = t->job->train;
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

// Copies between a rank's box and the whole tensor.
static void copy_box(const CheckpointTensor *box, void *whole, int write) {
  Box part = {.rank = box->rank}, all = {.rank = box->rank};
  int64_t stride[BOX_MAX_RANK], packed[BOX_MAX_RANK];
  memcpy(part.offset, box->offset, sizeof part.offset);
  memcpy(part.local, box->local, sizeof part.local);
  memcpy(all.local, box->global, sizeof all.local);
  if (!box_elements(&part)) return;
  box_strides(&all, stride);
  box_strides(&part, packed);
  int plain = 1; // all strides 0: row-major
  for (int d = 0; d < box->rank; d++) plain &= box->stride[d] == 0;
  const int64_t *own = plain ? packed : box->stride;
  if (write) box_copy(&part, box->data, &part, own, box->dtype, whole, &all, stride, box->dtype);
  else box_copy(&part, whole, &all, stride, box->dtype, box->data, &part, own, box->dtype);
}

static void copy_boxes(const CheckpointTensor *boxes, int count, const Variable *p, void *whole, int write) {
  for (int i = 0; i < count; i++)
    if (!strcmp(boxes[i].name, p->name) && (write || boxes[i].primary)) copy_box(&boxes[i], whole, write);
}

static void copy_local(const PlaitTraining *t, const Variable *p, void *whole, int write) {
  for (int i = 0; i < t->ranks; i++) {
    CheckpointTensor *boxes;
    int n = state_tensors(t->rank[i]->state, 1u << VARIABLE_PARAMETER, p->name, 0, &boxes);
    copy_boxes(boxes, n, p, whole, write);
    free(boxes);
  }
}

static int gather_whole(PlaitTraining *t, const Variable *p, void *whole, size_t size, Error *error) {
  CheckpointTensor *boxes;
  Gathered all = {0};
  int n = state_tensors(t->rank[0]->state, 1u << VARIABLE_PARAMETER, p->name, 0, &boxes);
  int code = gather_boxes(t->comm, boxes, n, &all, error);
  if (!code && t->first == 0) copy_boxes(all.boxes, all.count, p, whole, 0);
  gather_free(&all);
  free(boxes);
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

void plait_training_print(const PlaitTraining *t, FILE *out) { graph_print(t->job->train, out, placement_printer, &t->mesh); }
