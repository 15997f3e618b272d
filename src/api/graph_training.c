// Half by hand: a training, which compiles a user's graph and starts the ranks that run it. See plait/graph.h.
#include "runtime/launch.h"
#include "api/graph_compile.h"
#include <string.h>

static int check_comm(const PlaitTraining *t, Error *error) {
  if (!t->comm && t->at.mesh.ranks > LAUNCH_MOST_THREADS)
    return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks; allowed in one process: %d", t->at.mesh.ranks,
                     LAUNCH_MOST_THREADS);
  if (!t->comm) return PLAIT_OK;
  int n = plait_comm_size(t->comm);
  if (n != t->at.mesh.ranks)
    return error_set(error, PLAIT_BAD_INPUT, "the mesh has %d ranks, but comm has %d", t->at.mesh.ranks, n);
  for (int r = 0; r < n; r++)
    if (plait_comm_world_rank(t->comm, r) != r)
      return error_set(error, PLAIT_BAD_INPUT, "comm is not the communicator of all ranks of its world");
  return PLAIT_OK;
}

// Ranks --------------------------------------------------------------------------------------------------------------

static int start_rank(Rank *r, void *training, Error *error) {
  const PlaitTraining *t = training;
  int code = rank_load(r, t->job, error);
  if (!code) rank_initialise(r);
  return code;
}

static int start(PlaitTraining *t, Error *error) {
  int code = session_open(&(SessionOptions){.ranks = t->at.mesh.ranks, .comm = t->comm}, &t->session, error);
  return code ? code : session_run(t->session, start_rank, t, error);
}

Rank *api_graph_rank(const PlaitTraining *t) {
  return session_rank(t->session, t->comm ? plait_comm_rank(t->comm) : 0);
}

int api_graph_report(PlaitError *error, int code, const Error *own) {
  return code ? error_set(error, code, "%s", own->message) : PLAIT_OK;
}

int api_graph_usable(const PlaitTraining *t, Error *error) {
  return t->failed || session_culprit(t->session) >= 0
             ? error_set(error, PLAIT_BAD_INPUT, "the training has failed before; it can only be destroyed")
             : PLAIT_OK;
}

static int32_t *constant_of(int which, int64_t n, int64_t s) {
  int32_t *values = xcalloc((size_t)n, sizeof *values);
  for (int64_t i = 0; i < n && which == API_GRAPH_POSITIONS; i++) values[i] = (int32_t)(i % s);
  return values;
}

// Keeps the parts of the graph that steps need, and memory for inputs that nobody gives.
static void keep(PlaitTraining *t, const PlaitGraph *h) {
  int64_t bytes = 8;
  t->storage = api_graph_storage(h->dtype);
  t->samples = h->samples;
  t->inputs = h->inputs;
  t->labels = h->loss.labels;
  t->dropout = h->dropout;
  memcpy(t->input, h->input, sizeof t->input);
  for (int i = 0; i < h->g->input.count; i++) {
    const Tensor *x = graph_tensor(h->g, h->g->input.data[i].tensor);
    int64_t n = shape_elements(&x->shape);
    const ApiGraphInput *in = &h->input[input_own(&h->g->input.data[i])];
    if (in->user < 0) t->constant[input_own(&h->g->input.data[i])] = constant_of(in->user, n, x->shape.size[1]);
    if (!in->needed_forward && n * (int64_t)dtype_size(x->dtype) > bytes) bytes = n * (int64_t)dtype_size(x->dtype);
  }
  t->none = memset(xcalloc((size_t)bytes, 1), 0xff, (size_t)bytes); // labels -1, and numbers that are none
  t->output = xcalloc((size_t)h->output.count + 1, sizeof *t->output);
  t->output_width = xcalloc((size_t)h->output.count + 1, sizeof *t->output_width);
  for (t->outputs = 0; t->outputs < h->output.count; t->outputs++) {
    const ApiGraphOutput *o = &h->output.data[t->outputs];
    t->output[t->outputs] = xstrdup(o->name);
    t->output_width[t->outputs] = shape_elements(&graph_tensor(h->g, o->tensor)->shape) / h->samples;
  }
}

int plait_training_create(const PlaitGraph *h, const PlaitTrainingOptions *options, PlaitTraining **training,
                          PlaitError *error) {
  Error own = {0};
  ApiGraphSetup setup;
  *training = NULL;
  PlaitTraining *t = xcalloc(1, sizeof *t);
  int code = api_graph_setup(h, options, &t->at, &setup, &own);
  if (!code) {
    t->comm = setup.options.comm;
    t->seed = setup.options.seed;
    keep(t, h);
    const Device *device;
    code = check_comm(t, &own);
    if (!code) code = api_graph_device(&setup.options, &device, &own);
    if (!code) code = api_graph_compile(&setup, device, 1, &t->job, &own);
    api_graph_setup_free(&setup);
  }
  if (!code) code = start(t, &own);
  if (code) plait_training_destroy(t);
  else *training = t;
  return api_graph_report(error, code, &own);
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
  graph_print(job_train(t->job)->graph, out, placement_printer, &t->at.mesh);
}
