// Hugging Face folders: the tables of views, import and export.
#include "checkpoint/huggingface.h"
#include "base/vec.h"
#include "checkpoint/safetensors.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- tables ----------------------------------------------------------------------------------------------------------

typedef enum Extent { NONE, EMBED, FFN, QUERY, KEY, VOCAB, POSITIONS } Extent;       // QUERY: heads · head_dim; KEY: kv_heads · head_dim
typedef enum Scope { MODEL, LAYER, HEAD } Scope;                                      // HEAD: outside of the prefix
typedef enum Condition { ALWAYS, ATTENTION_BIAS, MLP_BIAS, UNTIED } Condition;
typedef struct Mapping {
  Scope scope;
  const char *variable, *tensor; // after "layer.N." and after prefix and layer
  Extent rows, columns;          // of the Variable; NONE: a vector
  int transposed;
  int part;                      // 1, 2, 3: q, k or v of a fused tensor of three times as many rows; 0: all of it
  Condition condition;
} Mapping;

// Conv1D of GPT-2 holds (in, out); the rows of c_attn are q, k, v.
static const Mapping gpt2[] = {
    {MODEL, "wte", "wte.weight", VOCAB, EMBED, 0, 0, ALWAYS},
    {MODEL, "wpe", "wpe.weight", POSITIONS, EMBED, 0, 0, ALWAYS},
    {LAYER, "attention.norm.weight", "ln_1.weight", EMBED, NONE, 0, 0, ALWAYS},
    {LAYER, "attention.norm.bias", "ln_1.bias", EMBED, NONE, 0, 0, ALWAYS},
    {LAYER, "attention.q.weight", "attn.c_attn.weight", QUERY, EMBED, 1, 1, ALWAYS},
    {LAYER, "attention.k.weight", "attn.c_attn.weight", KEY, EMBED, 1, 2, ALWAYS},
    {LAYER, "attention.v.weight", "attn.c_attn.weight", KEY, EMBED, 1, 3, ALWAYS},
    {LAYER, "attention.q.bias", "attn.c_attn.bias", QUERY, NONE, 0, 1, ALWAYS},
    {LAYER, "attention.k.bias", "attn.c_attn.bias", KEY, NONE, 0, 2, ALWAYS},
    {LAYER, "attention.v.bias", "attn.c_attn.bias", KEY, NONE, 0, 3, ALWAYS},
    {LAYER, "attention.output.weight", "attn.c_proj.weight", EMBED, QUERY, 1, 0, ALWAYS},
    {LAYER, "attention.output.bias", "attn.c_proj.bias", EMBED, NONE, 0, 0, ALWAYS},
    {LAYER, "ffn.norm.weight", "ln_2.weight", EMBED, NONE, 0, 0, ALWAYS},
    {LAYER, "ffn.norm.bias", "ln_2.bias", EMBED, NONE, 0, 0, ALWAYS},
    {LAYER, "ffn.up.weight", "mlp.c_fc.weight", FFN, EMBED, 1, 0, ALWAYS},
    {LAYER, "ffn.up.bias", "mlp.c_fc.bias", FFN, NONE, 0, 0, ALWAYS},
    {LAYER, "ffn.down.weight", "mlp.c_proj.weight", EMBED, FFN, 1, 0, ALWAYS},
    {LAYER, "ffn.down.bias", "mlp.c_proj.bias", EMBED, NONE, 0, 0, ALWAYS},
    {MODEL, "norm.weight", "ln_f.weight", EMBED, NONE, 0, 0, ALWAYS},
    {MODEL, "norm.bias", "ln_f.bias", EMBED, NONE, 0, 0, ALWAYS},
    {HEAD, "head", "lm_head.weight", VOCAB, EMBED, 0, 0, UNTIED},
};

static const Mapping llama[] = {
    {MODEL, "wte", "embed_tokens.weight", VOCAB, EMBED, 0, 0, ALWAYS},
    {LAYER, "attention.norm.weight", "input_layernorm.weight", EMBED, NONE, 0, 0, ALWAYS},
    {LAYER, "attention.q.weight", "self_attn.q_proj.weight", QUERY, EMBED, 0, 0, ALWAYS},
    {LAYER, "attention.k.weight", "self_attn.k_proj.weight", KEY, EMBED, 0, 0, ALWAYS},
    {LAYER, "attention.v.weight", "self_attn.v_proj.weight", KEY, EMBED, 0, 0, ALWAYS},
    {LAYER, "attention.output.weight", "self_attn.o_proj.weight", EMBED, QUERY, 0, 0, ALWAYS},
    {LAYER, "attention.q.bias", "self_attn.q_proj.bias", QUERY, NONE, 0, 0, ATTENTION_BIAS},
    {LAYER, "attention.k.bias", "self_attn.k_proj.bias", KEY, NONE, 0, 0, ATTENTION_BIAS},
    {LAYER, "attention.v.bias", "self_attn.v_proj.bias", KEY, NONE, 0, 0, ATTENTION_BIAS},
    {LAYER, "attention.output.bias", "self_attn.o_proj.bias", EMBED, NONE, 0, 0, ATTENTION_BIAS},
    {LAYER, "ffn.norm.weight", "post_attention_layernorm.weight", EMBED, NONE, 0, 0, ALWAYS},
    {LAYER, "ffn.gate.weight", "mlp.gate_proj.weight", FFN, EMBED, 0, 0, ALWAYS},
    {LAYER, "ffn.up.weight", "mlp.up_proj.weight", FFN, EMBED, 0, 0, ALWAYS},
    {LAYER, "ffn.down.weight", "mlp.down_proj.weight", EMBED, FFN, 0, 0, ALWAYS},
    {LAYER, "ffn.gate.bias", "mlp.gate_proj.bias", FFN, NONE, 0, 0, MLP_BIAS},
    {LAYER, "ffn.up.bias", "mlp.up_proj.bias", FFN, NONE, 0, 0, MLP_BIAS},
    {LAYER, "ffn.down.bias", "mlp.down_proj.bias", EMBED, NONE, 0, 0, MLP_BIAS},
    {MODEL, "norm.weight", "norm.weight", EMBED, NONE, 0, 0, ALWAYS},
    {HEAD, "head", "lm_head.weight", VOCAB, EMBED, 0, 0, UNTIED},
};

typedef struct Table {
  const char *prefix, *layer; // "transformer." may be absent in files; "h."
  const char *buffers[2];     // ends of names of tensors that are no parameters
  const Mapping *mapping;
  int count;
} Table;
#define MAPPINGS(table) table, (int)(sizeof table / sizeof *table)
static const Table tables[] = {
    [MODEL_GPT2] = {"transformer.", "h.", {".attn.bias", ".attn.masked_bias"}, MAPPINGS(gpt2)},
    [MODEL_LLAMA] = {"model.", "layers.", {"rotary_emb.inv_freq", "rotary_emb.inv_freq"}, MAPPINGS(llama)},
};
_Static_assert(sizeof tables / sizeof *tables == MODEL_FAMILY_COUNT, "a family without a table");

static int64_t extent(const ModelConfig *c, Extent e) {
  switch (e) {
  case NONE: return 0;
  case EMBED: return c->embed;
  case FFN: return c->ffn;
  case QUERY: return c->heads * c->head_dim;
  case KEY: return c->kv_heads * c->head_dim;
  case VOCAB: return c->vocab;
  case POSITIONS: return c->positions;
  }
  return 0;
}

static int applies(const ModelConfig *c, Condition condition) {
  return condition == ALWAYS || (condition == ATTENTION_BIAS && c->attention_bias) || (condition == MLP_BIAS && c->mlp_bias) ||
         (condition == UNTIED && !c->tied);
}

static HuggingfaceView view_of(const ModelConfig *c, const Mapping *m, int64_t layer) {
  const Table *t = &tables[c->family];
  HuggingfaceView v = {.rank = m->columns == NONE ? 1 : 2, .transposed = m->transposed};
  v.rows = extent(c, m->rows);
  v.columns = extent(c, m->columns);
  v.row = m->part ? (m->part - 1) * v.rows : 0;
  int64_t rows = m->part ? 3 * v.rows : v.rows;
  v.dims[0] = m->transposed ? v.columns : rows;
  v.dims[1] = m->columns == NONE ? 1 : m->transposed ? rows : v.columns;
  if (m->scope == HEAD) snprintf(v.tensor, sizeof v.tensor, "%s", m->tensor);
  else if (m->scope == MODEL) snprintf(v.tensor, sizeof v.tensor, "%s%s", t->prefix, m->tensor);
  else snprintf(v.tensor, sizeof v.tensor, "%s%s%lld.%s", t->prefix, t->layer, (long long)layer, m->tensor);
  return v;
}

int huggingface_view(const ModelConfig *config, const char *name, HuggingfaceView *view) {
  const Table *t = &tables[config->family];
  int64_t layer = -1;
  if (!strncmp(name, "layer.", 6)) {
    char *end;
    layer = strtoll(name + 6, &end, 10);
    if (end == name + 6 || *end != '.' || layer < 0 || layer >= config->layers) return -1;
    name = end + 1;
  }
  for (int i = 0; i < t->count; i++) {
    const Mapping *m = &t->mapping[i];
    if ((m->scope == LAYER) != (layer >= 0) || strcmp(m->variable, name) || !applies(config, m->condition)) continue;
    *view = view_of(config, m, layer);
    return 0;
  }
  return -1;
}

// One parameter and its place; those that share a fused tensor follow each other.
typedef struct Place { char variable[64]; HuggingfaceView view; } Place;
typedef Vec(Place) Places;

static void add_place(const ModelConfig *c, const Mapping *m, int64_t layer, Places *places) {
  if (!applies(c, m->condition)) return;
  Place p = {.view = view_of(c, m, layer)};
  if (layer < 0) snprintf(p.variable, sizeof p.variable, "%s", m->variable);
  else snprintf(p.variable, sizeof p.variable, "layer.%lld.%s", (long long)layer, m->variable);
  vec_push(places, p);
}

static Places all_places(const ModelConfig *c) {
  const Table *t = &tables[c->family];
  Places places = {0};
  for (int i = 0; i < t->count;) {
    if (t->mapping[i].scope != LAYER) {
      add_place(c, &t->mapping[i++], -1, &places);
      continue;
    }
    int end = i;
    while (end < t->count && t->mapping[end].scope == LAYER) end++;
    for (int64_t layer = 0; layer < c->layers; layer++)
      for (int k = i; k < end; k++) add_place(c, &t->mapping[k], layer, &places);
    i = end;
  }
  return places;
}

// The places from `from` on that share one tensor end here.
static int tensor_end(const Places *places, int from) {
  int end = from + 1;
  while (end < places->count && !strcmp(places->data[end].view.tensor, places->data[from].view.tensor)) end++;
  return end;
}

int huggingface_variables(const ModelConfig *config, char ***names) {
  Places places = all_places(config);
  int count = places.count;
  *names = xcalloc((size_t)count, sizeof **names);
  for (int i = 0; i < count; i++) (*names)[i] = xstrdup(places.data[i].variable);
  vec_free(&places);
  return count;
}

void huggingface_variables_free(char **names, int count) {
  for (int i = 0; i < count; i++) free(names[i]);
  free(names);
}

// --- import ----------------------------------------------------------------------------------------------------------

// Files hold names with the prefix or, of the bare model, without.
static const SafetensorsEntry *find_tensor(const Safetensors *file, const ModelConfig *c, const char *name) {
  const SafetensorsEntry *entry = safetensors_find(file, name);
  const char *prefix = tables[c->family].prefix;
  if (!entry && !strncmp(name, prefix, strlen(prefix))) entry = safetensors_find(file, name + strlen(prefix));
  return entry;
}

static int is_buffer(const ModelConfig *c, const char *name) {
  for (int i = 0; i < 2; i++) {
    const char *end = tables[c->family].buffers[i];
    if (strlen(name) >= strlen(end) && !strcmp(name + strlen(name) - strlen(end), end)) return 1;
  }
  return 0;
}

// A list of names for a message: the first few, and how many more.
typedef struct Names { char text[400]; int count; } Names;
static void add_name(Names *names, const char *name) {
  size_t used = strlen(names->text);
  if (names->count++ < 4) snprintf(names->text + used, sizeof names->text - used, "%s%.90s", used ? ", " : "", name);
}
static const char *more(const Names *names, char text[32]) {
  text[0] = 0;
  if (names->count > 4) snprintf(text, 32, " and %d more", names->count - 4);
  return text;
}

static int check_tensor(const char *folder, const SafetensorsEntry *e, const HuggingfaceView *v, Error *error) {
  char found[200], expected[200];
  if (e->dtype < 0 || !dtype_is_float((Dtype)e->dtype))
    return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s has dtype %.20s; allowed: F32, BF16, F16, F64", folder, e->name,
                     e->dtype_name ? e->dtype_name : dtype_file_name((Dtype)e->dtype));
  if (e->rank == v->rank && !memcmp(e->dims, v->dims, sizeof *e->dims * (size_t)e->rank)) return PLAIT_OK;
  snprintf(found, sizeof found, "%d dims", e->rank);
  if (e->rank == 1) snprintf(found, sizeof found, "[%lld]", (long long)e->dims[0]);
  if (e->rank == 2) snprintf(found, sizeof found, "[%lld, %lld]", (long long)e->dims[0], (long long)e->dims[1]);
  snprintf(expected, sizeof expected, v->rank == 1 ? "[%lld]" : "[%lld, %lld]", (long long)v->dims[0], (long long)v->dims[1]);
  return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s has shape %s; allowed: %s, by config.json", folder, e->name, found, expected);
}

// A tied head that is written nevertheless is no surplus as long as it says the same.
static int check_tied_head(const Safetensors *file, const char *folder, const ModelConfig *c, const SafetensorsEntry *head, Error *error) {
  HuggingfaceView view;
  int code = huggingface_view(c, "wte", &view);
  CHECK(code == 0);
  const SafetensorsEntry *wte = find_tensor(file, c, view.tensor);
  if (!wte || (wte->dtype == head->dtype && wte->bytes == head->bytes && !memcmp(wte->data, head->data, head->bytes))) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: %s differs from the embedding although config.json says tie_word_embeddings: true; "
                   "allowed: equal tensors, or tie_word_embeddings: false", folder, head->name);
}

static int check_all(const Safetensors *file, const char *folder, const ModelConfig *c, const Places *places, Error *error) {
  Names lacking = {0}, surplus = {0};
  char more_lacking[32], more_surplus[32];
  char *used = xcalloc((size_t)file->count, 1);
  int code = PLAIT_OK;
  for (int i = 0; i < places->count && !code; i = tensor_end(places, i)) {
    const HuggingfaceView *v = &places->data[i].view;
    const SafetensorsEntry *e = find_tensor(file, c, v->tensor);
    if (!e) {
      add_name(&lacking, v->tensor);
      continue;
    }
    used[e - file->entries] = 1;
    code = check_tensor(folder, e, v, error);
  }
  for (int i = 0; i < file->count && !code; i++) {
    const SafetensorsEntry *e = &file->entries[i];
    if (used[i] || is_buffer(c, e->name)) continue;
    if (c->tied && !strcmp(e->name, "lm_head.weight")) code = check_tied_head(file, folder, c, e, error);
    else add_name(&surplus, e->name);
  }
  free(used);
  if (!code && (lacking.count || surplus.count))
    code = error_set(error, PLAIT_BAD_INPUT, "%s: the tensors are not those of its %s config.json: %s%s%s%s%s%s%s", folder,
                     model_family_name(c->family), lacking.count ? "missing " : "", lacking.text, more(&lacking, more_lacking),
                     lacking.count && surplus.count ? "; " : "", surplus.count ? "surplus " : "", surplus.text, more(&surplus, more_surplus));
  return code;
}

// Opens the folder and checks everything in it. On success the caller closes the file and frees the places.
static int open_checked(const char *folder, const ModelConfig *c, Safetensors *file, Places *places, Error *error) {
  int code = safetensors_open_folder(file, folder, error);
  if (code) {
    safetensors_close(file);
    return code;
  }
  *places = all_places(c);
  code = check_all(file, folder, c, places, error);
  if (!code) return PLAIT_OK;
  vec_free(places);
  safetensors_close(file);
  return code;
}

// Strides in the tensor's memory of a Variable's dims, whose leading ones are rows and whose trailing ones columns;
// returns the offset of its first element, or -1 where the dims are not those of the view.
static int64_t strides_in(const HuggingfaceView *v, int rank, const int64_t *dims, int64_t *stride) {
  int64_t columns = 1, rows = 1, wanted = v->columns ? v->columns : 1;
  int64_t row_unit = v->columns && !v->transposed ? v->dims[1] : 1, column_unit = v->transposed ? v->dims[1] : 1;
  int d = rank;
  while (d > 0 && columns < wanted) {
    stride[--d] = columns * column_unit;
    columns *= dims[d];
  }
  while (d > 0) {
    stride[--d] = rows * row_unit;
    rows *= dims[d];
  }
  return columns == wanted && rows == v->rows ? v->row * row_unit : -1;
}

static int load_one(const Safetensors *file, const ModelConfig *c, const CheckpointTensor *w, Error *error) {
  HuggingfaceView v;
  int64_t stride[BOX_MAX_RANK];
  if (huggingface_view(c, w->name, &v))
    return error_set(error, PLAIT_FAILED, "%s: a %s model has no parameter %s", file->files[0].path, model_family_name(c->family), w->name);
  const SafetensorsEntry *e = find_tensor(file, c, v.tensor);
  Box whole = {.rank = w->rank}, part = checkpoint_box(w);
  memcpy(whole.local, w->global, sizeof whole.local);
  int64_t first = strides_in(&v, w->rank, w->global, stride);
  if (first < 0 || !box_inside(&part, w->global) || !dtype_is_float(w->dtype))
    return error_set(error, PLAIT_FAILED, "%s: the shape or dtype of %s here is not what the config says", file->files[0].path, w->name);
  const char *source = (const char *)e->data + first * (int64_t)dtype_size((Dtype)e->dtype);
  checkpoint_tensor_put(w, &part, source, &whole, stride, (Dtype)e->dtype);
  return PLAIT_OK;
}

int huggingface_load(const char *folder, const ModelConfig *config, const CheckpointTensor *wanted, int count,
                     Error *error) {
  Safetensors file;
  Places places;
  int code = open_checked(folder, config, &file, &places, error);
  if (code) return code;
  for (int i = 0; i < count && !code; i++) code = load_one(&file, config, &wanted[i], error);
  vec_free(&places);
  safetensors_close(&file);
  return code;
}

int huggingface_dtypes(const char *folder, const ModelConfig *config, json_t **dtypes, Error *error) {
  Safetensors file;
  Places places;
  int frequency[DTYPE_COUNT] = {0}, most = DTYPE_F32;
  *dtypes = NULL;
  int code = open_checked(folder, config, &file, &places, error);
  if (code) return code;
  for (int i = 0; i < places.count; i = tensor_end(&places, i))
    frequency[find_tensor(&file, config, places.data[i].view.tensor)->dtype]++;
  for (int d = 0; d < DTYPE_COUNT; d++)
    if (frequency[d] > frequency[most]) most = d;
  *dtypes = json_pack("{s:s}", "*", dtype_file_name((Dtype)most));
  for (int i = 0; i < places.count; i = tensor_end(&places, i)) {
    const char *name = places.data[i].view.tensor;
    int dtype = find_tensor(&file, config, name)->dtype;
    if (dtype != most) json_object_set_new(*dtypes, name, json_string(dtype_file_name((Dtype)dtype)));
  }
  vec_free(&places);
  safetensors_close(&file);
  return PLAIT_OK;
}

// --- export ----------------------------------------------------------------------------------------------------------

static Dtype dtype_of(const HuggingfaceSave *save, const char *tensor) {
  if (save->dtype >= 0) return (Dtype)save->dtype;
  const char *name = json_string_value(json_object_get(save->dtypes, tensor));
  if (!name) name = json_string_value(json_object_get(save->dtypes, "*"));
  int dtype = name ? dtype_from_file_name(name) : DTYPE_F32;
  return dtype >= 0 && dtype_is_float((Dtype)dtype) ? (Dtype)dtype : DTYPE_F32;
}

static SafetensorsEntry entry_of(const HuggingfaceSave *save, const HuggingfaceView *v) {
  SafetensorsEntry e = {.name = v->tensor, .dtype = (int)dtype_of(save, v->tensor), .rank = v->rank};
  int64_t elements = 1;
  for (int d = 0; d < v->rank; d++) elements *= e.dims[d] = v->dims[d];
  e.bytes = (size_t)elements * dtype_size((Dtype)e.dtype);
  return e;
}

// Assembles one tensor of the folder, as it is in the file, from the Variables at `place` … `place + count - 1`.
static int assemble(const HuggingfaceSave *save, const Place *place, int count, Dtype dtype, char *tensor, Error *error) {
  for (int i = 0; i < count; i++) {
    const HuggingfaceView *v = &place[i].view;
    int64_t columns = v->columns ? v->columns : 1, dims[2] = {v->rows, columns}, stride[2], plain[2] = {columns, 1};
    Box whole = {.rank = 2, .local = {v->rows, columns}};
    float *values = xcalloc((size_t)(v->rows * columns), sizeof *values);
    int code = save->read(save->context, place[i].variable, v->rows * columns, values, error);
    if (!code) {
      int64_t first = strides_in(v, v->columns ? 2 : 1, dims, stride);
      if (!v->columns) stride[1] = 1;
      box_copy(&whole, tensor + first * (int64_t)dtype_size(dtype), &whole, stride, dtype, values, &whole, plain, DTYPE_F32);
    }
    free(values);
    if (code) return code;
  }
  return PLAIT_OK;
}

static int write_tensors(const HuggingfaceSave *save, const char *folder, const ModelConfig *c, Error *error) {
  Places places = all_places(c);
  Vec(SafetensorsEntry) entries = {0};
  for (int i = 0; i < places.count; i = tensor_end(&places, i)) vec_push(&entries, entry_of(save, &places.data[i].view));
  char *path = xformat("%s/model.safetensors", folder);
  SafetensorsWriter writer = {0};
  int code = safetensors_write_begin(&writer, path, entries.data, entries.count, (const char *[]){"format", "pt", NULL}, error);
  for (int i = 0, k = 0, end; i < places.count && !code; i = end, k++) {
    end = tensor_end(&places, i);
    char *tensor = xcalloc(entries.data[k].bytes, 1);
    code = assemble(save, &places.data[i], end - i, (Dtype)entries.data[k].dtype, tensor, error);
    if (!code) code = safetensors_write_data(&writer, tensor, entries.data[k].bytes, error);
    free(tensor);
  }
  if (!code) code = safetensors_write_finish(&writer, error);
  safetensors_write_abandon(&writer);
  free(path);
  vec_free(&entries);
  vec_free(&places);
  return code;
}

static int write_tokenizer(const char *from, const char *folder, Error *error) {
  FileMap map;
  AtomicFile file = {0};
  int code = file_map(from, &map, error);
  if (code) return code;
  char *path = xformat("%s/tokenizer.json", folder);
  code = file_begin(&file, path, error);
  if (!code) {
    if (map.size) fwrite(map.data, 1, map.size, file.stream); // an error sticks to the stream; commit sees it
    code = file_commit(&file, error);
  }
  free(path);
  file_unmap(&map);
  return code;
}

static int write_config(const HuggingfaceSave *save, const char *folder, const ModelConfig *c, Error *error) {
  static const char *const torch_names[DTYPE_COUNT] = {
      [DTYPE_F64] = "float64", [DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16"};
  char *path = xformat("%s/config.json", folder);
  int code = model_config_save(c, path, torch_names[dtype_of(save, "*")], error);
  free(path);
  return code;
}

static int verify_tensors(const HuggingfaceSave *save, const char *folder, const ModelConfig *c, Error *error) {
  Safetensors file;
  Places places;
  int code = open_checked(folder, c, &file, &places, error);
  if (code) return code;
  for (int i = 0, end; i < places.count && !code; i = end) {
    end = tensor_end(&places, i);
    const HuggingfaceView *v = &places.data[i].view;
    const SafetensorsEntry *found = find_tensor(&file, c, v->tensor);
    SafetensorsEntry expected = entry_of(save, v);
    char *tensor = xcalloc(expected.bytes, 1);
    code = assemble(save, &places.data[i], end - i, (Dtype)expected.dtype, tensor, error);
    if (!code && (found->dtype != expected.dtype || memcmp(found->data, tensor, expected.bytes)))
      code = error_set(error, PLAIT_FAILED, "%s: tensor %s is not what was to be written", folder, v->tensor);
    free(tensor);
  }
  vec_free(&places);
  safetensors_close(&file);
  return code;
}

static int verify_tokenizer(const char *from, const char *folder, Error *error) {
  FileMap a, b = {0};
  char *path = xformat("%s/tokenizer.json", folder);
  int code = file_map(from, &a, error);
  if (!code) code = file_map(path, &b, error);
  if (!code && (a.size != b.size || (a.size && memcmp(a.data, b.data, a.size))))
    code = error_set(error, PLAIT_FAILED, "%s: is not the same as %s", path, from);
  file_unmap(&a);
  file_unmap(&b);
  free(path);
  return code;
}

int huggingface_verify(const HuggingfaceSave *save, const char *folder, const ModelConfig *config, Error *error) {
  ModelConfig written;
  int code = model_config_load(&written, folder, error);
  if (!code && !model_config_equal(config, &written))
    code = error_set(error, PLAIT_FAILED, "%s: config.json describes another model than was to be written", folder);
  model_config_free(&written);
  if (!code) code = verify_tensors(save, folder, config, error);
  if (!code && save->tokenizer) code = verify_tokenizer(save->tokenizer, folder, error);
  return code;
}

// 1 when the folder does not exist or holds nothing.
static int is_vacant(const char *folder) {
  DIR *d = opendir(folder);
  if (!d) return errno == ENOENT;
  int vacant = 1;
  for (struct dirent *e; (e = readdir(d)) && vacant;) vacant = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
  closedir(d);
  return vacant;
}

static int rename_synced(const char *from, const char *to, Error *error) {
  int code = folder_sync(from, error);
  if (code) return code;
  if (rename(from, to)) return error_set(error, PLAIT_FAILED, "%s: cannot be made from %s: %s", to, from, strerror(errno));
  char *parent = xstrdup(to), *slash = strrchr(parent, '/');
  if (slash) slash[slash == parent] = 0;
  code = folder_sync(slash ? parent : ".", error);
  free(parent);
  return code;
}

int huggingface_save(const HuggingfaceSave *save, const ModelConfig *config, Error *error) {
  if (!is_vacant(save->folder))
    return error_set(error, PLAIT_BAD_INPUT, "%s: exists already; allowed: a folder that does not exist or is empty", save->folder);
  char *folder = xstrdup(save->folder);
  for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--) folder[n - 1] = 0;
  char *temporary = xformat("%s.tmp.%ld", folder, (long)getpid());
  int code = folder_remove(temporary, error);
  if (!code) code = folder_create(temporary, error);
  if (!code) code = write_config(save, temporary, config, error);
  if (!code) code = write_tensors(save, temporary, config, error);
  if (!code && save->tokenizer) code = write_tokenizer(save->tokenizer, temporary, error);
  if (!code) code = huggingface_verify(save, temporary, config, error);
  if (!code) code = rename_synced(temporary, folder, error);
  if (code) folder_remove(temporary, NULL);
  free(temporary);
  free(folder);
  return code;
}
