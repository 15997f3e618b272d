// Bodies of a Program as steps, for the page of plait explain --play.
#include "cmd/play/play.h"
#include "base/fault.h"
#include "op/op.h"
#include "program/cost.h"
#include "program/memory.h"
#include "program/traffic.h"
#include <math.h>
#include <string.h>

static const Node *node_of(const Play *play, const Body *body, int i) {
  return &play->program->graph->node.data[body->instruction[i].node];
}

int play_layer_group(const Play *play, int layer) {
  int layers = play->program->graph->layers;
  return layer < 0 ? 0 : layer >= layers ? 1 + layers : 1 + layer;
}

int play_op(Play *play, Op op) {
  size_t i = 0;
  while (i < json_array_size(play->ops) && strcmp(json_string_value(json_array_get(play->ops, i)), op_name(op))) i++;
  if (i == json_array_size(play->ops)) json_array_append_new(play->ops, json_string(op_name(op)));
  return (int)i;
}

// ---- collectives ----------------------------------------------------------------------------------------------------

// "weights", "gradients", …: by the first tensor that is moved.
static const char *what_moves(const Play *play, const Tensor *t) {
  const Variable *v = t->variable >= 0 ? &play->program->graph->variable.data[t->variable] : NULL;
  if (play->parameter[t->id] >= 0) return "weights";
  if (t->role == ROLE_WEIGHT_GRADIENT || (v && v->kind == VARIABLE_GRADIENT)) return "gradients";
  if (shape_elements(&t->shape) <= 1 || t->role == ROLE_SCALAR) return "numbers";
  return t->role == ROLE_RESIDUAL ? "hidden states" : "activations";
}

static int group_of_moved(const Play *play, const Tensor *t) {
  const Graph *g = play->program->graph;
  int v = play->parameter[t->id] >= 0 ? play->parameter[t->id]
          : t->parameter >= 0         ? t->parameter
          : t->variable >= 0          ? g->variable.data[t->variable].parameter
                                      : -1;
  return v < 0 ? -1 : play->group[v];
}

static void add_once(json_t *list, int number) {
  for (size_t i = 0; i < json_array_size(list); i++)
    if (json_integer_value(json_array_get(list, i)) == number) return;
  json_array_append_new(list, json_integer(number));
}

json_t *play_collective(Play *play, const Node *n, int microbatch) {
  const Graph *g = play->program->graph;
  json_t *groups = json_array();
  for (int k = 0; k < n->noutput; k++) {
    int group = group_of_moved(play, graph_tensor(g, n->input[k]));
    if (group >= 0) add_once(groups, group);
  }
  const CommAttr *attr = node_attr(n, CommAttr);
  return json_pack("{s:i, s:i, s:f, s:s, s:i, s:o, s:s}", "op", play_op(play, n->op), "over",
                   play_set(play, attr->axes), "bytes", collective_bytes(play->program, n, microbatch), "what",
                   what_moves(play, graph_tensor(g, n->input[0])), "tensors", n->noutput, "groups", groups, "name",
                   n->name);
}

// ---- where steps begin ----------------------------------------------------------------------------------------------

// The part of a layer that a node is of: "attention" of "grad.layer.3.attention.q.dx".
static void part_of(const Node *n, char *part, size_t size) {
  const char *at = n->name;
  if (!strncmp(at, "grad.", 5)) at += 5;
  if (!strncmp(at, "layer.", 6)) {
    at += 6 + strspn(at + 6, "0123456789");
    if (*at == '.') at++;
  }
  snprintf(part, size, "%.*s", (int)strcspn(at, "."), at);
}

static int same_part(const Node *a, const Node *b) {
  char x[64], y[64];
  part_of(a, x, sizeof x);
  part_of(b, y, sizeof y);
  return !strcmp(x, y);
}

// Whether a reader would see an instruction as the beginning of something else than the one before.
static int differs(const Node *before, const Node *n, Region region, Phase phase) {
  if (region != REGION_MICRO) return !op_def(before->op)->optimizer != !op_def(n->op)->optimizer;
  if (before->layer != n->layer) return 1;
  return phase == PHASE_FORWARD && n->layer >= 0 && !same_part(before, n);
}

// begins: (count + 1). Also where an action of the list begins or ends within the body.
static void find_beginnings(const Play *play, const Body *body, Region region, Phase phase, char *begins) {
  const ActionList *actions = &play->program->actions;
  for (int i = 0; i < body->count; i++) {
    const Node *n = node_of(play, body, i);
    int moves = op_def(n->op)->communicates, until = instruction_end(body, i);
    begins[i] |= !i || moves || differs(node_of(play, body, i - 1), n, region, phase);
    if (moves) begins[until > i ? until : i + 1] = 1;
  }
  for (int i = 0; i < actions->count; i++) {
    const Action *a = &actions->data[i];
    const Body *of = action_runs_body(a) ? &play->program->micro[a->stage][action_phase(a)]
                     : a->kind == ACTION_END || a->kind == ACTION_SUMS ? &play->program->end
                                                                       : NULL;
    if (of == body && a->from < body->count) begins[a->from] = 1;
    if (of == body && a->to < body->count) begins[a->to] = 1;
  }
}

// ---- memory of a step -----------------------------------------------------------------------------------------------

enum { HELD_WEIGHTS, HELD_GRADIENTS, HELD_OTHER, HELD_KINDS };
// Needed within a body during an instruction, by kind and in all.
typedef struct Held { int64_t bytes[HELD_KINDS], all; } Held;

static int kind_of(const Play *play, int tensor) {
  if (play->parameter[tensor] >= 0) return HELD_WEIGHTS;
  return graph_tensor(play->program->graph, tensor)->role == ROLE_WEIGHT_GRADIENT ? HELD_GRADIENTS : HELD_OTHER;
}

static int by_offset(const void *a, const void *b) {
  const Life *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->tensor - y->tensor;
}

// lives: by offset. Tensors of different owners lie in the same bytes, which count once.
static Held held_during(const Play *play, const LifeList *lives, int instruction) {
  Held h = {0};
  int64_t reached = 0;
  for (int i = 0; i < lives->count; i++) {
    const Life *l = &lives->data[i];
    int64_t end = l->offset + l->bytes, from = l->offset > reached ? l->offset : reached;
    if (l->first > instruction || instruction > FAULT(play_frees_too_early, l->last, l->first) || end <= reached)
      continue;
    h.bytes[kind_of(play, l->tensor)] += end - from;
    h.all += end - from;
    reached = end;
  }
  return h;
}

// Memory held by the instruction of the step that needs the most: of the workspace, of the microbatch's slot, and
// scratch. slot: by instruction; NULL: none.
static json_t *step_memory(const Play *play, const Body *body, const LifeList *lives, const int64_t *slot, int from,
                           int to) {
  Held most = {0};
  int64_t scratch = 0, kept = 0;
  for (int i = from; i < to; i++) {
    Held h = held_during(play, lives, i);
    int64_t own = round_up(body->instruction[i].scratch, play->program->device->space[0].alignment);
    int64_t in_slot = slot ? slot[i] : 0;
    if (i > from && h.all + own + in_slot <= most.all + scratch + kept) continue;
    most = h;
    scratch = own;
    kept = in_slot;
  }
  return json_pack("[I, I, I, I, I]", (json_int_t)most.bytes[HELD_WEIGHTS], (json_int_t)most.bytes[HELD_GRADIENTS],
                   (json_int_t)most.bytes[HELD_OTHER], (json_int_t)kept, (json_int_t)scratch);
}

// The groups whose weights lie in the workspace during any instruction of the step, as they were gathered.
static json_t *gathered(const Play *play, const LifeList *lives, int from, int to) {
  json_t *groups = json_array();
  for (int i = 0; i < lives->count; i++) {
    const Life *l = &lives->data[i];
    int parameter = play->parameter[l->tensor];
    if (parameter >= 0 && l->first < to && l->last >= from && play->group[parameter] >= 0)
      add_once(groups, play->group[parameter]);
  }
  return groups;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

// Of a kernel; what owners do alone, each its part, is left out.
static double node_flops(const Program *p, const Node *n, int microbatch) {
  const OpDef *op = op_def(n->op);
  return op->communicates || op->role == ROLE_WHOLE_MATRIX ? 0 : program_work(p, n, microbatch).matrix;
}

// How long an instruction takes, as a share of its body: by FLOPs, and a fifth of the time evenly, so that what has
// none can be seen.
static double weight_of(const Play *play, const Body *body, int i, double flops, int microbatch) {
  enum { EVENLY = 5, COLLECTIVE = 3 };
  const Node *n = node_of(play, body, i);
  double even = (op_def(n->op)->communicates ? (double)COLLECTIVE : 1.0) / body->count;
  return flops > 0 ? even / EVENLY + node_flops(play->program, n, microbatch) / flops : even;
}

static json_t *ops_of(Play *play, const Body *body, int from, int to) {
  json_t *ops = json_array();
  for (int i = from; i < to; i++)
    if (!op_def(node_of(play, body, i)->op)->communicates) add_once(ops, play_op(play, node_of(play, body, i)->op));
  return ops;
}

static json_t *parts_of(const Play *play, const Body *body, int from, int to) {
  json_t *parts = json_object(); // as a set
  json_t *list = json_array();
  for (int i = from; i < to; i++) {
    char part[64];
    part_of(node_of(play, body, i), part, sizeof part);
    if (op_def(node_of(play, body, i)->op)->communicates || json_object_get(parts, part)) continue;
    json_object_set_new(parts, part, json_true());
    if (json_array_size(list) < 4) json_array_append_new(list, json_string(part));
  }
  json_decref(parts);
  return list;
}

// Whether END's collective has started as a REDUCE before.
static int is_reduced(const Play *play, int node) {
  const ActionList *actions = &play->program->actions;
  for (int i = 0; i < actions->count; i++)
    if (actions->data[i].kind == ACTION_REDUCE && actions->data[i].node == node) return 1;
  return 0;
}

static void add_collective(Play *play, const Body *body, int i, int microbatch, const int *step_of, json_t *step) {
  const Node *n = node_of(play, body, i);
  if (!op_def(n->op)->communicates) return;
  json_t *collective = play_collective(play, n, microbatch);
  int until = instruction_end(body, i);
  if (until > i) json_object_set_new(collective, "until", json_integer(step_of[until]));
  if (body == &play->program->end && FAULT(play_counts_twice, is_reduced(play, n->id), 0))
    json_object_set_new(collective, "early", json_true());
  json_object_set_new(step, "moves", collective);
}

// The layer of most of its instructions' kernels: that of the first.
static json_t *make_step(Play *play, const Body *body, const LifeList *lives, const int64_t *slot, int from, int to,
                         int microbatch, const int *step_of, double flops) {
  double weight = 0;
  for (int i = from; i < to; i++) weight += weight_of(play, body, i, flops, microbatch);
  json_t *step = json_pack("{s:[i, i], s:f, s:i, s:o, s:o, s:o, s:o}", "range", from, to, "weight",
                           round(weight * 1e6) / 1e6, "group", play_layer_group(play, node_of(play, body, from)->layer),
                           "parts", parts_of(play, body, from, to), "ops", ops_of(play, body, from, to), "held",
                           step_memory(play, body, lives, slot, from, to), "gathered", gathered(play, lives, from, to));
  add_collective(play, body, from, microbatch, step_of, step);
  return step;
}

json_t *play_body(Play *play, const Body *body, Region region, Phase phase, int **step_of) {
  int microbatch = region == REGION_MICRO ? 0 : -1, count = 0;
  char *begins = xcalloc((size_t)body->count + 1, 1);
  find_beginnings(play, body, region, phase, begins);
  int *of = xcalloc((size_t)body->count + 1, sizeof *of);
  for (int i = 0; i < body->count; i++) of[i] = count += begins[i];
  for (int i = 0; i < body->count; i++) of[i]--;
  of[body->count] = count;
  double flops = 0;
  for (int i = 0; i < body->count; i++) flops += node_flops(play->program, node_of(play, body, i), microbatch);
  LifeList lives = {0};
  memory_body_lives(play->program, body, &lives);
  if (lives.count) qsort(lives.data, (size_t)lives.count, sizeof *lives.data, by_offset);
  const Node *first = region == REGION_MICRO && body->count ? node_of(play, body, 0) : NULL;
  int64_t *needed = first ? memory_slot_needed(play->program, first->stage) : NULL, *slot = needed ? needed + 1 : NULL;
  for (int before = 0; slot && before < (int)phase; before++)
    slot += play->program->micro[first->stage][before].count + 1;
  json_t *steps = json_array();
  for (int from = 0, to; from < body->count; from = to) {
    for (to = from + 1; to < body->count && !begins[to];) to++;
    json_array_append_new(steps, make_step(play, body, &lives, slot, from, to, microbatch, of, flops));
  }
  json_t *made = json_pack("{s:o, s:I}", "steps", steps, "left", slot ? (json_int_t)slot[body->count] : 0);
  vec_free(&lives);
  free(needed);
  free(begins);
  *step_of = of;
  return made;
}
