// Half by hand: what a user asks of a training, checked and read: the mesh, the options, and placements by a plan.
#include "op/build.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include "api/graph_compile.h"
#include "base/fault.h"
#include "base/nearest.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MICROBATCHES = 1 << 16, MOST_NAMES = 64 };

// Options ------------------------------------------------------------------------------------------------------------

static int add_axis(ApiGraphMesh *at, const char *name, size_t length, int size, Error *error) {
  char own[API_GRAPH_NAME] = "";
  memcpy(own, name, length);
  if (mesh_find(&at->mesh, own) >= 0) return error_set(error, PLAIT_BAD_INPUT, "mesh: the axis %s is there twice", own);
  int others = at->mesh.naxis - (mesh_axis(&at->mesh, AXIS_PP) >= 0) - (mesh_axis(&at->mesh, AXIS_DP) >= 0);
  AxisId id = axis_by_name(own);
  if (id != AXIS_PP && id != AXIS_DP && others == MAX_AXES - 2)
    return error_set(error, PLAIT_BAD_INPUT, "mesh: more than %d axes beside pp and dp", MAX_AXES - 2);
  mesh_add(&at->mesh, strcpy(at->axis[at->mesh.naxis], own), size);
  return PLAIT_OK;
}

// "pp=2 dp=2 tp=2"; axes that plait asks for and the user did not name have size 1.
int api_graph_read_mesh(ApiGraphMesh *at, const char *text, Error *error) {
  at->mesh = (Mesh){.ranks = 1};
  int code = PLAIT_OK;
  for (const char *p = text ? text : ""; *(p += strspn(p, " ")) && !code;) {
    size_t length = strspn(p, "abcdefghijklmnopqrstuvwxyz_"), word = strcspn(p, " ");
    char *end = NULL;
    long size = p[length] == '=' && p[length + 1] >= '0' && p[length + 1] <= '9' ? strtol(p + length + 1, &end, 10) : 0;
    if (!length || length >= API_GRAPH_NAME || !end || end != p + word || size < 1 || size > 1 << 16 ||
        (int64_t)at->mesh.ranks * size > 1 << 20)
      return error_set(error, PLAIT_BAD_INPUT,
                       "mesh: \"%.*s\" in \"%.200s\"; allowed: NAME=SIZE in small letters, as in \"pp=2 dp=2 tp=2\", "
                       "and at most %d ranks",
                       (int)(word < 80 ? word : 80), p, text, 1 << 20);
    code = add_axis(at, p, length, (int)size, error);
    p += word;
  }
  static const AxisId needed[] = {AXIS_PP, AXIS_DP};
  for (int i = 0; i < 2 && !code; i++)
    if (mesh_axis(&at->mesh, needed[i]) < 0) code = add_axis(at, axis_names[needed[i]], 2, 1, error);
  if (!code) at->dp = mesh_axis(&at->mesh, AXIS_DP);
  return code;
}

// Axes that mean something to the graph, each once; returns their count.
static int axes_of(const ApiGraphSetup *s, const char *names[MOST_NAMES], char *list, size_t size) {
  int n = 0;
  names[n++] = axis_names[AXIS_DP];
  names[n++] = axis_names[AXIS_PP];
  for (int i = 0; i < s->annotation.count && n < MOST_NAMES; i++) {
    const ApiGraphAnnotation *a = &s->annotation.data[i];
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
static int check_axes(const ApiGraphSetup *s, Error *error) {
  const char *names[MOST_NAMES];
  char list[256];
  const Mesh *mesh = &s->at->mesh;
  int n = axes_of(s, names, list, sizeof list);
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
static const char *cuts_samples(const ApiGraphSetup *s) {
  for (int i = 0; i < s->annotation.count; i++) {
    const ApiGraphAnnotation *a = &s->annotation.data[i];
    int axis = a->dim == 0 && api_graph_samples(s->graph, a->tensor) ? mesh_find(&s->at->mesh, a->axis) : -1;
    if (axis >= 0 && s->at->mesh.axis[axis].size > 1) return graph_tensor(s->graph->g, a->tensor)->name;
  }
  return NULL;
}

// The samples of a step among ranks of dp and microbatches.
static int check_shares(const ApiGraphSetup *s, Error *error) {
  int dp = s->at->mesh.axis[s->at->dp].size, asked = s->options.microbatches, microbatches = s->microbatches;
  int64_t unit = (int64_t)microbatches * dp, below = s->graph->samples / unit * unit,
          most = (s->graph->samples + dp - 1) / dp;
  const char *tensor = s->graph->samples % unit ? cuts_samples(s) : NULL;
  if (asked < 0 || microbatches > MOST_MICROBATCHES)
    return error_set(error, PLAIT_BAD_INPUT, "microbatches is %d; allowed: 1 to %d", asked, MOST_MICROBATCHES);
  if (microbatches > most)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "microbatches is %d, but of the graph's %lld samples a rank of dp (%d) has %lld at most; allowed: 1 "
        "to %lld",
        microbatches, (long long)s->graph->samples, dp, (long long)most, (long long)most);
  if (!tensor) return PLAIT_OK;
  char nearest[64];
  if (below) snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)below, (long long)(below + unit));
  else snprintf(nearest, sizeof nearest, "%lld", (long long)unit);
  return error_set(
      error, PLAIT_BAD_INPUT,
      "the graph has %lld samples, which must be a multiple of microbatches (%d) · dp (%d) where a placement "
      "cuts the samples of a tensor, as of %s; the nearest is %s",
      (long long)s->graph->samples, microbatches, dp, tensor, nearest);
}

static int check_options(const ApiGraphSetup *s, Error *error) {
  const PlaitTrainingOptions *o = &s->options;
  int code = check_axes(s, error);
  if (!code) code = check_shares(s, error);
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

// A plan's settings -------------------------------------------------------------------------------------------------

// The tensor by which ops read a parameter of this name, or -1.
static int parameter_tensor(const Graph *g, const char *name) {
  for (int i = 0; i < g->tensor.count; i++) {
    const Tensor *t = &g->tensor.data[i];
    if (t->variable >= 0 && variable_is_counted(&g->variable.data[t->variable]) &&
        !strcmp(user_name(t->name), name))
      return i;
  }
  return -1;
}

static int take_placements(ApiGraphSetup *s, const PlaitGraphPlan *plan, Error *error) {
  const Graph *g = s->graph->g;
  for (int i = 0; i < plan->placements; i++) {
    const PlaitPlacement *p = &plan->placement[i];
    int tensor = parameter_tensor(g, p->parameter);
    if (tensor < 0)
      return error_set(error, PLAIT_BAD_INPUT, "plan: it cuts the parameter %.80s, which the graph does not have",
                       p->parameter);
    int rank = graph_tensor(g, tensor)->shape.rank;
    if (p->dim < 0 || p->dim >= rank)
      return error_set(error, PLAIT_BAD_INPUT, "plan: it cuts dim %d of %.80s; allowed: 0 to %d", p->dim, p->parameter,
                       rank - 1);
    ApiGraphAnnotation a = {.tensor = tensor, .dim = p->dim};
    snprintf(a.axis, sizeof a.axis, "%s", p->axis);
    vec_push(&s->annotation, a);
  }
  return PLAIT_OK;
}

// The plan says what the options would, so that only one of both may.
static int take_plan(ApiGraphSetup *s, Error *error) {
  PlaitTrainingOptions *o = &s->options;
  const PlaitGraphPlan *plan = o->plan;
  const char *twice = o->mesh ? "mesh" : o->microbatches ? "microbatches" : o->schedule ? "schedule" : o->zero ? "zero"
                                                                                                             : NULL;
  if (!plan) return PLAIT_OK;
  if (twice)
    return error_set(error, PLAIT_BAD_INPUT, "%s is given, and so is plan, which says that too; leave one of both out",
                     twice);
  o->mesh = plan->mesh;
  o->microbatches = plan->microbatches;
  o->schedule = plan->schedule;
  o->zero = plan->zero;
  return take_placements(s, plan, error);
}

int api_graph_device(const PlaitTrainingOptions *options, const Device **device, Error *error) {
  const char *wish = options->backend ? options->backend : getenv("PLAIT_BACKEND"), *by = "backend";
  const DeviceNumbers all = {0};
  *device = device_cpu();
  if (!wish || !*wish) return PLAIT_OK;
  if (!options->backend) by = "PLAIT_BACKEND";
  for (int kind = 0; kind < DEVICE_KINDS; kind++)
    if (!strcmp(wish, device_kind_name((DeviceKind)kind))) {
      *device = FAULT(graphs_stay_on_the_cpu, device_describe((DeviceKind)kind), device_cpu());
      return device_ready(*device, &all, error) ? error_prefix(error, "%s is %s", by, wish) : PLAIT_OK;
    }
  return error_set(error, PLAIT_BAD_INPUT, "%s is \"%.80s\"; allowed: cuda, cpu", by, wish);
}

int api_graph_setup(const PlaitGraph *h, const PlaitTrainingOptions *options, ApiGraphMesh *at, ApiGraphSetup *s,
                  Error *error) {
  *s = (ApiGraphSetup){.graph = h, .at = at};
  if (options) s->options = *options;
  int code = api_graph_check_graph(h, error);
  for (int i = 0; i < h->annotation.count && !code; i++) vec_push(&s->annotation, h->annotation.data[i]);
  if (!code) code = take_plan(s, error);
  s->microbatches = s->options.microbatches > 0 ? s->options.microbatches : 1;
  if (!code) code = api_graph_read_mesh(at, s->options.mesh, error);
  if (!code) code = check_options(s, error);
  if (code) api_graph_setup_free(s);
  return code;
}

void api_graph_setup_free(ApiGraphSetup *s) { vec_free(&s->annotation); }
