// How Programs show what runs when: recomputation, the pipeline, and when collectives are issued.
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "key_views.h"
#include "setup/setup_memory.h"
#include "sharding/placement.h"

// ---- recomputation

typedef struct Again { int expensive, cheap; } Again; // nodes of a layer that run again

static void count_again(const View *v, Again *layer) {
  memset(layer, 0, sizeof *layer * (size_t)v->g->layers);
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    const OpDef *op = op_def(n->op);
    if (strncmp(n->name, "again.", 6) || n->layer < 0 || n->layer >= v->g->layers || op->communicates) continue;
    if (op->expensive) layer[n->layer].expensive++;
    else if (!op->one_pass) layer[n->layer].cheap++; // what is made in one pass runs again in any case
  }
}

// "keep keep full selective", with spaces; of all blocks.
static void blocks_again(const View *v, char *text, size_t size) {
  Again layer[16];
  size_t n = 0;
  assert_true(v->g->layers <= 16);
  count_again(v, layer);
  for (int l = 0; l < v->g->layers; l++)
    n += (size_t)snprintf(text + n, size - n, "%s%s", l ? " " : "",
                          layer[l].expensive ? "full" : layer[l].cheap ? "selective" : "keep");
}

// Of "[full x 2, keep]", which has a word for every block.
static const char *block_of_list(const char *list, int block, char word[16]) {
  for (const char *item = list + 1; *item; item += strcspn(item, ",]") + 1) {
    int times = 1;
    if (sscanf(item, " %15[a-z] x %d", word, &times) < 1) break;
    if ((block -= times) < 0) return word;
  }
  fail_msg("%s is too short", list);
  return NULL;
}

// The first layers of each stage that recompute, as the asked layers of a stage say; the others keep.
Shown shows_recompute(View *v, const char *value) {
  char there[SHOWN_TEXT], expected[SHOWN_TEXT], of_list[16];
  size_t n = 0;
  int most = asked_int(v->asked, "parallel.recompute_layers");
  blocks_again(v, there, sizeof there);
  snprintf(v->says, sizeof v->says, "%s", there);
  for (int l = 0, stage = -1, before = 0; l < v->g->layers; l++) {
    if (graph_stage_of_layer(v->g, l) != stage) before = 0;
    stage = graph_stage_of_layer(v->g, l);
    const char *block = !strcmp(value, "none") ? "keep" : most && before >= most ? "keep" : value;
    before++;
    if (*value == '[') block = block_of_list(value, l, of_list);
    n += (size_t)snprintf(expected + n, sizeof expected - n, "%s%s", l ? " " : "", block);
  }
  return !strcmp(there, expected) ? AS_ASKED : ANOTHER;
}

Shown shows_recompute_layers(View *v, const char *value) {
  Again layer[16];
  int most = 0, least = 0, wanted = atoi(value);
  if (is_asked(v->asked, "parallel.recompute", "none") || *asked(v->asked, "parallel.recompute") == '[' ||
      is_asked(v->asked, "parallel.recompute", "auto"))
    return NOTHING_TO_SEE;
  count_again(v, layer);
  for (int s = 0; s < v->g->stages; s++) {
    int again = 0, all = 0;
    for (int l = 0; l < v->g->layers; l++)
      if (graph_stage_of_layer(v->g, l) == s) again += layer[l].expensive + layer[l].cheap > 0, all++;
    int expected = wanted && wanted < all ? wanted : all;
    most = again > most ? again : most;
    least += again != expected;
  }
  snprintf(v->says, sizeof v->says, "at most %d of a stage", most);
  return least ? ANOTHER : AS_ASKED;
}

Shown shows_memory(View *v, const char *value) {
  int64_t most = 0;
  if (!is_asked(v->asked, "parallel.recompute", "auto")) return NOTHING_TO_SEE;
  for (int k = 0; k < all_pipeline_ranks(v); k++) {
    int64_t bytes = setup_rank_bytes(&v->c->recipe, &v->c->config, v->c->job, k);
    most = bytes > most ? bytes : most;
  }
  snprintf(v->says, sizeof v->says, "%lld bytes", (long long)most);
  return most <= atoll(value) * (strstr(value, "GB")   ? 1000000000
                                 : strstr(value, "MB") ? 1000000
                                                       : 1)
             ? AS_ASKED
             : ANOTHER;
}

// ---- the pipeline

// The order of segments on each rank is the one that the named generator writes.
Shown shows_pipeline(View *v, const char *value) {
  const ScheduleGenerator *named = schedule_by_name(value);
  const Schedule *s = v->p->schedule;
  assert_non_null(named);
  if (s->map.coordinates == 1) return NOTHING_TO_SEE;
  snprintf(v->says, sizeof v->says, "%s of %d stages on %d ranks%s", s->streams ? "a stream" : "a schedule that drains",
           s->stages, s->map.coordinates, s->at_once ? ", at once" : "");
  if (!schedule_can_run(named, s->stages / s->map.coordinates) || s->streams != named->streams ||
      s->at_once != named->at_once || s->map.folded != named->folded)
    return ANOTHER;
  for (int k = 0; k < s->map.coordinates && !s->streams; k++) {
    ActionList expected = {0};
    int next = 0, same = 1;
    named->generate(s->map, s->stages, s->microbatches, k, &expected);
    for (int i = 0; i < s->list[k].count; i++) {
      const Action *a = &s->list[k].data[i];
      if (!action_runs_body(a)) continue;
      const Action *e = next < expected.count ? &expected.data[next] : NULL;
      same &= e && e->kind == a->kind && e->stage == a->stage && e->microbatch == a->microbatch;
      next++;
    }
    same &= next == expected.count;
    vec_free(&expected);
    snprintf(v->says, sizeof v->says, "another order of segments on pipeline rank %d", k);
    if (!same) return ANOTHER;
  }
  return AS_ASKED;
}

// What the gradient of the head's weight reads, in a body of its own: the gradients of the logits, or not.
Shown shows_logits(View *v, const char *value) {
  int bodies = 0, kept = 0;
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    if (n->region != REGION_MICRO || n->phase != PHASE_WEIGHT || n->layer != v->g->layers) continue;
    bodies++;
    for (int k = 0; k < n->ninput; k++) {
      const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(v->g, n->input[k]);
      if (!t || t->producer < 0 || v->g->node.data[t->producer].phase == PHASE_WEIGHT) continue;
      kept |= dim_of(&t->shape, DIM_VOCAB) >= 0 && dim_of(&t->shape, DIM_SEQ) >= 0;
    }
  }
  return bodies ? word(v, value, kept ? "keep" : "recompute") : NOTHING_TO_SEE;
}

Shown shows_stages_per_rank(View *v, const char *value) {
  return number(v, value, v->g->stages / all_pipeline_ranks(v));
}

Shown shows_layers(View *v, const char *value) {
  char there[SHOWN_TEXT];
  size_t n = 0;
  for (int s = 0; s < v->g->stages; s++) {
    int layers = 0;
    for (int l = 0; l < v->g->layers; l++) {
      int here = 0;
      for (int i = 0; i < v->g->node.count && !here; i++) {
        const Node *node = &v->g->node.data[i];
        here = node->region == REGION_MICRO && node->phase == PHASE_FORWARD && node->layer == l && node->stage == s;
      }
      layers += here;
    }
    n += (size_t)snprintf(there + n, sizeof there - n, "%s%d", s ? ", " : "[", layers);
  }
  snprintf(there + n, sizeof there - n, "]");
  return word(v, value, there);
}

// ---- collectives

static int overlaps(const Program *p) {
  int early = 0;
  const Body *bodies[2 + 64] = {&p->begin, &p->end};
  int n = 2;
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      if (n < 66) bodies[n++] = &p->micro[s][phase];
  for (int b = 0; b < n; b++)
    for (int i = 0; i < bodies[b]->count; i++) early |= bodies[b]->instruction[i].wait > 0;
  for (int i = 0; i < p->actions.count; i++) early |= p->actions.data[i].kind == ACTION_REDUCE;
  return early;
}

Shown shows_overlap(View *v, const char *value) {
  if (mesh_size(v->mesh, ~(1u << mesh_pipeline(v->mesh))) == 1 || v->p->schedule->streams) return NOTHING_TO_SEE;
  if (is_asked(v->asked, "parallel.bucket_mb", "0")) return NOTHING_TO_SEE; // which turns it off, too
  int early = 0;
  for (int k = 0; k < all_pipeline_ranks(v); k++) early |= overlaps(job_train(v->c->job)->program[k]);
  return truth(v, value, early);
}

static double larger_side(const View *v, const Node *n, int k) {
  const Tensor *in = graph_tensor(v->g, n->input[k]), *out = graph_tensor(v->g, n->output[k]);
  return (double)(in->allocated_ > out->allocated_ ? in->allocated_ : out->allocated_) * (double)dtype_size(in->dtype);
}

static double bucket_bytes(const View *v, const Node *n) {
  double bytes = 0;
  for (int k = 0; k < n->ninput; k++) bytes += larger_side(v, n, k);
  return bytes;
}

// Whether both could be one call.
static int alike(const View *v, const Node *a, const Node *b) {
  const CommAttr *x = node_attr(a, CommAttr), *y = node_attr(b, CommAttr);
  const Tensor *s = graph_tensor(v->g, a->input[0]), *t = graph_tensor(v->g, b->input[0]);
  return a->op == b->op && a->stages == b->stages && x->axes == y->axes && x->root == y->root &&
         s->dtype == t->dtype && placement_same_owner(s->placement, t->placement);
}

// Sums of accumulators over ranks in END: no bucket of several is larger, and two neighbours would not fit into one.
Shown shows_bucket_mb(View *v, const char *value) {
  const double most = atof(value) * 1e6;
  const Node *before = NULL;
  int seen = 0, joined = 0, apart = 0, large = 0;
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    const Tensor *t = n->region == REGION_END && node_comm(n)->reduces ? graph_tensor(v->g, n->input[0]) : NULL;
    if (!t || t->variable < 0 || t->producer >= 0) continue;
    if (v->g->variable.data[t->variable].kind != VARIABLE_GRADIENT) continue;
    seen++;
    joined += n->ninput > 1;
    large += n->ninput > 1 && bucket_bytes(v, n) > most;
    apart += before && alike(v, before, n) && bucket_bytes(v, before) + bucket_bytes(v, n) <= most;
    before = n;
  }
  if (seen < 2 && !joined) return NOTHING_TO_SEE;
  snprintf(v->says, sizeof v->says, "%d sums, %d of several, of these %d too large; %d could be one with the last",
           seen, joined, large, apart);
  return !large && !apart ? AS_ASKED : ANOTHER;
}

// The parameter that is gathered, or what it was some steps ago; NULL: it is neither.
static const char *gathered_name(const View *v, const Node *n, int k) {
  int id = graph_tensor(v->g, n->input[k])->variable;
  const Variable *x = id < 0 ? NULL : &v->g->variable.data[id];
  return !x || (x->kind != VARIABLE_PARAMETER && !x->version) ? NULL : v->g->variable.data[x->parameter].name;
}

static int gathers_parameters(const View *v, const Node *n) {
  if (n->region != REGION_MICRO || n->phase != PHASE_FORWARD || !node_comm(n)->gathers) return 0;
  for (int k = 0; k < n->ninput; k++)
    if (!gathered_name(v, n, k)) return 0;
  return 1;
}

// What forward gathers at a time: calls that stand together, which are one or, at the start of a stage, two units. By
// layers no call but the first is for more than one (names differ in their end only). By blocks no unit is of more than
// one, though of several layers. By size no unit of several parameters is larger, and three that follow each other
// would not fit into one.
typedef struct Units {
  int count;       // of the stage so far
  double bytes, last[2];
  int parameters, block, several_blocks; // of the unit
  int large, apart, of_several_blocks;   // units
} Units;

static void end_unit(Units *u, double most) {
  if (!u->parameters) return;
  u->large += u->parameters > 1 && u->bytes > (u->count ? most : 2 * most);
  u->apart += u->count > 2 && u->last[0] + u->last[1] + u->bytes <= most;
  u->of_several_blocks += u->count && u->several_blocks;
  u->last[0] = u->last[1], u->last[1] = u->bytes;
  u->count++;
  u->bytes = u->parameters = u->several_blocks = 0;
}

static void take_parameter(Units *u, const char *name, double bytes) {
  int block = strncmp(name, "layer.", strlen("layer.")) ? -1 : atoi(name + strlen("layer."));
  u->several_blocks |= u->parameters && block >= 0 && u->block >= 0 && block != u->block;
  if (!u->parameters || block >= 0) u->block = block;
  u->parameters++;
  u->bytes += bytes;
}

Shown shows_gather(View *v, const char *value) {
  int of_layers = 0, of_more = 0, first_of_more = 0;
  double most = atof(value) * 1e6;
  Units u = {0};
  if (!is_asked(v->asked, "parallel.zero", "3") || !is_asked(v->asked, "parallel.reshard", "true") ||
      !is_asked(v->asked, "parallel.overlap", "true") || !is_asked(v->asked, "parallel.bucket_mb", "25") ||
      !is_asked(v->asked, "parallel.unsplit_tensors", "false") || ranks_that_share(v) == 1)
    return NOTHING_TO_SEE;
  for (int i = 0, stage = -1; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    if (n->region != REGION_MICRO || n->phase != PHASE_FORWARD) continue;
    if (!gathers_parameters(v, n) || n->stage != stage) end_unit(&u, most);
    if (n->stage != stage) u.count = 0;
    stage = n->stage;
    if (!gathers_parameters(v, n)) continue;
    const char *name = gathered_name(v, n, 0), *dot = strrchr(name, '.');
    size_t stem = dot ? (size_t)(dot - name) + 1 : 0;
    int one_layer = 1;
    for (int k = 0; k < n->ninput; k++) {
      const char *other = gathered_name(v, n, k);
      one_layer &= !k || (stem && !strncmp(name, other, stem) && !strchr(other + stem, '.'));
      take_parameter(&u, other, larger_side(v, n, k));
    }
    *(one_layer ? &of_layers : u.count ? &of_more : &first_of_more) += 1;
  }
  end_unit(&u, most);
  snprintf(
      v->says, sizeof v->says,
      "%d calls for one layer, %d for more, beside %d at first; %d units of several blocks, %d too large, %d apart",
      of_layers, of_more, first_of_more, u.of_several_blocks, u.large, u.apart);
  if (!strcmp(value, "layer")) return !of_more ? AS_ASKED : ANOTHER;
  if (!strcmp(value, "block")) return of_more + first_of_more && !u.of_several_blocks ? AS_ASKED : ANOTHER;
  return !u.large && !u.apart ? AS_ASKED : ANOTHER;
}
