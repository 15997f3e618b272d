// Traces read back (runtime/trace.c writes them), and sums of their spans beside simulated ones.
#include "foresight/against.h"
#include "base/fault.h"
#include "base/file.h"
#include "op/op.h"
#include "machine/critical.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Instructions repeat in the same order, so that the next one is mostly the one after the last.
static AgainstOp *op_of(Against *a, const char *full, int communicates, int flies) {
  char name[sizeof((AgainstOp *)0)->name];
  critical_name(full, name, sizeof name);
  for (int k = 0; k < a->op.count; k++) {
    int i = (a->last + 1 + k) % a->op.count;
    AgainstOp *op = &a->op.data[i];
    if (op->flies == flies && !strcmp(op->name, name)) return a->last = i, op;
  }
  vec_push(&a->op, (AgainstOp){.communicates = communicates, .flies = flies});
  memcpy(a->op.data[a->op.count - 1].name, name, sizeof name);
  return &a->op.data[a->last = a->op.count - 1];
}

// ---- the trace ------------------------------------------------------------------------------------------------------

static const char *text_of(const json_t *event, const char *key) {
  const char *text = json_string_value(json_object_get(event, key));
  return text ? text : "";
}

static double number_of(const json_t *event, const char *key) {
  double x = json_number_value(json_object_get(event, key));
  return x > 0 && x < 1e18 ? x : 0; // microseconds
}

static void take_event(Against *a, const json_t *event) {
  const char *category = text_of(event, "cat"), *node = text_of(json_object_get(event, "args"), "node");
  double seconds = number_of(event, "dur") / 1e6;
  int flies = !strcmp(category, "in flight"), communicates = flies || !strcmp(category, "communication");
  json_int_t rank = json_integer_value(json_object_get(event, "pid"));
  if (rank >= a->ranks && rank < 1 << 24) a->ranks = (int)rank + 1;
  if (!strcmp(category, "step")) a->steps++, a->step_seconds += seconds;
  if (!*node || (strcmp(category, "kernel") && !communicates)) return;
  AgainstOp *op = op_of(a, node, communicates, flies);
  op->measured += seconds;
  op->runs++;
}

// Spans in flight have two events, and only the first names the node: they are joined first.
static void join_flights(json_t *events) {
  json_t *begun = NULL;
  for (size_t i = 0; i < json_array_size(events); i++) {
    json_t *event = json_array_get(events, i);
    const char *phase = text_of(event, "ph");
    if (!strcmp(phase, "b")) begun = event;
    if (strcmp(phase, "e") || !begun || strcmp(text_of(begun, "id"), text_of(event, "id"))) continue;
    json_object_set_new(begun, "dur", json_real(fmax(0, number_of(event, "ts") - number_of(begun, "ts"))));
    begun = NULL;
  }
}

static int read_events(json_t *root, Against *a, Error *error) {
  json_t *events = json_object_get(root, "traceEvents");
  double runs = 0;
  if (!json_is_array(events))
    return error_set(error, PLAIT_BAD_INPUT, "%s is not a trace: it has no list traceEvents; run.trace=FILE of a run "
                     "writes one", a->path);
  join_flights(events);
  for (size_t i = 0; i < json_array_size(events); i++) take_event(a, json_array_get(events, i));
  for (int i = 0; i < a->op.count; i++) runs += a->op.data[i].runs;
  if (runs <= 0 || a->steps <= 0)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: holds no %s of a run; run.trace=FILE of a run writes a trace that does", a->path,
                     runs > 0 ? "step" : "instructions");
  a->steps /= a->ranks;
  json_int_t said = json_integer_value(json_object_get(json_object_get(root, "otherData"), "ranks"));
  a->run_ranks = said >= a->ranks && said < 1 << 24 ? (int)said : a->ranks;
  return PLAIT_OK;
}

int against_read(const char *path, Against *out, Error *error) {
  const size_t most = (size_t)1 << 31;
  char *text = NULL;
  size_t size = 0;
  json_error_t problem;
  *out = (Against){.path = path};
  int code = file_read(path, most, &text, &size, error);
  if (code) return error_prefix(error, "--against");
  json_t *root = json_loadb(text, size, 0, &problem);
  free(text);
  if (!root)
    return error_set(error, PLAIT_BAD_INPUT, "%s:%d:%d: is not JSON: %.150s", path, problem.line, problem.column,
                     problem.text);
  code = read_events(root, out, error);
  json_decref(root);
  return code;
}

void against_free(Against *a) { vec_free(&a->op); }

// ---- the simulation -------------------------------------------------------------------------------------------------

void against_see(void *context, int coordinate, const char *name, const Node *node, const Action *action, double begin,
                 double end, int in_flight) {
  Against *a = context;
  if (!node) return; // a message is not an instruction
  if (action && action->step >= a->simulated_steps) a->simulated_steps = action->step + 1;
  AgainstOp *op = op_of(a, name, op_def(node->op)->communicates, in_flight);
  op->simulated += end - begin;
  op->simulated_runs++;
}

// ---- together -------------------------------------------------------------------------------------------------------

// The share of the trace that is one step on a rank of each pipeline coordinate.
static double measured_share(const Against *a, const Prediction *p) {
  return p->simulation->ranks / (a->steps * a->ranks);
}
static double simulated_share(const Against *a) { return 1.0 / (a->simulated_steps > 0 ? a->simulated_steps : 1); }

// Kernels that one of the two lacks. other: 0: the simulation, 1: the trace. Writes the first.
static int missing(const Against *a, int other, const char **first) {
  int n = 0;
  for (int i = a->op.count - 1; i >= 0; i--) {
    const AgainstOp *op = &a->op.data[i];
    double has = other ? op->simulated_runs : op->runs, lacks = other ? op->runs : op->simulated_runs;
    if (op->communicates || has <= 0 || lacks > 0) continue;
    *first = op->name;
    n++;
  }
  return n;
}

// Instructions that only the owner of a tensor runs are fewer on each rank than a Program says.
static int all_ranks_alike(const Prediction *p) { return !p->recipe.parallel.unsplit_tensors; }

int against_check(const Against *a, const Prediction *p, Error *error) {
  int ranks = p->job->options.parallel.mesh.ranks, lacks;
  const char *first = "";
  if (a->run_ranks != ranks)
    return error_set(error, PLAIT_BAD_INPUT, "%s: is of a run on %d rank%s, and the recipe has %d", a->path,
                     a->run_ranks, a->run_ranks > 1 ? "s" : "", ranks);
  for (int other = 0; other < 2; other++)
    if ((lacks = FAULT(against_takes_any_trace, missing(a, other, &first), 0)))
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s: is a trace of another recipe: %d kernel%s %s, %s among them, %s", a->path, lacks,
                       lacks > 1 ? "s" : "", other ? "of this recipe" : "in it", first,
                       other ? "did not run" : "are not in this recipe");
  for (int i = 0; i < a->op.count && all_ranks_alike(p); i++) {
    const AgainstOp *op = &a->op.data[i];
    double runs = op->runs * measured_share(a, p), simulated = op->simulated_runs * simulated_share(a);
    if (op->communicates || fabs(runs - simulated) <= 0.01 * simulated) continue;
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: is a trace of another recipe: %s runs %.4g times a step in it, %.4g times in this recipe",
                     a->path, op->name, runs, simulated);
  }
  return PLAIT_OK;
}

static int by_measured(const void *a, const void *b) {
  const AgainstOp *x = a, *y = b;
  return (x->measured < y->measured) - (x->measured > y->measured);
}

static void print_line(const char *name, double runs, double measured, double simulated, FILE *out) {
  char ratio[32] = "-", count[32] = "";
  if (measured > 0 && simulated > 0) snprintf(ratio, sizeof ratio, "%.3f", simulated / measured);
  if (runs > 0) snprintf(count, sizeof count, "%.4g", runs);
  fprintf(out, "  %-52s %8s %12.3f %12.3f %9s\n", name, count, 1e3 * measured, 1e3 * simulated, ratio);
}

enum { KERNELS, COMMUNICATION, IN_FLIGHT, GROUPS };
static int group_of(const AgainstOp *op) { return op->flies ? IN_FLIGHT : op->communicates ? COMMUNICATION : KERNELS; }

void against_print(Against *a, const Prediction *p, FILE *out) {
  static const char *const heads[GROUPS] = {"kernels", "communication, measured with waiting for the others",
                                            "in flight, measured until it was waited for"};
  double m = measured_share(a, p), s = simulated_share(a);
  int coordinates = p->simulation->ranks;
  if (a->op.count) qsort(a->op.data, (size_t)a->op.count, sizeof *a->op.data, by_measured);
  fprintf(out, "\nbeside %s, %.4g step%s of %d rank%s: a step%s\n", a->path, a->steps, a->steps > 1 ? "s" : "",
          a->run_ranks, a->run_ranks > 1 ? "s" : "",
          coordinates > 1 ? " of one rank of each pipeline stage, together" : " of one rank");
  for (int g = 0; g < GROUPS; g++) {
    double measured = 0, simulated = 0;
    for (int i = 0; i < a->op.count; i++) {
      const AgainstOp *op = &a->op.data[i];
      if (group_of(op) != g) continue;
      if (measured <= 0 && simulated <= 0)
        fprintf(out, "  %-52s %8s %12s %12s %9s\n", heads[g], "calls", "measured ms", "simulated ms", "ratio");
      measured += op->measured * m, simulated += op->simulated * s;
      print_line(op->name, op->runs > 0 ? op->runs * m : op->simulated_runs * s, op->measured * m, op->simulated * s,
                 out);
    }
    if (measured > 0 || simulated > 0) print_line("together", 0, measured, simulated, out), fputc('\n', out);
  }
  print_line("the step", 0, a->step_seconds / (a->steps * a->ranks), p->simulation->step, out);
}

json_t *against_json(Against *a, const Prediction *p) {
  static const char *const groups[GROUPS] = {"kernel", "communication", "in flight"};
  double m = measured_share(a, p), s = simulated_share(a);
  json_t *ops = json_array();
  if (a->op.count) qsort(a->op.data, (size_t)a->op.count, sizeof *a->op.data, by_measured);
  for (int i = 0; i < a->op.count; i++) {
    const AgainstOp *op = &a->op.data[i];
    json_array_append_new(ops, json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", op->name, "group", groups[group_of(op)],
                                         "calls", op->runs > 0 ? op->runs * m : op->simulated_runs * s,
                                         "measured_seconds", op->measured * m, "simulated_seconds",
                                         op->simulated * s));
  }
  return json_pack("{s:s, s:f, s:i, s:{s:f, s:f}, s:o}", "path", a->path, "steps", a->steps, "ranks", a->run_ranks,
                   "step", "measured_seconds", a->step_seconds / (a->steps * a->ranks), "simulated_seconds",
                   p->simulation->step, "ops", ops);
}
