// tier 1 2; rooms compile program schedule sharding
// Every key of mesh.* and parallel.* against what was compiled: a configuration that runs is the one that was asked
// for.
//
// A row says how Programs show a key: by the sizes of shards, the placements of tensors, the order of actions, the
// collectives. It may not ask the recipe for its own key, nor what passes were told of it. The key table itself is gone
// through: a key without a row is red. Each value of a row is compiled, and compiled again without the key (or with
// another value where it cannot be left out): then the row must say that the value is not there. Random recipes follow,
// of which every row judges all keys, those that are not given too.
#include "program/traffic.h"
#include "sharding/placement.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "../compiled.h"
#include "recipe/recipe_keys.h"
#include "recipe/setup_memory.h"
#include "tier.h"

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("dense.json",
             "{\"model_type\": \"llama\", \"hidden_size\": 240, \"intermediate_size\": 480, \"num_hidden_layers\": 4,"
             " \"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"max_position_embeddings\": 48,"
             " \"vocab_size\": 144, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("moe.json",
             "{\"model_type\": \"mixtral\", \"hidden_size\": 240, \"intermediate_size\": 96, \"num_hidden_layers\": 4,"
             " \"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"max_position_embeddings\": 48,"
             " \"vocab_size\": 144, \"num_local_experts\": 24, \"num_experts_per_tok\": 2, \"rms_norm_eps\": 1e-5,"
             " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("recipe.yaml", "model: {config: dense.json}\ndata: {train: none, seq_len: 48}\n"
                            "batch: {global: 48, micro: 2}\nschedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n"
                            "precision: fp32\n");
  return 0;
}

// ---- a recipe as keys and values ------------------------------------------------------------------------------------

#define MOE "model.config=moe.json"
enum { MOST_KEYS = 64, TEXT = 200, SETTING = 300 };
typedef struct Asked { int count; char setting[MOST_KEYS][SETTING]; } Asked; // "mesh.dp=4"

// The value of a key: as asked, or its default; NULL: there is none.
static const char *asked(const Asked *a, const char *key) {
  size_t n = strlen(key);
  for (int i = 0; i < a->count; i++)
    if (!strncmp(a->setting[i], key, n) && a->setting[i][n] == '=') return a->setting[i] + n + 1;
  const RecipeKey *row = recipe_key_find(key);
  assert_non_null(row);
  return row->fallback;
}

static int is_asked(const Asked *a, const char *key, const char *value) { return !strcmp(asked(a, key), value); }
static int asked_int(const Asked *a, const char *key) { return atoi(asked(a, key)); }

// 0: another value was asked for already.
static int ask(Asked *a, const char *key, const char *value) {
  size_t n = strlen(key);
  for (int i = 0; i < a->count; i++)
    if (!strncmp(a->setting[i], key, n) && a->setting[i][n] == '=') return !strcmp(a->setting[i] + n + 1, value);
  assert_true(a->count < MOST_KEYS);
  snprintf(a->setting[a->count++], SETTING, "%s=%s", key, value);
  return 1;
}

// The same by "key=value key=value".
static int ask_all(Asked *a, const char *settings) {
  char text[SETTING], *next = text;
  snprintf(text, sizeof text, "%s", settings);
  for (char *word; (word = strtok_r(next, " ", &next));) {
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value = 0;
    if (!ask(a, word, value + 1)) return 0;
  }
  return 1;
}

static Asked without(const Asked *a, const char *key) {
  Asked left = {0};
  size_t n = strlen(key);
  for (int i = 0; i < a->count; i++)
    if (strncmp(a->setting[i], key, n) || a->setting[i][n] != '=')
      memcpy(left.setting[left.count++], a->setting[i], SETTING);
  return left;
}

static const char *asked_text(const Asked *a) {
  static char text[4000];
  size_t n = 0;
  for (int i = 0; i < a->count && n < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s'%s'", i ? " " : "", a->setting[i]);
  return text;
}

// 0: refused, with the sentence. Where buffers lie is left out, which takes most of the time, but for parallel.memory.
static int compiles(const Asked *a, Case *c, Error *error) {
  char *keys[MOST_KEYS], moe[SETTING];
  snprintf(moe, sizeof moe, "model.config=%s", path_of("moe.json")); // paths given here are not the recipe's
  for (int i = 0; i < a->count; i++)
    keys[i] = strcmp(a->setting[i], MOE) ? (char *)(uintptr_t)a->setting[i] : moe; // reads them only
  *c = (Case){0};
  *error = (Error){0};
  int code = recipe_load(path_of("recipe.yaml"), a->count, keys, &c->recipe, error);
  if (!code) code = model_config_load(&c->config, c->recipe.model.config, error);
  if (!code && c->recipe.parallel.memory)
    code = setup_job_for(&c->recipe, &c->config, MODEL_TRAIN, 1, 0, &c->job, error);
  else if (!code) code = setup_job_sketch(&c->recipe, &c->config, &c->job, error);
  if (code) release(c);
  return !code;
}

// ---- what Programs show ---------------------------------------------------------------------------------------------

typedef enum Shown { NOTHING_TO_SEE = -1, ANOTHER, AS_ASKED } Shown;
// One case and the value of one key; `says` gets what is there instead.
typedef struct View {
  const Asked *asked;
  const Case *c;
  const Graph *g;
  const Program *p; // of the first pipeline rank
  const Mesh *mesh;
  char says[TEXT];
} View;

static Shown number(View *v, const char *value, int there) {
  snprintf(v->says, sizeof v->says, "%d", there);
  return atoi(value) == there ? AS_ASKED : ANOTHER;
}

static Shown word(View *v, const char *value, const char *there) {
  snprintf(v->says, sizeof v->says, "%s", there);
  return !strcmp(value, there) ? AS_ASKED : ANOTHER;
}

static Shown truth(View *v, const char *value, int there) { return word(v, value, there ? "true" : "false"); }

static uint32_t axes_with(const Mesh *mesh, AxisRole role) {
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].role == role) axes |= 1u << a;
  return axes;
}

static uint32_t axes_of_part(const Mesh *mesh, AxisPart part) {
  uint32_t axes = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].part == part) axes |= 1u << a;
  return axes;
}

// All axes that cut anything: a Variable, a Copy, a tensor; or over which it is a sum or has one owner.
static uint32_t axes_in_use(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    axes |= placement_axes(x->storage) | x->storage->owner_axes | x->storage->partial;
  }
  for (int i = 0; i < v->g->tensor.count; i++) {
    const Placement *p = v->g->tensor.data[i].placement;
    if (p) axes |= placement_axes(p) | p->owner_axes | p->partial;
  }
  return axes;
}

static int dim_of(const Shape *s, DimName dim) {
  for (int d = 0; d < s->rank; d++)
    if (s->dim[d] == dim) return d;
  return -1;
}

// Ranks by which MICRO's tokens are cut, of the axes of a role; their shard must be as small as that.
static int token_ranks(const View *v, DimName dim, AxisRole role, uint32_t *axes) {
  for (int i = 0; i < v->g->input.count; i++) {
    if (v->g->input.data[i].known != INPUT_TOKENS) continue;
    const Tensor *t = graph_tensor(v->g, v->g->input.data[i].tensor);
    int d = dim_of(&t->shape, dim);
    const AxisList *cut = &t->placement->dim[d];
    assert_int_equal(tensor_local(v->g, t)[d] * axis_list_shards(v->mesh, cut), t->shape.size[d]);
    *axes = axis_list_axes(cut) & axes_with(v->mesh, role);
    return mesh_size(v->mesh, *axes);
  }
  fail_msg("no tokens");
  return 0;
}

static int all_pipeline_ranks(const View *v) { return v->p->schedule->map.coordinates; }

// The axes over which a step moves anything, on any pipeline rank.
static uint32_t axes_that_move(const View *v) {
  uint32_t axes = 0;
  for (int k = 0; k < all_pipeline_ranks(v); k++) {
    TrafficList list = {0};
    program_traffic(v->c->job->train.program[k], &list);
    for (int i = 0; i < list.count; i++)
      if (list.data[i].bytes > 0) axes |= list.data[i].axes;
    vec_free(&list);
  }
  return axes;
}

// So many ranks of an axis, or of parts of it; over all of which something must move.
static Shown ranks(View *v, const char *value, int there, uint32_t axes) {
  for (int a = 0; a < v->mesh->naxis; a++)
    if (v->mesh->axis[a].size == 1) axes &= ~(1u << a);
  Shown result = number(v, value, there);
  if (!(axes & ~axes_that_move(v))) return result;
  snprintf(v->says, sizeof v->says, "%d ranks, over some of which nothing moves", there);
  return ANOTHER;
}

static Shown shows_pp(View *v, const char *value) {
  int busy = 0;
  for (int k = 0; k < all_pipeline_ranks(v); k++) {
    const ActionList *list = &v->p->schedule->list[k];
    int forward = 0;
    for (int i = 0; i < list->count; i++) forward |= list->data[i].kind == ACTION_FORWARD;
    busy += forward;
  }
  return ranks(v, value, busy, 1u << mesh_pipeline(v->mesh));
}

static Shown shows_dp(View *v, const char *value) {
  uint32_t axes;
  int there = token_ranks(v, DIM_BATCH, AXIS_DATA, &axes);
  return ranks(v, value, there, axes);
}

static Shown shows_cp(View *v, const char *value) {
  uint32_t axes;
  int there = token_ranks(v, DIM_SEQ, AXIS_CONTEXT, &axes);
  return ranks(v, value, there, axes);
}

static Shown shows_tp(View *v, const char *value) {
  uint32_t axes = axes_in_use(v) & axes_with(v->mesh, AXIS_TENSOR);
  return ranks(v, value, mesh_size(v->mesh, axes), axes);
}

// ---- storage

// Of the axes that ranks share weights over, those over which a Variable is divided, by shards or among owners.
static uint32_t divided(const View *v, const Placement *p) {
  return (placement_axes(p) | p->owner_axes) &
         (axes_with(v->mesh, AXIS_DATA) | axes_with(v->mesh, AXIS_CONTEXT));
}

static uint32_t divided_parameters(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++)
    if (v->g->variable.data[i].kind == VARIABLE_PARAMETER && v->g->variable.data[i].parameter == i &&
        dim_of(&v->g->variable.data[i].shape, DIM_EXPERT) < 0)
      axes |= divided(v, v->g->variable.data[i].storage);
  return axes;
}

static uint32_t divided_copies(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind != VARIABLE_PARAMETER || dim_of(&x->shape, DIM_EXPERT) >= 0) continue;
    axes |= divided(v, variable_placement(x, x->copies ? 0 : -1));
  }
  return axes;
}

// -1: there are no accumulators.
static int gradients_are_divided(const View *v) {
  int found = -1;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind != VARIABLE_GRADIENT || dim_of(&x->shape, DIM_EXPERT) >= 0) continue;
    found = (found > 0) | (divided(v, x->storage) != 0);
  }
  return found;
}

static int ranks_that_share(const View *v) {
  return mesh_size(v->mesh, axes_with(v->mesh, AXIS_DATA) | axes_with(v->mesh, AXIS_CONTEXT));
}

static Shown shows_zero(View *v, const char *value) {
  int stage = atoi(value), gradients = gradients_are_divided(v),
      resident = !is_asked(v->asked, "parallel.reshard", "true");
  if (ranks_that_share(v) == 1) return NOTHING_TO_SEE;
  snprintf(v->says, sizeof v->says, "parameters are %sdivided, gradients %s, what computes %s",
           divided_parameters(v) ? "" : "not ", gradients < 0 ? "not there" : gradients ? "divided" : "whole",
           divided_copies(v) ? "divided" : "whole");
  if ((stage > 0) != (divided_parameters(v) != 0)) return ANOTHER;
  if ((stage > 2 && !resident) != (divided_copies(v) != 0)) return ANOTHER;
  if (gradients < 0 || is_asked(v->asked, "parallel.accumulate", "local")) return AS_ASKED;
  return (stage > 1) == gradients ? AS_ASKED : ANOTHER;
}

static Shown shows_reshard(View *v, const char *value) {
  if (ranks_that_share(v) == 1 || !is_asked(v->asked, "parallel.zero", "3")) return NOTHING_TO_SEE;
  return truth(v, value, divided_copies(v) != 0);
}

static Shown shows_shard_group(View *v, const char *value) {
  uint32_t data = axes_with(v->mesh, AXIS_DATA);
  int all = mesh_size(v->mesh, data), there = mesh_size(v->mesh, divided_parameters(v) & data);
  if (all == 1 || is_asked(v->asked, "parallel.zero", "0")) return NOTHING_TO_SEE;
  snprintf(v->says, sizeof v->says, "groups of %d, of %d data ranks", there, all);
  return there == (atoi(value) ? atoi(value) : all) ? AS_ASKED : ANOTHER;
}

static Shown shows_unsplit(View *v, const char *value) {
  int owned = 0, cut = 0;
  if (ranks_that_share(v) == 1 || is_asked(v->asked, "parallel.zero", "0")) return NOTHING_TO_SEE;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind != VARIABLE_PARAMETER || dim_of(&x->shape, DIM_EXPERT) >= 0) continue;
    owned += x->storage->owner_axes != 0;
    cut += (placement_axes(x->storage) & divided(v, x->storage)) != 0;
  }
  snprintf(v->says, sizeof v->says, "%d parameters have owners, %d are cut", owned, cut);
  return strcmp(value, "true") ? (!owned && cut ? AS_ASKED : ANOTHER) : (owned && !cut ? AS_ASKED : ANOTHER);
}

static Shown shows_grad_dtype(View *v, const char *value) {
  for (int i = 0; i < v->g->variable.count; i++)
    if (v->g->variable.data[i].kind == VARIABLE_GRADIENT)
      return word(v, value, dtype_name(v->g->variable.data[i].dtype));
  return NOTHING_TO_SEE;
}

static Shown shows_accumulate(View *v, const char *value) {
  int gradients = gradients_are_divided(v);
  if (gradients < 0 || ranks_that_share(v) == 1 || asked_int(v->asked, "parallel.zero") < 2) return NOTHING_TO_SEE;
  return word(v, value, gradients ? "reduced" : "local");
}

static Shown shows_update(View *v, const char *value) {
  int in_backward = 0, at_end = 0;
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    if (!op_def(n->op)->optimizer) continue;
    in_backward += n->region == REGION_MICRO && n->phase != PHASE_FORWARD;
    at_end += n->region == REGION_END;
  }
  assert_true(in_backward + at_end > 0);
  return word(v, value, in_backward ? "in_backward" : "end");
}

// ---- tensors

// The axes that cut the stream between blocks in MICRO; in a dim, or in any (DIM_NONE).
static uint32_t stream_axes(const View *v, DimName dim) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->tensor.count; i++) {
    const Tensor *t = &v->g->tensor.data[i];
    if (t->role != ROLE_RESIDUAL || !t->placement || t->producer < 0) continue;
    if (v->g->node.data[t->producer].region != REGION_MICRO || op_def(v->g->node.data[t->producer].op)->communicates)
      continue;
    for (int d = 0; d < t->shape.rank; d++)
      if (dim == DIM_NONE || t->shape.dim[d] == dim) axes |= axis_list_axes(&t->placement->dim[d]);
  }
  return axes;
}

// The axes of tp that cut storage of matrices.
static uint32_t matrix_axes(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->variable.count; i++) {
    const Variable *x = &v->g->variable.data[i];
    if (x->kind == VARIABLE_PARAMETER && x->shape.rank > 1) axes |= placement_axes(x->storage);
  }
  return axes & axes_with(v->mesh, AXIS_TENSOR);
}

static Shown shows_sequence(View *v, const char *value) {
  uint32_t tp = axes_with(v->mesh, AXIS_TENSOR);
  if (mesh_size(v->mesh, tp) == 1 || !is_asked(v->asked, "parallel.tensor", "1d")) return NOTHING_TO_SEE;
  return truth(v, value, mesh_size(v->mesh, stream_axes(v, DIM_SEQ) & tp) > 1);
}

static int part_ranks(const View *v, AxisPart part) { return mesh_size(v->mesh, axes_of_part(v->mesh, part)); }

static Shown shows_tensor(View *v, const char *value) {
  uint32_t row = axes_of_part(v->mesh, AXIS_PART_ROW), depth = axes_of_part(v->mesh, AXIS_PART_DEPTH),
           samples = stream_axes(v, DIM_BATCH), matrices = matrix_axes(v);
  const char *there = !row && !depth                                ? "1d"
                      : (samples & row) && !depth                   ? "2d"
                      : (samples & depth) && !(matrices & depth)    ? "2.5d"
                      : (samples & depth) && (matrices & depth)     ? "3d"
                                                                    : "something else";
  if (mesh_size(v->mesh, axes_with(v->mesh, AXIS_TENSOR)) == 1) return NOTHING_TO_SEE;
  if (strcmp(there, "1d") && strcmp(there, "2.5d") && (matrices & row) != row) there = "rows that cut no matrix";
  if (!strcmp(value, "2.5d") && is_asked(v->asked, "parallel.depth", "1")) value = "2d"; // which it is then
  return word(v, value, there);
}

static Shown shows_rows(View *v, const char *value) {
  uint32_t row = axes_of_part(v->mesh, AXIS_PART_ROW);
  return number(v, value, mesh_size(v->mesh, stream_axes(v, DIM_BATCH) & row));
}

static Shown shows_depth(View *v, const char *value) {
  uint32_t depth = axes_of_part(v->mesh, AXIS_PART_DEPTH);
  return number(v, value, mesh_size(v->mesh, stream_axes(v, DIM_BATCH) & depth));
}

static Shown shows_summa(View *v, const char *value) {
  int blocks = 0;
  if (part_ranks(v, AXIS_PART_ROW) == 1) return NOTHING_TO_SEE;
  for (int i = 0; i < v->g->node.count; i++)
    if (v->g->node.data[i].op == OP_BROADCAST && v->g->node.data[i].region == REGION_MICRO)
      blocks += graph_tensor(v->g, v->g->node.data[i].output[0])->placement->fixed_axes != 0;
  return truth(v, value, blocks > 0);
}

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
static Shown shows_recompute(View *v, const char *value) {
  char there[TEXT], expected[TEXT], of_list[16];
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

static Shown shows_recompute_layers(View *v, const char *value) {
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

static Shown shows_memory(View *v, const char *value) {
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
static Shown shows_pipeline(View *v, const char *value) {
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
static Shown shows_logits(View *v, const char *value) {
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

static Shown shows_stages_per_rank(View *v, const char *value) {
  return number(v, value, v->g->stages / all_pipeline_ranks(v));
}

static Shown shows_layers(View *v, const char *value) {
  char there[TEXT];
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

static Shown shows_overlap(View *v, const char *value) {
  if (mesh_size(v->mesh, ~(1u << mesh_pipeline(v->mesh))) == 1 || v->p->schedule->streams) return NOTHING_TO_SEE;
  if (is_asked(v->asked, "parallel.bucket_mb", "0")) return NOTHING_TO_SEE; // which turns it off, too
  int early = 0;
  for (int k = 0; k < all_pipeline_ranks(v); k++) early |= overlaps(v->c->job->train.program[k]);
  return truth(v, value, early);
}

static double larger_side(const View *v, const Node *n, int k) {
  const Tensor *in = graph_tensor(v->g, n->input[k]), *out = graph_tensor(v->g, n->output[k]);
  return (double)(in->allocated > out->allocated ? in->allocated : out->allocated) * (double)dtype_size(in->dtype);
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
static Shown shows_bucket_mb(View *v, const char *value) {
  const double most = atof(value) * 1e6;
  const Node *before = NULL;
  int seen = 0, joined = 0, apart = 0, large = 0;
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    const Tensor *t = n->region == REGION_END && op_def(n->op)->reduces ? graph_tensor(v->g, n->input[0]) : NULL;
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
  if (n->region != REGION_MICRO || n->phase != PHASE_FORWARD || !op_def(n->op)->gathers) return 0;
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

static Shown shows_gather(View *v, const char *value) {
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

// ---- context

static uint32_t context_collectives(const View *v, int (*is)(const OpDef *op)) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    const OpDef *op = op_def(n->op);
    if (n->region != REGION_MICRO || n->layer < 0 || n->layer >= v->g->layers || !op->communicates || op->moves_rows)
      continue;
    const Tensor *t = graph_tensor(v->g, n->input[0]);
    if (t->variable < 0 && t->role == ROLE_INTERIOR && is(op)) axes |= node_attr(n, CommAttr)->axes;
  }
  return axes & axes_with(v->mesh, AXIS_CONTEXT);
}

static int is_shift(const OpDef *op) { return op->shifts; }
static int is_exchange(const OpDef *op) { return op->exchanges; }
static int is_gather(const OpDef *op) { return op->gathers; }

static Shown shows_context(View *v, const char *value) {
  if (mesh_size(v->mesh, axes_with(v->mesh, AXIS_CONTEXT)) == 1) return NOTHING_TO_SEE;
  return word(v, value,
              context_collectives(v, is_shift)      ? "ring"
              : context_collectives(v, is_exchange) ? "ulysses"
              : context_collectives(v, is_gather)   ? "gather"
                                                    : "none");
}

static Shown shows_ulysses(View *v, const char *value) {
  if (mesh_size(v->mesh, axes_with(v->mesh, AXIS_CONTEXT)) == 1) return NOTHING_TO_SEE;
  return number(v, value, mesh_size(v->mesh, context_collectives(v, is_exchange)));
}

// The axes over which rows go to experts and back.
static uint32_t row_axes(const View *v) {
  uint32_t axes = 0;
  for (int i = 0; i < v->g->node.count; i++)
    if (op_def(v->g->node.data[i].op)->moves_rows)
      axes |= node_attr(&v->g->node.data[i], const ExchangeAttr)->comm.axes;
  return axes;
}

// The ranks that experts are divided over, as their product reads them. Rows move over those of these axes that divide
// the tokens, and over no others.
static Shown shows_ep(View *v, const char *value) {
  for (int i = 0; i < v->g->node.count; i++) {
    const Node *n = &v->g->node.data[i];
    if (n->op != OP_GROUPED || n->region != REGION_MICRO) continue;
    for (int k = 0; k < n->ninput; k++) {
      const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(v->g, n->input[k]);
      if (!t || t->role != ROLE_WEIGHT || t->shape.rank < 2 || t->shape.dim[0] != DIM_EXPERT) continue;
      const AxisList *cut = &t->placement->dim[0];
      assert_int_equal(tensor_local(v->g, t)[0] * axis_list_shards(v->mesh, cut), t->shape.size[0]);
      Shown result = number(v, value, axis_list_shards(v->mesh, cut));
      uint32_t experts = axis_list_axes(cut), samples, positions, move = row_axes(v);
      token_ranks(v, DIM_BATCH, AXIS_DATA, &samples);
      token_ranks(v, DIM_SEQ, AXIS_CONTEXT, &positions);
      if (!(move & ~experts) && !(experts & (samples | positions) & ~move)) return result;
      snprintf(v->says, sizeof v->says, "%d ranks, but rows move over others", axis_list_shards(v->mesh, cut));
      return ANOTHER;
    }
  }
  return NOTHING_TO_SEE;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define ONE_MICROBATCH "optimizer.clip=0 run.non_finite=stop mesh.dp=2 batch.micro=24"

// with: what a value needs to do anything; the first mesh that is tried.
// ignored: what stands for the key where nobody heeds it; NULL: the recipe without it.
typedef struct Row {
  const char *key;
  Shown (*shows)(View *v, const char *value);
  struct { const char *value, *with; } values[8];
  const char *ignored;
} Row;

static const Row rows[] = {
    {"mesh.pp", shows_pp, {{"2", ""}, {"4", ""}}, NULL},
    {"mesh.dp", shows_dp, {{"2", ""}, {"3", ""}, {"4", ""}, {"6", ""}}, NULL},
    {"mesh.cp", shows_cp, {{"2", ""}, {"3", ""}, {"4", ""}}, NULL},
    {"mesh.tp", shows_tp, {{"2", ""}, {"3", ""}, {"4", "parallel.tensor=2d"}, {"8", "parallel.tensor=2.5d"}}, NULL},
    {"parallel.zero",
     shows_zero,
     {{"1", "mesh.dp=2"}, {"2", "mesh.dp=3"}, {"3", "mesh.dp=2"}, {"3", "mesh.cp=2"}},
     NULL},
    {"parallel.reshard", shows_reshard, {{"false", "mesh.dp=2 parallel.zero=3"}}, NULL},
    {"parallel.gather",
     shows_gather,
     {{"layer", "mesh.dp=2 parallel.zero=3"},
      {"1 MB", "mesh.dp=2 parallel.zero=3"},
      {"10 MB", "mesh.dp=2 parallel.zero=3"}},
     NULL},
    {"parallel.shard_group",
     shows_shard_group,
     {{"2", "mesh.dp=4 parallel.zero=1"}, {"2", "mesh.dp=6 parallel.zero=3"}, {"3", "mesh.dp=6 parallel.zero=2"}},
     NULL},
    {"parallel.unsplit_tensors",
     shows_unsplit,
     {{"true", "mesh.dp=2 parallel.zero=1"}, {"true", "mesh.dp=3 parallel.zero=3"}},
     NULL},
    {"parallel.sequence", shows_sequence, {{"true", "mesh.tp=2"}, {"true", "mesh.tp=3 mesh.cp=2"}}, NULL},
    {"parallel.tensor",
     shows_tensor,
     {{"2d", "mesh.tp=4"}, {"2d", "mesh.tp=6"}, {"2.5d", "mesh.tp=8"}, {"3d", "mesh.tp=8"}},
     NULL},
    {"parallel.rows",
     shows_rows,
     {{"3", "mesh.tp=6 parallel.tensor=2d"},
      {"2", "mesh.tp=12 parallel.tensor=2d"},
      {"4", "mesh.tp=8 parallel.tensor=2d"}},
     NULL},
    {"parallel.depth",
     shows_depth,
     {{"16", "mesh.tp=64 parallel.tensor=2.5d"},
      {"1", "mesh.tp=4 parallel.tensor=2.5d"},
      {"4", "mesh.tp=16 parallel.tensor=2.5d"}},
     NULL},
    {"parallel.summa",
     shows_summa,
     {{"true", "mesh.tp=4 parallel.tensor=2d"}, {"true", "mesh.tp=8 parallel.tensor=2.5d"}},
     NULL},
    {"parallel.recompute",
     shows_recompute,
     {{"selective", ""}, {"full", ""}, {"[full x 2, keep, selective]", ""}, {"[selective, keep x 3]", "mesh.pp=2"}},
     NULL},
    {"parallel.memory", shows_memory, {{"44MB", "parallel.recompute=auto"}}, "1GB"},
    {"parallel.recompute_layers",
     shows_recompute_layers,
     {{"1", "parallel.recompute=full"},
      {"1", "parallel.recompute=selective mesh.pp=2"},
      {"3", "parallel.recompute=full"}},
     NULL},
    {"parallel.pipeline",
     shows_pipeline,
     {{"naive", "mesh.pp=2"},
      {"gpipe", "mesh.pp=2"},
      {"interleaved", "mesh.pp=2"},
      {"zb-h1", "mesh.pp=2"},
      {"zb-v", "mesh.pp=2"},
      {"2bw", "mesh.pp=2 optimizer.delay=1"},
      {"pipedream", "mesh.pp=2 optimizer.clip=0 run.non_finite=stop batch.micro=48 optimizer.delay=[1,1,0,0]"}},
     NULL},
    {"parallel.logits",
     shows_logits,
     {{"recompute", "mesh.pp=2 parallel.pipeline=zb-h1"}, {"recompute", "mesh.pp=2 parallel.pipeline=zb-v"}},
     NULL},
    {"parallel.stages_per_rank",
     shows_stages_per_rank,
     {{"2", "mesh.pp=2 parallel.pipeline=gpipe"}, {"2", "mesh.pp=2 parallel.pipeline=naive"}},
     NULL},
    {"parallel.layers",
     shows_layers,
     {{"[1, 3]", "mesh.pp=2"}, {"[3, 1]", "mesh.pp=2"}, {"[0, 1, 1, 2]", "mesh.pp=2 parallel.pipeline=interleaved"}},
     NULL},
    {"parallel.overlap",
     shows_overlap,
     {{"false", "mesh.dp=2"}, {"false", "mesh.tp=2"}, {"false", "mesh.dp=2 parallel.zero=3"}},
     NULL},
    {"parallel.bucket_mb",
     shows_bucket_mb,
     {{"0", "mesh.dp=2"}, {"1", "mesh.dp=2"}, {"3", "mesh.dp=2"}, {"6", "mesh.dp=2 parallel.zero=1"}},
     NULL},
    {"parallel.grad_dtype", shows_grad_dtype, {{"bf16", ""}, {"bf16", "mesh.dp=2 parallel.zero=2"}}, NULL},
    {"parallel.accumulate",
     shows_accumulate,
     {{"local", "mesh.dp=2 parallel.zero=2"}, {"local", "mesh.dp=2 parallel.zero=3"}},
     NULL},
    {"parallel.update",
     shows_update,
     {{"in_backward", ONE_MICROBATCH}, {"in_backward", ONE_MICROBATCH " parallel.zero=3"}},
     NULL},
    {"parallel.context",
     shows_context,
     {{"gather", "mesh.cp=2"}, {"ring", "mesh.cp=4"}, {"ulysses", "mesh.cp=3"}},
     NULL},
    {"parallel.ulysses", shows_ulysses, {{"2", "mesh.cp=4 parallel.context=ring"}}, NULL},
    {"parallel.ep",
     shows_ep,
     {{"2", "mesh.dp=2 " MOE},
      {"4", "mesh.dp=8 " MOE},
      {"8", "mesh.dp=16 " MOE},
      {"6", "mesh.dp=6 mesh.tp=2 " MOE},
      {"4", "mesh.dp=12 parallel.zero=1 " MOE},
      {"2", "mesh.tp=2 mesh.dp=2 " MOE},
      {"12", "mesh.cp=2 mesh.dp=6 " MOE}},
     NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int values_of(const Row *row) {
  int n = 0;
  while (n < (int)(sizeof row->values / sizeof *row->values) && row->values[n].value) n++;
  return n;
}

static Shown shown(const Row *row, const Asked *a, const Case *c, const char *value, char says[TEXT]) {
  View v = {.asked = a, .c = c, .g = c->job->train.graph, .p = c->job->train.program[0]};
  v.mesh = &v.p->mesh;
  Shown result = row->shows(&v, value);
  snprintf(says, TEXT, "%s", v.says);
  return result;
}

// ---- the tests ------------------------------------------------------------------------------------------------------

static void every_key_has_a_row(void **state) {
  for (int i = 0; i < recipe_key_count; i++) {
    const char *key = recipe_keys[i].path;
    int found = 0;
    if (strncmp(key, "mesh.", 5) && strncmp(key, "parallel.", 9)) continue;
    if (recipe_keys[i].kind == RECIPE_LATER) continue;
    for (int r = 0; r < ROWS; r++) found += !strcmp(rows[r].key, key);
    if (found != 1) fail_msg("%s has %d rows here: say how a compiled Program shows it", key, found);
  }
  for (int r = 0; r < ROWS; r++) {
    const RecipeKey *key = recipe_key_find(rows[r].key);
    if (!key) fail_msg("%s is not a key", rows[r].key);
    for (int i = 0; i < values_of(&rows[r]); i++)
      if (key->fallback && !strcmp(key->fallback, rows[r].values[i].value))
        fail_msg("%s: %s is the default", rows[r].key, key->fallback);
    assert_true(values_of(&rows[r]) > 0);
  }
}

static Asked asked_by(const Row *row, int i) {
  Asked a = {0};
  if (!ask_all(&a, row->values[i].with) || !ask(&a, row->key, row->values[i].value))
    fail_msg("%s: %s contradicts itself", row->key, row->values[i].with);
  return a;
}

// All rows, of a recipe that compiles: the keys that are given, and the others at their defaults.
static void judge(const Asked *a, const Case *c, int *seen) {
  for (int r = 0; r < ROWS; r++) {
    const char *value = asked(a, rows[r].key);
    char says[TEXT];
    if (!value || !strcmp(value, "auto")) continue; // plait chooses
    Shown result = shown(&rows[r], a, c, value, says);
    if (result == ANOTHER) fail_msg("%s: %s is %s, but compiled is: %s", asked_text(a), rows[r].key, value, says);
    seen[r] += result == AS_ASKED && value != recipe_key_find(rows[r].key)->fallback;
  }
}

// Each value is there, and is missed where nobody heeds the key (make test: the first value of each key). Other values
// than the first may be refused without the key, where nothing else allows their mesh.
static void values_are_compiled(void **state) {
  int seen[ROWS] = {0}, missed = 0;
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < values_of(&rows[r]); i++) {
      const char *value = rows[r].values[i].value;
      Asked a = asked_by(&rows[r], i), less = without(&a, rows[r].key);
      Case c;
      Error error;
      char says[TEXT];
      if (!compiles(&a, &c, &error)) fail_msg("%s: %s", asked_text(&a), error.message);
      int before = seen[r];
      judge(&a, &c, seen);
      if (seen[r] == before) fail_msg("%s: nothing shows %s", asked_text(&a), rows[r].key);
      release(&c);
      if (test_tier() < 2 && i) continue;
      if (rows[r].ignored) ask(&less, rows[r].key, rows[r].ignored);
      if (!compiles(&less, &c, &error)) {
        if (!i) fail_msg("%s: %s", asked_text(&less), error.message);
        continue;
      }
      // Where plait chooses without the key, it may choose the same.
      const char *fallback = recipe_key_find(rows[r].key)->fallback;
      Shown result = shown(&rows[r], &a, &c, value, says);
      missed += result == ANOTHER;
      if (result != ANOTHER && (!i || !fallback || strcmp(fallback, "auto")))
        fail_msg("%s: nobody heeds %s, and its row does not notice that", asked_text(&a), rows[r].key);
      release(&c);
    }
  print_message("%d keys; without theirs, %d of their values are missed\n", ROWS, missed);
}

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// Several values at once, as far as they agree, over a mesh of any size.
static Asked random_recipe(uint64_t *random) {
  static const char *const meshes[] = {"mesh.pp=2", "mesh.dp=2", "mesh.dp=4", "mesh.dp=6", "mesh.cp=2", "mesh.tp=2",
                                       "mesh.tp=4", "mesh.dp=12", "mesh.tp=3", MOE, MOE};
  Asked a = {0};
  int keys = 2 + (int)(next_random(random) % 4), cuts = (int)(next_random(random) % 3);
  for (int k = 0; k < keys; k++) {
    const Row *row = &rows[next_random(random) % ROWS];
    int i = (int)(next_random(random) % (uint64_t)values_of(row));
    Asked more = a;
    if (ask_all(&more, row->values[i].with) && ask(&more, row->key, row->values[i].value)) a = more;
  }
  for (int k = 0; k < cuts; k++) {
    Asked more = a;
    if (ask_all(&more, meshes[next_random(random) % (sizeof meshes / sizeof *meshes)])) a = more;
  }
  return a;
}

static void random_recipes_are_what_was_asked_for(void **state) {
  int seen[ROWS] = {0}, compiled = 0, refused = 0, wanted = test_tier() < 2 ? 60 : 500;
  uint64_t random = 37;
  while (compiled < wanted) {
    Asked a = random_recipe(&random);
    Case c;
    Error error;
    if (!compiles(&a, &c, &error)) {
      assert_true(++refused < 20 * wanted);
      continue;
    }
    judge(&a, &c, seen);
    release(&c);
    compiled++;
  }
  print_message("%d recipes, beside %d that are refused\n", compiled, refused);
  for (int r = 0; r < ROWS; r++) {
    print_message("%s%s %d", r ? ", " : "values that were asked for and seen: ", rows[r].key, seen[r]);
    if (test_tier() > 1 && seen[r] < 5) fail_msg("%s was seen %d times only", rows[r].key, seen[r]);
  }
  print_message("\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_key_has_a_row), cmocka_unit_test(values_are_compiled),
                                     cmocka_unit_test(random_recipes_are_what_was_asked_for)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
