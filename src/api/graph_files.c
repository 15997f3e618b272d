// Half by hand: parameters as wholes, checkpoints, and parameters in a plain file. See plait/graph.h.
#include "api/graph_build.h"
#include "checkpoint/safetensors.h"
#include "base/file.h"
#include "runtime/gather.h"
#include "runtime/state_tensors.h"
#include "train/save.h"
#include <string.h>

// Parameters ---------------------------------------------------------------------------------------------------------

static const Variable *find_parameter(const PlaitTraining *t, const char *name, size_t size, Error *error) {
  const Graph *g = job_train(t->job)->graph;
  for (int v = 0; v < g->variable.count; v++) {
    const Variable *p = &g->variable.data[v];
    if (!variable_is_counted(p) || strcmp(p->name + strlen(USER_PARAMETER), name)) continue;
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
  for (int i = 0; i < t->at.mesh.ranks; i++) {
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
  int n = state_tensor(api_graph_rank(t)->state, p->id, &boxes);
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
  int code = api_graph_usable(t, &own);
  const Variable *p = code ? NULL : find_parameter(t, parameter, size, &own);
  if (!p) code = own.code;
  else if (t->comm) code = gather_whole(t, p, data, size, &own);
  else copy_local(t, p, data, 0);
  return api_graph_report(error, code, &own);
}

int plait_training_write(PlaitTraining *t, const char *parameter, const void *data, size_t size, PlaitError *error) {
  Error own = {0};
  int code = api_graph_usable(t, &own);
  const Variable *p = code ? NULL : find_parameter(t, parameter, size, &own);
  if (p) copy_local(t, p, (void *)(uintptr_t)data, 1);
  return api_graph_report(error, own.code, &own);
}

// Agreement ----------------------------------------------------------------------------------------------------------

// The outcome of all ranks of comm: that of the lowest rank that failed, with its sentence. error holds this call's
// alone.
static int agree(PlaitComm *comm, int code, Error *error) {
  int ranks = plait_comm_size(comm), rank = plait_comm_rank(comm);
  int32_t worst = code ? ranks - rank : 0;
  PlaitBuffer one = {&worst, &worst, 1}, sentence = {error, error, sizeof *error};
  if (ranks == 1) return code;
  if (plait_all_reduce(comm, &one, 1, PLAIT_INT32, PLAIT_MAX, NULL, NULL) ||
      (worst && plait_broadcast(comm, &sentence, 1, PLAIT_UINT8, ranks - worst, NULL, NULL)))
    return error_set(error, PLAIT_FAILED, "%s", plait_comm_error(comm));
  return worst ? error->code : PLAIT_OK;
}

// Checkpoints --------------------------------------------------------------------------------------------------------

// A task of all ranks with files: what went wrong there is no failure of the ranks.
typedef struct Files {
  PlaitTraining *t;
  const char *path;
  int64_t step;
  Checkpoint *checkpoint;
  Error error; // of the process's first rank; before the task: what is wrong already
} Files;

static void keep_error(Files *f, const Rank *r, const Error *error) {
  if (r == api_graph_rank(f->t)) f->error = *error;
}

static int write_checkpoint(Rank *r, const Files *f, Error *error) {
  int first = r->rank == 0, code = first ? checkpoint_begin(f->path, f->step, error) : PLAIT_OK;
  code = agree(r->world, code, error);
  if (code) return code;
  CheckpointTensor *tensors;
  int count = state_tensors(r->state, variable_is_saved, &tensors);
  code = checkpoint_write_part(f->path, f->step, r->rank, tensors, count, error);
  free(tensors);
  code = agree(r->world, code, error);
  if (!code && first) {
    json_t *extra = json_pack("{s:s, s:I}", "made_by", "plait/graph.h", "seed", (json_int_t)f->t->seed);
    code = checkpoint_finish(f->path, f->step, f->t->at.mesh.ranks, extra, error);
    json_decref(extra);
  }
  if (code && first) checkpoint_abandon(f->path, f->step);
  return agree(r->world, code, error);
}

static int save_rank(Rank *r, void *files, Error *error) {
  Error own = {0};
  if (write_checkpoint(r, files, &own)) keep_error(files, r, &own);
  return PLAIT_OK;
}

static int run_files(Files *f, SessionTask task, Error *error) {
  int code = session_run(f->t->session, task, f, error);
  return code || !f->error.code ? code : error_set(error, f->error.code, "%s", f->error.message);
}

int plait_training_save(PlaitTraining *t, const char *folder, PlaitError *error) {
  int code = api_graph_usable(t, error);
  Files f = {.t = t, .path = folder, .step = code ? 0 : plait_training_steps(t)};
  return code ? code : run_files(&f, save_rank, error);
}

// The checkpoint that path names, or the newest valid one in it, verified.
static int open_checkpoint(const char *path, Checkpoint **checkpoint, Error *error) {
  char *manifest = xformat("%s/checkpoint.json", path), *warnings = NULL;
  int64_t step;
  int code, named = file_exists(manifest);
  free(manifest);
  if (named) {
    code = checkpoint_open(checkpoint, path, error);
    return code ? code : checkpoint_verify(*checkpoint, error);
  }
  code = checkpoint_latest_valid(path, &step, checkpoint, &warnings, error);
  if (!code)
    code = error_set(error, PLAIT_BAD_INPUT, "there is no checkpoint in %s%s%.*s", path, warnings ? ": " : "",
                     warnings ? (int)strcspn(warnings, "\n") : 0, warnings ? warnings : "");
  free(warnings);
  return code < 0 ? code : PLAIT_OK;
}

static int check_seed(const PlaitTraining *t, const Checkpoint *checkpoint, Error *error) {
  uint64_t seed = (uint64_t)json_integer_value(json_object_get(checkpoint_extra(checkpoint), "seed"));
  if (!t->dropout || seed == t->seed) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%s was made with the seed %llu, on which its dropout depends, and not %llu; create the training with "
      "that seed",
      checkpoint_path(checkpoint), (unsigned long long)seed, (unsigned long long)t->seed);
}

static int load_rank(Rank *r, void *files, Error *error) {
  Files *f = files;
  Error own = f->error; // the same on all ranks of a process, which only read it until they have agreed
  int code = agree(r->world, own.code, &own);
  if (code) {
    keep_error(f, r, &own);
    return PLAIT_OK;
  }
  code = save_load(r, f->checkpoint, error);
  return code ? code : rank_barrier(r, error);
}

int plait_training_load(PlaitTraining *t, const char *path, PlaitError *error) {
  int code = api_graph_usable(t, error);
  if (code) return code;
  Files f = {.t = t};
  code = open_checkpoint(path, &f.checkpoint, &f.error);
  if (!code) code = save_compare(t->job, f.checkpoint, &f.error);
  if (!code) code = check_seed(t, f.checkpoint, &f.error);
  code = run_files(&f, load_rank, error);
  checkpoint_close(f.checkpoint);
  return code;
}

// A plain file -------------------------------------------------------------------------------------------------------

// The parameters of this process's ranks as boxes, under the user's names.
static CheckpointTensor *parameter_boxes(const PlaitTraining *t, int *count) {
  Vec(CheckpointTensor) all = {0};
  vec_reserve(&all, 1);
  for (int i = 0; i < t->at.mesh.ranks; i++) {
    const Rank *r = session_rank(t->session, i);
    if (!r) continue;
    CheckpointTensor *boxes;
    int n = state_tensors(r->state, variable_is_loaded, &boxes);
    for (int k = 0; k < n; k++) {
      boxes[k].name += strlen(USER_PARAMETER);
      vec_push(&all, boxes[k]);
    }
    free(boxes);
  }
  *count = all.count;
  return all.data;
}

static int save_parameters(PlaitTraining *t, const char *path, Error *error) {
  int code = api_graph_usable(t, error), count;
  if (code) return code;
  CheckpointTensor *boxes = parameter_boxes(t, &count);
  if (t->comm) {
    Gathered all = {0};
    code = gather_boxes(t->comm, boxes, count, &all, error);
    t->failed |= code != 0;
    if (!code && plait_comm_rank(t->comm) == 0) code = safetensors_write_gathered(path, all.boxes, all.count, error);
    gather_free(&all);
    if (!t->failed) code = agree(t->comm, code, error);
  } else {
    code = safetensors_write_gathered(path, boxes, count, error);
  }
  free(boxes);
  return code;
}

int plait_training_save_parameters(PlaitTraining *t, const char *path, PlaitError *error) {
  Error own = {0};
  return api_graph_report(error, save_parameters(t, path, &own), &own);
}

static const SafetensorsEntry *find_entry(const Safetensors *file, const char *path, const Variable *p, Error *error) {
  const char *name = p->name + strlen(USER_PARAMETER);
  const SafetensorsEntry *e = safetensors_find(file, name);
  int fits = e && e->rank == p->shape.rank;
  for (int d = 0; fits && d < e->rank; d++) fits = e->dims[d] == p->shape.size[d];
  if (!e) error_set(error, PLAIT_BAD_INPUT, "%s has no tensor %s", path, name);
  else if (!fits) error_set(error, PLAIT_BAD_INPUT, "%s: the shape of %s is not that of the parameter", path, name);
  else if (e->dtype < 0 || !dtype_is_float((Dtype)e->dtype))
    error_set(error, PLAIT_BAD_INPUT, "%s: %s is of type %s; allowed: F64, F32, F16 and BF16", path, name,
              e->dtype_name);
  else return e;
  return NULL;
}

// All of them are looked at before the first is taken.
static int check_file(const PlaitTraining *t, const Safetensors *file, const char *path, Error *error) {
  const Graph *g = job_train(t->job)->graph;
  for (int v = 0; v < g->variable.count; v++)
    if (variable_is_loaded(&g->variable.data[v]) && !find_entry(file, path, &g->variable.data[v], error))
      return error->code;
  return PLAIT_OK;
}

static void take_file(const PlaitTraining *t, const Safetensors *file, const char *path) {
  int count;
  CheckpointTensor *boxes = parameter_boxes(t, &count);
  for (int i = 0; i < count; i++) {
    const SafetensorsEntry *e = safetensors_find(file, boxes[i].name);
    void *aligned = memcpy(xcalloc(e->bytes + 1, 1), e->data, e->bytes);
    checkpoint_tensor_from_whole(&boxes[i], aligned, (Dtype)e->dtype);
    free(aligned);
  }
  free(boxes);
}

static int load_parameters(const PlaitTraining *t, const char *path, Error *error) {
  int code = api_graph_usable(t, error);
  if (code) return code;
  Safetensors file = {0};
  code = safetensors_open(&file, path, error);
  if (!code) code = check_file(t, &file, path, error);
  if (t->comm) code = agree(t->comm, code, error);
  if (!code) take_file(t, &file, path);
  safetensors_close(&file);
  return code;
}

int plait_training_load_parameters(PlaitTraining *t, const char *path, PlaitError *error) {
  Error own = {0};
  return api_graph_report(error, load_parameters(t, path, &own), &own);
}
