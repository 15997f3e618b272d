// The space of a search: features from the table, numbers, and the judge.
#include "foresight/search_space.h"
#include "base/fault.h"
#include "schedule/schedule.h"
#include "foresight/predict.h"
#include "foresight/search_mesh.h"
#include <stdlib.h>
#include <string.h>

static const char *const mesh_keys[SPACE_MESH] = {"mesh.pp", "mesh.dp", "mesh.cp", "mesh.tp"};
static const AxisId mesh_axes[SPACE_MESH] = {AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP};

// Kinds that change memory or time by so much that every plan is tried with them.
static bool is_first(const char *kind) {
  static const char *const kinds[] = {"zero", "tp", "pp", "ep", "recompute"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kind, kinds[i])) return true;
  return false;
}

// Settings ----------------------------------------------------------------------------------------------------------

static bool read_axes(char *text, LayoutWords *axes) {
  axes->count = 0;
  for (char *word = strtok(text, "[,] "); word; word = strtok(NULL, "[,] ")) {
    int i = 0;
    while (i < LAYOUT_WORDS && strcmp(axis_names[layout_axes_named[i]], word)) i++;
    if (i == LAYOUT_WORDS) return false;
    axes->axis[axes->count++] = layout_axes_named[i];
  }
  return true;
}

static bool read_value(SpaceSetting *s, char *text) {
  const RecipeWord *word = recipe_word(s->key, text);
  if (s->key->kind == RECIPE_AXIS_LIST) return read_axes(text, &s->axes);
  if (s->key->kind == RECIPE_BOOL) return s->value = !strcmp(text, "true"), true;
  if (s->key->kind == RECIPE_CHOICE || s->key->kind == RECIPE_MB || s->key->kind == RECIPE_WORD_OR_LIST)
    return word && !word->later && (s->value = word->value, true);
  char *end;
  s->value = (int)strtol(text, &end, 10);
  return s->key->kind == RECIPE_INT && (!*end || *text == '{');
}

// "parallel.zero=3 parallel.reshard=false"; false: it is not a feature of the space.
static bool read_feature(const LayoutTraits *t, SpaceFeature *f) {
  char text[256];
  snprintf(text, sizeof text, "%s", t->settings);
  *f = (SpaceFeature){.traits = t, .number = -1};
  for (char *at = text; *at && f->settings < SPACE_SETTINGS;) {
    size_t n = strcspn(at, " ");
    char *next = at + n + (at[n] == ' '), *equals = strchr(at, '=');
    at[n] = 0;
    SpaceSetting *s = &f->setting[f->settings];
    if (strncmp(at, "parallel.", 9) && strncmp(at, "layout.", 7)) return false; // what is learned may change
    *equals = 0;
    s->key = recipe_key_find(at);
    if (!s->key || !read_value(s, equals + 1)) return false;
    if (s->key->kind == RECIPE_INT && !strcmp(t->condition, "> 1") && !strcmp(t->key, at))
      f->number = f->settings, f->divides_ranks = equals[1] == '{';
    f->settings++;
    at = next;
  }
  return f->settings > 0;
}

static void apply_setting(Recipe *r, const SpaceSetting *s, int value) {
  void *field = (char *)r + s->key->offset;
  if (s->key->kind == RECIPE_AXIS_LIST) *(LayoutWords *)field = s->axes;
  else if (s->key->kind == RECIPE_BOOL) *(bool *)field = value;
  else if (s->key->kind == RECIPE_WORD_OR_LIST) *(RecipeWordOrList *)field = (RecipeWordOrList){.word = value};
  else *(int *)field = value;
}

static bool same_axes(const LayoutWords *a, const LayoutWords *b) {
  bool same = a->count == b->count;
  for (int i = 0; i < a->count && same; i++) same = a->axis[i] == b->axis[i];
  return same;
}

static bool same_setting(const Recipe *r, const SpaceSetting *s) {
  const void *field = (const char *)r + s->key->offset;
  if (s->key->kind == RECIPE_AXIS_LIST) return same_axes(field, &s->axes);
  if (s->key->kind == RECIPE_BOOL) return *(const bool *)field == (bool)s->value;
  if (s->key->kind == RECIPE_WORD_OR_LIST) return ((const RecipeWordOrList *)field)->word == s->value;
  return *(const int *)field == s->value;
}

// A key that is given stays: a feature that would change it is none.
static bool is_open(const Recipe *asked, const SpaceFeature *f) {
  bool changes = false;
  for (int i = 0; i < f->settings; i++) {
    bool given = recipe_is_given(asked, f->setting[i].key->path), same = same_setting(asked, &f->setting[i]);
    if (given && (i == f->number || !same)) return FAULT(search_changes_given_keys, false, true);
    changes |= !given && (i == f->number || !same);
  }
  return changes;
}

static SpaceKind *kind_of(Space *s, const char *name) {
  for (int i = 0; i < s->kinds; i++)
    if (!strcmp(s->kind[i].name, name)) return &s->kind[i];
  CHECK(s->kinds < SPACE_KINDS);
  s->kind[s->kinds] = (SpaceKind){.name = name, .first = is_first(name)};
  return &s->kind[s->kinds++];
}

static void read_table(Space *s) {
  for (int i = 0; i < LAYOUT_FEATURES; i++) {
    SpaceFeature f;
    const LayoutTraits *t = &layout_traits[i];
    if (!layouts_built((LayoutFeature)i) || !read_feature(t, &f) || !is_open(s->asked, &f)) continue;
    if (!strcmp(t->kind, "ep") && !s->config->experts) continue;
    SpaceKind *kind = kind_of(s, t->kind);
    CHECK(kind->features < SPACE_ROWS);
    kind->feature[kind->features++] = f;
  }
}

int space_create(const Recipe *asked, const ModelConfig *config, const Cluster *cluster, int ranks, Space *s,
                 Error *error) {
  static const char no_evaluation[] = "data.valid=null data.split=0 eval.every=0 eval.patience=0 checkpoint.best=false";
  *s = (Space){.asked = asked, .config = config, .ranks = ranks};
  const int size[SPACE_MESH] = {asked->mesh.pp, asked->mesh.dp, asked->mesh.cp, asked->mesh.tp};
  int fixed = 1, all = 1;
  for (int i = 0; i < SPACE_MESH; i++) {
    s->fixed_mesh[i] = recipe_is_given(asked, mesh_keys[i]);
    fixed *= s->fixed_mesh[i] ? size[i] : 1;
    all &= s->fixed_mesh[i];
  }
  if (all ? fixed != ranks : ranks % fixed)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%smesh: the axes that are given (pp %d × dp %d × cp %d × tp %d) have %d ranks, which %s %d; leave "
        "one of them out, as with %s=null, or search %d ranks",
        recipe_where(asked, "mesh.dp"), size[0], size[1], size[2], size[3], fixed, all ? "are not" : "do not divide",
        ranks, "mesh.dp", all ? fixed : ranks / fixed * fixed);
  step_model_of(config, &s->model);
  s->fixed_micro = recipe_is_given(asked, "batch.micro");
  s->fixed_stages = recipe_is_given(asked, "parallel.stages_per_rank");
  s->fixed_bucket = recipe_is_given(asked, "parallel.bucket_mb");
  s->fixed_overlap =
      recipe_is_given(asked, "parallel.overlap") && asked->parallel.overlap != RECIPE_OVERLAP_AUTO;
  s->fixed_recomputed = recipe_is_given(asked, "parallel.recompute_layers");
  int code = predict_adapt(asked, cluster, no_evaluation, &s->base, error); // they are not in a step
  if (!code) read_table(s);
  return code;
}

void space_free(Space *s) {
  recipe_free(&s->base);
  arena_free(&s->arena);
}

// Plans -------------------------------------------------------------------------------------------------------------

// r: a copy of the base.
static void set_plan(const Space *s, const Candidate *c, Recipe *r) {
  r->dp_is_auto = false;
  r->mesh.pp = c->mesh[0], r->mesh.dp = c->mesh[1], r->mesh.cp = c->mesh[2], r->mesh.tp = c->mesh[3];
  r->batch.micro = c->micro;
  r->parallel.stages_per_rank = c->stages;
  r->parallel.bucket_mb = c->bucket;
  r->parallel.overlap = c->overlap;
  r->parallel.recompute_layers = c->recomputed;
  for (int k = 0; k < s->kinds; k++) {
    if (c->feature[k] < 0) continue;
    const SpaceFeature *f = &s->kind[k].feature[c->feature[k]];
    for (int i = 0; i < f->settings; i++)
      apply_setting(r, &f->setting[i], i == f->number ? c->number[k] : f->setting[i].value);
  }
}

void space_recipe(const Space *s, const Candidate *c, Recipe *r) {
  *r = s->base;
  set_plan(s, c, r);
}

static void restore_setting(const Recipe *base, Recipe *r, const SpaceSetting *s) {
  const void *from = (const char *)base + s->key->offset;
  void *to = (char *)r + s->key->offset;
  if (s->key->kind == RECIPE_AXIS_LIST) *(LayoutWords *)to = *(const LayoutWords *)from;
  else if (s->key->kind == RECIPE_BOOL) *(bool *)to = *(const bool *)from;
  else *(int *)to = *(const int *)from;
}

// The opposite of set_plan but for what every plan sets: a Recipe is too large to be copied for each of millions.
static void unset_plan(const Space *s, const Candidate *c, Recipe *r) {
  for (int k = 0; k < s->kinds; k++) {
    const SpaceFeature *f = c->feature[k] < 0 ? NULL : &s->kind[k].feature[c->feature[k]];
    for (int i = 0; f && i < f->settings; i++) restore_setting(&s->base, r, &f->setting[i]);
  }
}

const SpaceFeature *space_feature(const Space *s, const Candidate *c, const char *kind, int *number) {
  for (int k = 0; k < s->kinds; k++)
    if (!strcmp(s->kind[k].name, kind) && c->feature[k] >= 0)
      return *number = c->number[k], &s->kind[k].feature[c->feature[k]];
  return NULL;
}

bool space_allows(const Space *s, const Recipe *r) {
  Step step;
  recipe_step(r, &s->model, &step);
  return !parallel_check(&step, &s->model, NULL);
}

static int axis_of(const Candidate *c, const char *axis) {
  for (int i = 0; i < SPACE_MESH; i++)
    if (!strcmp(axis_names[mesh_axes[i]], axis)) return c->mesh[i];
  return 2;
}

typedef struct Enumeration {
  const Space *space;
  Candidate at;
  SpaceSee *see;
  void *context;
  int64_t judged;
  Recipe recipe; // the base, and while a plan is judged that
} Enumeration;

// Half the microbatch holds all sequences of a data rank already, and makes the same plan.
static bool is_twin(const Space *s, const Recipe *r) {
  return !s->fixed_micro && r->batch.micro > 1 &&
         (int64_t)r->batch.micro / 2 * recipe_data_ranks(r) >= r->batch.global;
}

static void judge(Enumeration *e) {
  Recipe *r = &e->recipe;
  set_plan(e->space, &e->at, r);
  int stages = r->parallel.stages_per_rank;
  bool as_auto = stages && stages == schedules[r->parallel.pipeline].least_stages;
  if (e->space->fixed_stages || !as_auto) {
    e->judged++;
    if (space_allows(e->space, r) && !is_twin(e->space, r)) e->see(e->context, &e->at, r);
  }
  unset_plan(e->space, &e->at, r);
}

// The kind's feature f with each of its numbers; `then` for each.
static void with_feature(Enumeration *e, int kind, int f, void (*then)(Enumeration *e, int kind)) {
  const SpaceFeature *feature = &e->space->kind[kind].feature[f];
  int size = axis_of(&e->at, feature->traits->axis);
  if (size < 2) return;
  int of = feature->divides_ranks ? e->at.mesh[1] * e->at.mesh[2] * e->at.mesh[3] : size;
  e->at.feature[kind] = (signed char)f;
  if (feature->number < 0) then(e, kind);
  for (int n = 2; feature->number >= 0 && n <= of; n++) {
    e->at.number[kind] = n;
    if (of % n == 0 && (feature->divides_ranks || n < of)) then(e, kind);
  }
  e->at.feature[kind] = -1;
  e->at.number[kind] = 0;
}

static void each_kind(Enumeration *e, int kind);
static void next_kind(Enumeration *e, int kind) { each_kind(e, kind + 1); }

static void each_kind(Enumeration *e, int kind) {
  while (kind < e->space->kinds && !e->space->kind[kind].first) kind++;
  if (kind == e->space->kinds) {
    judge(e);
    return;
  }
  next_kind(e, kind);
  for (int f = 0; f < e->space->kind[kind].features; f++) with_feature(e, kind, f, next_kind);
}

// Stages of a rank: auto, and with a pipeline 2 and 4.
static void each_stages(Enumeration *e) {
  static const int more[] = {2, 4};
  e->at.stages = e->space->base.parallel.stages_per_rank;
  each_kind(e, 0);
  if (e->space->fixed_stages || e->at.mesh[0] == 1) return;
  for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    if (more[i] * e->at.mesh[0] <= e->space->config->layers) {
      e->at.stages = more[i];
      each_kind(e, 0);
    }
  e->at.stages = 0;
}

static void each_micro(Enumeration *e) {
  const Space *s = e->space;
  int64_t most = s->base.batch.global / (e->at.mesh[1] > 0 ? e->at.mesh[1] : 1);
  if (s->fixed_micro) most = 0, e->at.micro = s->base.batch.micro, each_stages(e);
  for (e->at.micro = 1; e->at.micro <= most || (e->at.micro == 1 && !s->fixed_micro); e->at.micro *= 2) each_stages(e);
}

static const int mesh_order[SPACE_MESH] = {0, 3, 2, 1}; // pp, tp, cp, and what is left is dp

static void at_mesh(void *enumeration, const int *size) {
  Enumeration *e = enumeration;
  for (int i = 0; i < SPACE_MESH; i++) e->at.mesh[mesh_order[i]] = size[i];
  each_micro(e);
}

static void each_mesh(Enumeration *e) {
  const Space *s = e->space;
  const int given[SPACE_MESH] = {s->base.mesh.pp, s->base.mesh.dp, s->base.mesh.cp, s->base.mesh.tp};
  SearchAxis axis[SPACE_MESH] = {{.fixed = 0}};
  for (int i = 0; i < SPACE_MESH; i++)
    if (s->fixed_mesh[mesh_order[i]]) axis[i].fixed = given[mesh_order[i]];
  axis[0].most = s->config->layers < 1 << 20 ? (int)s->config->layers : 1 << 20;
  search_meshes(s->ranks, SPACE_MESH, axis, at_mesh, e);
}

static Enumeration enumeration(const Space *s, SpaceSee *see, void *context) {
  Enumeration e = {.space = s, .see = see, .context = context, .recipe = s->base};
  memset(e.at.feature, -1, sizeof e.at.feature);
  e.at.bucket = s->base.parallel.bucket_mb;
  e.at.overlap = s->base.parallel.overlap != RECIPE_OVERLAP_OFF; // auto: both are tried beside good plans
  e.at.recomputed = s->base.parallel.recompute_layers;
  return e;
}

int64_t space_each(const Space *s, SpaceSee *see, void *context) {
  Enumeration e = enumeration(s, see, context);
  each_mesh(&e);
  return e.judged;
}

static void judge_kind(Enumeration *e, int kind) {
  (void)kind;
  judge(e);
}

// Other microbatches of half to twice the size that divide what a data rank has: powers of two were tried.
static void beside_micro(Enumeration *e, const Candidate *c) {
  const Space *s = e->space;
  int64_t rows = s->base.batch.global / (c->mesh[1] > 0 ? c->mesh[1] : 1);
  for (int micro = c->micro / 2 + 1; micro < 2 * c->micro && micro <= rows && !s->fixed_micro; micro++) {
    if (rows % micro || !(micro & (micro - 1))) continue;
    e->at = *c;
    e->at.micro = micro;
    judge(e);
  }
}

// A half, a quarter and three quarters of a stage's layers, where it recomputes all of them.
static void beside_recomputed(Enumeration *e, const Candidate *c) {
  const Space *s = e->space;
  Recipe r;
  space_recipe(s, c, &r);
  int layers = (int)(s->config->layers / r.mesh.pp / recipe_virtual_stages(&r)), before = 0;
  RecipeRecompute mode = (RecipeRecompute)r.parallel.recompute.word;
  if (s->fixed_recomputed || c->recomputed || (mode != RECIPE_RECOMPUTE_SELECTIVE && mode != RECIPE_RECOMPUTE_FULL))
    return;
  for (int quarters = 1; quarters < 4; quarters++) {
    e->at = *c;
    e->at.recomputed = layers * quarters / 4;
    if (e->at.recomputed > before) judge(e);
    before = e->at.recomputed;
  }
}

int64_t space_beside(const Space *s, const Candidate *c, SpaceSee *see, void *context) {
  static const int buckets[] = {25, 100, 400};
  Enumeration e = enumeration(s, see, context);
  e.at = *c;
  for (int k = 0; k < s->kinds; k++) {
    if (s->kind[k].first) continue;
    for (int f = 0; f < s->kind[k].features; f++)
      if (f != c->feature[k]) e.at = *c, with_feature(&e, k, f, judge_kind);
  }
  for (size_t i = 0; i < sizeof buckets / sizeof *buckets && !s->fixed_bucket; i++) {
    e.at = *c;
    e.at.bucket = buckets[i];
    if (buckets[i] != c->bucket) judge(&e);
  }
  e.at = *c;
  e.at.overlap = !c->overlap;
  if (!s->fixed_overlap && s->ranks > 1 && c->bucket) judge(&e);
  beside_micro(&e, c);
  beside_recomputed(&e, c);
  return e.judged;
}
