// Makes the layouts of the matrix.
#include "matrix.h"
#include "base/philox.h"
#include "base/shares.h"
#include "schedule/schedule.h"
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE_LENGTH = 12, LONGER_SEQUENCE = 16, LAYERS = 4, GLOBAL_OF_3 = 12, EXPERTS = 12 };

// Features ----------------------------------------------------------------------------------------------------------

static const LayoutFeature schedule_feature[SCHEDULES] = {
#define SCHEDULE(id, ...) [SCHEDULE_##id] = LAYOUT_##id,
#include "schedule/schedules.def"
};

static int has(uint64_t set, LayoutFeature f) { return set >> f & 1; }

static int has_kind(uint64_t set, const char *kind) {
  for (int f = 0; f < LAYOUT_FEATURES; f++)
    if (set >> f & 1 && !strcmp(layout_traits[f].kind, kind)) return 1;
  return 0;
}

// The axis on which a feature needs ranks; "" where it needs none.
static const char *axis_of(int f) {
  const LayoutTraits *t = &layout_traits[f];
  return t->axis[0] ? t->axis : !strncmp(t->key, "mesh.", 5) ? t->key + 5 : "";
}

static int *axis_size(MatrixMesh *m, const char *axis) {
  return !strcmp(axis, "dp") ? &m->dp : !strcmp(axis, "cp") ? &m->cp : !strcmp(axis, "tp") ? &m->tp : &m->pp;
}

// Size i of those of the feature, and the setting that it needs ("" for none); 0: it has no more.
static int size_of(int f, int i, char *setting, size_t bytes) {
  const char *text = layout_traits[f].sizes;
  for (; i && *text; i--) {
    text += strcspn(text, " ");
    text += strspn(text, " ");
  }
  size_t digits = strspn(text, "0123456789"), end = strcspn(text, " ");
  snprintf(setting, bytes, "%.*s", text[digits] == '/' ? (int)(end - digits - 1) : 0, text + digits + 1);
  return atoi(text);
}

MatrixMesh matrix_mesh(uint64_t set, MatrixMesh mesh) {
  static const char *const axes[] = {"dp", "cp", "tp", "pp"};
  for (size_t a = 0; a < sizeof axes / sizeof *axes; a++) {
    int *size = axis_size(&mesh, axes[a]);
    if (*size) continue;
    *size = 1;
    for (int f = 0; f < LAYOUT_FEATURES; f++) {
      char setting[128];
      int least = set >> f & 1 && !strcmp(axis_of(f), axes[a]) ? size_of(f, 0, setting, sizeof setting) : 1;
      if (least > *size) *size = least;
    }
  }
  return mesh;
}

MatrixReason matrix_reason(uint64_t set, MatrixMesh mesh) {
  for (int a = 0; a < LAYOUT_FEATURES; a++) {
    if (!has(set, (LayoutFeature)a)) continue;
    if (!layouts_built((LayoutFeature)a)) return MATRIX_NOT_BUILT;
    for (int b = a + 1; b < LAYOUT_FEATURES; b++) {
      if (!has(set, (LayoutFeature)b)) continue;
      if (!strcmp(layout_traits[a].kind, layout_traits[b].kind)) return MATRIX_OF_A_KIND;
      if (layouts_refused((LayoutFeature)a, (LayoutFeature)b)) return MATRIX_REFUSED;
    }
  }
  mesh = matrix_mesh(set, mesh);
  return matrix_mesh_ranks(&mesh) > MATRIX_RANKS ? MATRIX_TOO_LARGE : MATRIX_IN;
}

// Of a feature of the table, which `text` begins with: the longest name. -1: none.
static int feature_at(const char *text) {
  int found = -1;
  size_t longest = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    size_t n = strlen(layout_traits[f].name);
    int ends = !strncmp(text, layout_traits[f].name, n) &&
               (!text[n] || !strncmp(text + n, " + ", 3) || !strncmp(text + n, " (", 2));
    if (ends && n > longest) longest = n, found = f;
  }
  return found;
}

const char *matrix_parse(const char *text, uint64_t *set, MatrixMesh *mesh) {
  *set = 0;
  while (*text && *text != '(') {
    int f = feature_at(text);
    if (f < 0) return text;
    *set |= UINT64_C(1) << f;
    text += strlen(layout_traits[f].name);
    text += strspn(text, " +");
  }
  for (char axis[8]; *text; text += strcspn(text, " )"), text += strspn(text, " )")) {
    int size, n = 0;
    text += strspn(text, "(");
    if (sscanf(text, "%7[a-z] %d%n", axis, &size, &n) != 2) return text;
    if (strlen(axis) == 2) *axis_size(mesh, axis) = size;
    text += strcspn(text, " ") + 1;
  }
  return NULL;
}

static void name_of(uint64_t set, char *name, size_t size) {
  name[0] = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    size_t n = strlen(name);
    if (set >> f & 1) snprintf(name + n, size - n, "%s%s", n ? " + " : "", layout_traits[f].name);
  }
}

// Layouts -----------------------------------------------------------------------------------------------------------

// The most ranks that experts can be folded over: tp, or tp · cp times a part of dp.
static int expert_ranks(const MatrixMesh *m) {
  for (int part = m->dp; part > 0; part--)
    if (m->dp % part == 0 && EXPERTS % (m->tp * m->cp * part) == 0) return m->tp * m->cp * part;
  return m->tp;
}

static void add_setting(MatrixLayout *l, const char *setting) {
  size_t n = strlen(l->settings);
  const char *ranks = strstr(setting, "{ranks}");
  if (strstr(setting, "{weights}")) return; // when the batch is known
  int length = (int)(ranks ? ranks - setting : (ptrdiff_t)strlen(setting));
  snprintf(l->settings + n, sizeof l->settings - n, "%s%.*s", n && setting[0] ? " " : "", length, setting);
  n = strlen(l->settings);
  if (ranks) snprintf(l->settings + n, sizeof l->settings - n, "%d", expert_ranks(&l->mesh));
}

static void add_settings(MatrixLayout *l) {
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    if (!has(l->features, (LayoutFeature)f)) continue;
    const LayoutTraits *t = &layout_traits[f];
    add_setting(l, t->settings);
    char setting[128];
    for (int i = 0, size; (size = size_of(f, i, setting, sizeof setting)) != 0; i++)
      if (size == *axis_size(&l->mesh, axis_of(f))) add_setting(l, setting);
    char kind[32];
    if (sscanf(t->needs, "%31s", kind) == 1 && !has_kind(l->features, kind)) add_setting(l, strchr(t->needs, ' ') + 1);
  }
}

// Over how many ranks the samples and the positions are cut: as a recipe with this mesh and settings says, without a
// pipeline and with one sample, so that nothing else is in the way.
static void ask_recipe(const MatrixLayout *l, int *data_ranks, int *sequence_ranks) {
  ParityCase c = {.name = l->name,
                  .dp = l->mesh.dp,
                  .cp = l->mesh.cp,
                  .tp = l->mesh.tp,
                  .pp = 1,
                  .micro = 1,
                  .global = 1,
                  .seq = 2 * l->mesh.cp * l->mesh.tp,
                  .precision = DTYPE_F64,
                  .settings = l->settings};
  Recipe recipe;
  Error error = {0};
  *data_ranks = l->mesh.dp, *sequence_ranks = l->mesh.cp;
  if (!parity_recipe(&c, &recipe, &error)) { // else the run will say why
    StepParallel o = recipe_parallel(&recipe);
    *data_ranks = recipe_data_ranks(&recipe);
    *sequence_ranks = parallel_row_ranks(&o, LAYOUT_ROW_SEQ);
  }
  recipe_free(&recipe);
}

// Zigzag over cp makes chunks of half a shard.
static int sequence_length(const MatrixLayout *l, int sequence_ranks) {
  int unit = sequence_ranks * (l->mesh.cp > 1 ? 2 : 1);
  return SEQUENCE_LENGTH % unit && LONGER_SEQUENCE % unit == 0 ? LONGER_SEQUENCE : SEQUENCE_LENGTH;
}

static int at_once(uint64_t set) {
  for (int s = 0; s < SCHEDULES; s++)
    if (has(set, schedule_feature[s]) && schedules[s].at_once) return 1;
  return 0;
}

// Where stages update at once: layers of each stage, delays of these, and what follows.
static void add_at_once(MatrixLayout *l) {
  char layers[64] = "", delays[128] = "", setting[320];
  for (int stage = 0, pp = l->mesh.pp; stage < pp; stage++) {
    int count = l->layers * (stage + 1) / pp - l->layers * stage / pp;
    size_t n = strlen(layers), d = strlen(delays);
    snprintf(layers + n, sizeof layers - n, "%s%d", stage ? "," : "", count);
    for (int k = 0; k < count; k++, d = strlen(delays))
      snprintf(delays + d, sizeof delays - d, "%s%d", d ? "," : "", pp - 1 - stage);
  }
  snprintf(setting, sizeof setting, "parallel.layers=[%s] optimizer.delay=[%s] optimizer.clip=0 run.non_finite=stop",
           layers, delays);
  add_setting(l, setting);
}

// As many microbatches as the features want, fewer where the samples of each do not divide by the ranks, and more
// samples where even the least that they need do not.
static void set_batch(MatrixLayout *l, int data_ranks) {
  int several = has_kind(l->features, "accumulation"), pp = l->mesh.pp,
      microbatches = pp * (several ? pp > 1 ? 2 : 4 : 1), least = pp > 1 ? pp : several ? 2 : 1;
  if (pp == 3) microbatches = 6;
  if (has(l->features, LAYOUT_IN_BACKWARD) || at_once(l->features)) microbatches = least = 1;
  l->global = l->mesh.dp % 3 && l->mesh.tp % 3 && pp % 3 ? MATRIX_GLOBAL : GLOBAL_OF_3;
  while (l->global % (microbatches * data_ranks) && microbatches / 2 >= least) microbatches /= 2;
  while (l->global % (microbatches * data_ranks)) l->global += MATRIX_GLOBAL / 2;
  l->micro = l->global / data_ranks / microbatches;
}

// Sequences that do not divide, in as many microbatches; one that leaves a rank without any in the last microbatch, if
// there is one.
static int uneven_global(const MatrixLayout *l, int ranks) {
  int microbatches = shares_microbatches(l->global, ranks, l->micro);
  for (int less = 3; less > 0; less--)
    if (shares_microbatches(l->global - less, ranks, l->micro) == microbatches &&
        !shares_create(l->global - less, ranks, l->micro).even)
      return l->global - less;
  CHECK(0, "no uneven batch for %d ranks", ranks);
}

// Weights of 3, 1 and 2 times as many sequences, in as many microbatches: more sequences where it takes them.
static void add_weights(MatrixLayout *l, int ranks) {
  static const int cycle[] = {3, 1, 2};
  int *weight = xcalloc((size_t)ranks, sizeof *weight), microbatches = shares_microbatches(l->global, ranks, l->micro);
  char setting[256] = "batch.balance=[";
  for (int r = 0; r < ranks; r++) {
    size_t n = strlen(setting);
    weight[r] = cycle[r % 3];
    snprintf(setting + n, sizeof setting - n, "%d%s", weight[r], r + 1 < ranks ? "," : "]");
  }
  Balance balance = {.weight = weight, .count = ranks};
  for (;; l->global += MATRIX_GLOBAL / 2) {
    Shares all = shares_balanced(l->global, ranks, l->global, &balance);
    l->micro = (int)((all.most + microbatches - 1) / microbatches);
    Shares shares = shares_balanced(l->global, ranks, l->micro, &balance);
    if (shares.microbatches == microbatches) break;
  }
  free(weight);
  if (ranks > 1) add_setting(l, setting);
}

// Data ranks of a pair with dp, of which both features need ranks: twice as many, so that it is not the other alone.
static void double_data(MatrixLayout *l) {
  for (int f = 0; f < LAYOUT_FEATURES && has(l->features, LAYOUT_DP) && l->mesh.dp < 4; f++)
    if (f != LAYOUT_DP && has(l->features, (LayoutFeature)f) && !strcmp(axis_of(f), "dp")) l->mesh.dp = 4;
}

MatrixLayout matrix_layout(uint64_t set, MatrixKind kind, MatrixMesh mesh) {
  MatrixLayout l = {.features = set, .kind = kind, .layers = LAYERS, .mesh = matrix_mesh(set, mesh)};
  int data_ranks, sequence_ranks;
  if (kind == MATRIX_PAIR) double_data(&l);
  add_settings(&l);
  ask_recipe(&l, &data_ranks, &sequence_ranks);
  l.seq = sequence_length(&l, sequence_ranks);
  set_batch(&l, data_ranks);
  if (has(set, LAYOUT_SHARES)) add_weights(&l, data_ranks);
  if (has(set, LAYOUT_UNEVEN)) l.global = uneven_global(&l, data_ranks);
  for (int s = 0; s < SCHEDULES; s++)
    if (has(set, schedule_feature[s]) && l.mesh.pp * schedules[s].least_stages > LAYERS)
      l.layers = l.mesh.pp * schedules[s].least_stages;
  if (at_once(set)) add_at_once(&l);
  name_of(set, l.name, sizeof l.name);
  size_t n = strlen(l.name);
  char cp[16] = "";
  if (l.mesh.cp > 1) snprintf(cp, sizeof cp, " cp %d", l.mesh.cp);
  snprintf(l.name + n, sizeof l.name - n, " (dp %d%s tp %d pp %d micro %d)", l.mesh.dp, cp, l.mesh.tp, l.mesh.pp,
           l.micro);
  return l;
}

// The matrix --------------------------------------------------------------------------------------------------------

typedef Vec(MatrixLayout) LayoutList;

// A combination, of which counts are kept by reason, and which is in the list when it is in the matrix.
typedef struct Combinations {
  LayoutList list;
  int count[MATRIX_REASONS], names; // names: print those that are left out
} Combinations;

static const char *const reasons[MATRIX_REASONS] = {"in the matrix", "of two features of one kind", "refused",
                                                    "with a feature that is not in the table or not built",
                                                    "of more ranks than the matrix runs"};

static void count_combination(Combinations *all, uint64_t set, const char *name, MatrixReason reason) {
  char text[384];
  all->count[reason]++;
  name_of(set, text, sizeof text);
  if (all->names && reason > MATRIX_OF_A_KIND) printf("left out\t%s\t%s\n", reasons[reason], name ? name : text);
}

static void add(Combinations *all, uint64_t set, MatrixKind kind, MatrixMesh mesh) {
  MatrixReason reason = matrix_reason(set, mesh);
  count_combination(all, set, NULL, reason);
  if (reason == MATRIX_IN) vec_push(&all->list, matrix_layout(set, kind, mesh));
}

// At the sizes of the table.
static void add_singles(Combinations *all) {
  for (int f = 0; f < LAYOUT_FEATURES; f++) {
    int size, i = 0;
    char setting[128];
    do {
      MatrixMesh mesh = {0};
      if ((size = size_of(f, i++, setting, sizeof setting)) != 0) *axis_size(&mesh, axis_of(f)) = size;
      if (size || i == 1) add(all, UINT64_C(1) << f, MATRIX_SINGLE, mesh);
    } while (size);
  }
}

static void add_pairs(Combinations *all) {
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      add(all, UINT64_C(1) << a | UINT64_C(1) << b, MATRIX_PAIR, (MatrixMesh){0});
}

// Triples are counted one by one, and run as parts of larger layouts.
static void add_triples(Combinations *all) {
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      for (int c = b + 1; c < LAYOUT_FEATURES; c++) {
        uint64_t set = UINT64_C(1) << a | UINT64_C(1) << b | UINT64_C(1) << c;
        count_combination(all, set, NULL, matrix_reason(set, (MatrixMesh){0}));
      }
  uint64_t *sets;
  int n = matrix_cover(&sets);
  for (int i = 0; i < n; i++) vec_push(&all->list, matrix_layout(sets[i], MATRIX_COVER, (MatrixMesh){0}));
  free(sets);
}

static const struct { const char *features; MatrixMesh mesh; } real[] = {
#define REAL(features, dp, cp, tp, pp) {features, {dp, cp, tp, pp}},
#include "matrix_real.def"
};

static void add_real(Combinations *all) {
  for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
    uint64_t set;
    MatrixMesh mesh = real[i].mesh;
    if (matrix_parse(real[i].features, &set, &mesh)) count_combination(all, set, real[i].features, MATRIX_NOT_BUILT);
    else {
      CHECK(matrix_reason(set, mesh) == MATRIX_IN, "%s is left out", real[i].features);
      add(all, set, MATRIX_REAL, mesh);
    }
  }
}

static Combinations all_combinations(int names) {
  Combinations all = {.names = names};
  add_singles(&all);
  add_pairs(&all);
  add_triples(&all);
  add_real(&all);
  return all;
}

// The layout that PARITY_ONLY asks for by "=…"; of one that is in the matrix at several sizes all.
static LayoutList only(const char *text) {
  uint64_t set;
  MatrixMesh mesh = {0};
  const char *unknown = matrix_parse(text, &set, &mesh);
  CHECK(!unknown && set, "PARITY_ONLY: no feature of src/recipe/layouts.def is called as \"%s\" begins",
        unknown ? unknown : "");
  Combinations all = {0};
  if (__builtin_popcountll(set) == 1 && !strchr(text, '(')) add_singles(&all);
  int n = 0;
  for (int i = 0; i < all.list.count; i++)
    if (all.list.data[i].features == set) all.list.data[n++] = all.list.data[i];
  all.list.count = n;
  if (!n) vec_push(&all.list, matrix_layout(set, MATRIX_REAL, mesh));
  for (int i = 0; i < all.list.count; i++) all.list.data[i].kind = MATRIX_REAL;
  return all.list;
}

// Made once a process, as that takes half a second. names: those that are left out are printed.
static const Combinations *combinations(int names) {
  static Combinations all;
  if (all.list.count && !names) return &all;
  vec_free(&all.list);
  all = all_combinations(names);
  return &all;
}

int matrix_layouts(MatrixLayout **out) {
  const char *asked = getenv("PARITY_ONLY");
  LayoutList list = {0};
  if (asked && asked[0] == '=') list = only(asked + 1);
  else
    for (int i = 0; i < combinations(0)->list.count; i++) vec_push(&list, combinations(0)->list.data[i]);
  *out = list.data;
  return list.count;
}

void matrix_print_left_out(int names) {
  const Combinations *all = combinations(names);
  int covering = 0;
  for (int i = 0; i < all->list.count; i++) covering += all->list.data[i].kind == MATRIX_COVER;
  for (int r = 0; r < MATRIX_REASONS; r++) printf("combinations\t%d\t%s\n", all->count[r], reasons[r]);
  printf("covering\t%d\n", covering);
}

void matrix_print_table(void) {
  for (int a = 0; a < LAYOUT_FEATURES; a++) {
    const LayoutTraits *t = &layout_traits[a];
    printf("feature\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t->name, t->kind,
           layouts_built((LayoutFeature)a) ? "built" : "not built", t->key, t->condition, t->axis, t->settings,
           t->sizes, t->needs);
  }
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      if (layouts_refused((LayoutFeature)a, (LayoutFeature)b))
        printf("refused\t%s\t%s\t%s\n", layout_traits[a].name, layout_traits[b].name,
               layouts_refused((LayoutFeature)a, (LayoutFeature)b));
  matrix_print_left_out(1);
}

int matrix_sample(MatrixLayout *layout, int count, int wanted, uint64_t seed) {
  PhiloxKey key = philox_key(seed, 0, philox_name("matrix"));
  if (wanted > count) wanted = count;
  for (int i = 0; i < wanted; i++) {
    uint32_t r[4];
    philox4x32(key, (uint32_t)i, 0, 0, 0, r);
    int k = i + (int)(r[0] % (uint32_t)(count - i));
    MatrixLayout chosen = layout[k];
    layout[k] = layout[i];
    layout[i] = chosen;
  }
  return wanted;
}

uint64_t matrix_seed(void) {
  const char *given = getenv("PARITY_SEED");
  uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
  printf("PARITY_SEED=%llu\n", (unsigned long long)seed);
  return seed;
}
