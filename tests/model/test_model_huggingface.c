// Hugging Face folders: byte-equal round trips, views by box, refusals by name, exports that are whole or absent.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/vec.h"
#include "checkpoint/huggingface_folder.h"
#include "model/model.h"
#include "golden.h"
#include <dirent.h>
#include <unistd.h>

static char *golden(const char *name) { return xformat("%s/model/golden/%s", TESTS_FOLDER, name); }

typedef struct Scratch { char folder[40]; } Scratch;
static int setup(void **state) {
  Scratch *s = xcalloc(1, sizeof *s);
  strcpy(s->folder, "/tmp/plait-huggingface-XXXXXX");
  *state = s;
  return mkdtemp(s->folder) ? 0 : -1;
}
static int teardown(void **state) {
  Error error = {0};
  int code = folder_remove(((Scratch *)*state)->folder, &error);
  free(*state);
  return code;
}

// --- a model in memory, as the State would hold it ------------------------------------------------------------------

typedef struct Memory {
  int count;
  char **names;
  float **values;
  int64_t *elements;
  Box *shape; // of each Variable, whole
  const char *fail;
} Memory;

static void memory_load(Memory *m, const char *folder, const ModelConfig *c) {
  Graph *g = model_graph(c, 1);
  *m = (Memory){.count = g->variable.count};
  m->names = xcalloc((size_t)m->count, sizeof *m->names);
  m->values = xcalloc((size_t)m->count, sizeof *m->values);
  m->elements = xcalloc((size_t)m->count, sizeof *m->elements);
  m->shape = xcalloc((size_t)m->count, sizeof *m->shape);
  CheckpointTensor *wanted = xcalloc((size_t)m->count, sizeof *wanted);
  for (int i = 0; i < m->count; i++) {
    const Variable *v = &g->variable.data[i];
    assert_int_equal(v->kind, VARIABLE_PARAMETER);
    m->names[i] = xstrdup(v->name);
    m->elements[i] = shape_elements(&v->shape);
    m->values[i] = xcalloc((size_t)m->elements[i], sizeof(float));
    wanted[i] =
        (CheckpointTensor){.name = m->names[i], .dtype = DTYPE_F32, .rank = v->shape.rank, .data = m->values[i]};
    for (int d = 0; d < v->shape.rank; d++) wanted[i].global[d] = wanted[i].local[d] = v->shape.size[d];
    m->shape[i].rank = v->shape.rank;
    memcpy(m->shape[i].local, v->shape.size, sizeof *v->shape.size * (size_t)v->shape.rank);
  }
  graph_destroy(g);
  SUCCEED(huggingface_load(folder, c, wanted, m->count, &error));
  free(wanted);
}

static void memory_free(Memory *m) {
  for (int i = 0; i < m->count; i++) free(m->values[i]), free(m->names[i]);
  free(m->names);
  free(m->values);
  free(m->elements);
  free(m->shape);
}

static int memory_read(void *context, const char *name, const Box *part, float *out, Error *error) {
  Memory *m = context;
  if (m->fail && !strcmp(m->fail, name)) return error_set(error, PLAIT_FAILED, "reading %s failed", name);
  for (int i = 0; i < m->count; i++) {
    if (strcmp(m->names[i], name)) continue;
    int64_t row = m->elements[i] / m->shape[i].local[0]; // a tensor is a Variable, or an expert's rows of it
    for (int d = 1; d < part->rank; d++) assert_int_equal(part->local[d], m->shape[i].local[d]);
    memcpy(out, m->values[i] + part->offset[0] * row, sizeof(float) * (size_t)(part->local[0] * row));
    return PLAIT_OK;
  }
  fail_msg("no Variable %s", name);
  return -1;
}

// --- folders that differ a little from a golden one -----------------------------------------------------------------

typedef struct Folder {
  ModelConfig config;
  Safetensors file;
  Vec(SafetensorsEntry) entries;
  Vec(char *) owned;
} Folder;

static void folder_open(Folder *f, const char *name) {
  char *path = golden(name);
  *f = (Folder){0};
  SUCCEED(model_config_load(&f->config, path, &error));
  SUCCEED(safetensors_open_folder(&f->file, path, &error));
  for (int i = 0; i < f->file.count; i++) vec_push(&f->entries, f->file.entries[i]);
  free(path);
}

static char *folder_write(Folder *f, const char *scratch, const char *name) {
  char *path = xformat("%s/%s", scratch, name), *file = xformat("%s/model.safetensors", path),
       *json = xformat("%s/config.json", path);
  SUCCEED(folder_create(path, &error));
  SUCCEED(safetensors_write(file, f->entries.data, f->entries.count, NULL, &error));
  SUCCEED(model_config_save(&f->config, json, NULL, &error));
  free(file);
  free(json);
  return path;
}

static void folder_close(Folder *f) {
  for (int i = 0; i < f->owned.count; i++) free(f->owned.data[i]);
  vec_free(&f->owned);
  vec_free(&f->entries);
  safetensors_close(&f->file);
  model_config_free(&f->config);
}

static char *own(Folder *f, char *p) {
  vec_push(&f->owned, p);
  return p;
}

static SafetensorsEntry *entry(Folder *f, const char *name) {
  for (int i = 0; i < f->entries.count; i++)
    if (!strcmp(f->entries.data[i].name, name)) return &f->entries.data[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

static void convert(Folder *f, SafetensorsEntry *e, Dtype dtype) {
  int64_t n = safetensors_elements(e);
  char *data = own(f, xcalloc((size_t)n, dtype_size(dtype)));
  for (int64_t i = 0; i < n; i++) dtype_store(data, dtype, i, dtype_load(e->data, (Dtype)e->dtype, i));
  e->data = data;
  e->dtype = (int)dtype;
  e->bytes = (size_t)n * dtype_size(dtype);
}

static void assert_same_tensors(const char *a, const char *b, const char *prefix) {
  Safetensors x, y;
  SUCCEED(safetensors_open_folder(&x, a, &error));
  SUCCEED(safetensors_open_folder(&y, b, &error));
  int compared = 0;
  for (int i = 0; i < x.count; i++) {
    const SafetensorsEntry *e = &x.entries[i], *o = safetensors_find(&y, e->name);
    char *longer = xformat("%s%s", prefix, e->name);
    if (!o) o = safetensors_find(&y, longer);
    free(longer);
    if (strstr(e->name, ".attn.bias") || strstr(e->name, ".attention.bias") || strstr(e->name, "masked_bias")) {
      assert_null(o); // a buffer
      continue;
    }
    if (!o) fail_msg("%s is lost", e->name);
    assert_true(e->dtype == o->dtype && e->rank == o->rank && e->bytes == o->bytes);
    assert_memory_equal(e->dims, o->dims, sizeof *e->dims * (size_t)e->rank);
    assert_memory_equal(e->data, o->data, e->bytes);
    compared++;
  }
  assert_int_equal(compared, y.count);
  assert_string_equal(safetensors_metadata(&y, "format"), "pt");
  safetensors_close(&x);
  safetensors_close(&y);
}

// --- tests ----------------------------------------------------------------------------------------------------------

static void round_trip(const char *from, const char *to, const char *prefix, int dtype_kept) {
  ModelConfig c, again;
  Memory m;
  json_t *dtypes = NULL;
  SUCCEED(model_config_load(&c, from, &error));
  memory_load(&m, from, &c);
  if (dtype_kept) SUCCEED(huggingface_dtypes(from, &c, &dtypes, &error));
  HuggingfaceSave save = {.folder = to, .dtype = -1, .dtypes = dtypes, .read = memory_read, .context = &m};
  SUCCEED(huggingface_save(&save, &c, &error));
  assert_same_tensors(from, to, prefix);
  SUCCEED(model_config_load(&again, to, &error));
  assert_true(model_config_equal(&c, &again));
  int64_t total = 0;
  for (int i = 0; i < m.count; i++) total += m.elements[i];
  assert_int_equal(total, model_config_parameters(&c));
  model_config_free(&again);
  model_config_free(&c);
  memory_free(&m);
  json_decref(dtypes);
}

static void assert_same_file(const char *from, const char *to, const char *name) {
  char *a = xformat("%s/%s", from, name), *b = xformat("%s/%s", to, name), *x, *y;
  size_t x_size, y_size;
  SUCCEED(file_read(a, 1 << 20, &x, &x_size, &error));
  SUCCEED(file_read(b, 1 << 20, &y, &y_size, &error));
  if (x_size != y_size || memcmp(x, y, x_size)) fail_msg("%s is not %s", b, a);
  free(a), free(b), free(x), free(y);
}

static void test_round_trip(void **state) {
  for (int i = 0; i < CASES; i++) {
    char *from = golden(cases[i]), *to = xformat("%s/%s/", ((Scratch *)*state)->folder, cases[i]);
    round_trip(from, to, "", 0);
    char *one = xformat("%s/model.safetensors", from);
    if (file_exists(one)) assert_same_file(from, to, "model.safetensors"); // else it was in several files
    assert_same_file(from, to, "config.json");
    free(one);
    free(from);
    free(to);
  }
}

// Tensors of mixed dtypes, names without the prefix, buffers of old transformers.
static void test_round_trip_mixed(void **state) {
  static const Dtype dtypes[] = {DTYPE_BF16, DTYPE_BF16, DTYPE_F16, DTYPE_BF16, DTYPE_F32};
  const char *scratch = ((Scratch *)*state)->folder;
  for (int i = 0; i < CASES; i++) {
    int gpt2 = !strncmp(cases[i], "gpt2", 4), neo = !strncmp(cases[i], "gpt_neo", 7);
    const char *prefix = gpt2 || neo ? "transformer." : "model.";
    Folder f;
    folder_open(&f, cases[i]);
    for (int k = 0; k < f.entries.count; k++) {
      SafetensorsEntry *e = &f.entries.data[k];
      convert(&f, e, dtypes[k % 5]);
      if (!strncmp(e->name, prefix, strlen(prefix))) e->name += strlen(prefix);
    }
    if (gpt2 || neo) {
      static const float mask[4] = {1, 0, 1, 1};
      const char *bias = gpt2 ? "h.0.attn.bias" : "h.0.attn.attention.bias";
      const char *masked = gpt2 ? "h.1.attn.masked_bias" : "h.1.attn.attention.masked_bias";
      vec_push(&f.entries,
               (SafetensorsEntry){
                   .name = bias, .dtype = DTYPE_F32, .rank = 4, .dims = {1, 1, 2, 2}, .data = mask, .bytes = 16});
      vec_push(&f.entries, (SafetensorsEntry){.name = masked, .dtype = DTYPE_F32, .rank = 0, .data = mask, .bytes = 4});
    }
    char *name = xformat("mixed-%s", cases[i]), *from = folder_write(&f, scratch, name), *to = xformat("%s-out", from);
    round_trip(from, to, prefix, 1);
    free(name);
    free(from);
    free(to);
    folder_close(&f);
  }
}

static void expect_refusal(Folder *f, const char *scratch, const char *name, const char *says) {
  char *path = folder_write(f, scratch, name);
  Error refused = {0};
  int code = huggingface_load(path, &f->config, NULL, 0, &refused);
  if (code != PLAIT_BAD_INPUT || !strstr(refused.message, says) || !strstr(refused.message, path))
    fail_msg("%s: %d: %s (expected: %s)", name, code, refused.message, says);
  free(path);
  folder_close(f);
}

// --- the other layout of experts ------------------------------------------------------------------------------------

// All experts' tensors LAYER.experts.E.NAME one after the other, of each E first `a` and then `b` (NULL: only a), as
// TO, which has the experts in its first dim. 0 where the layer has none.
static int fuse(Folder *f, int layer, const char *of, const char *a, const char *b, const char *to) {
  char *data = NULL;
  size_t bytes = 0;
  SafetensorsEntry all = {.rank = 3, .name = own(f, xformat("model.layers.%d.mlp.experts.%s", layer, to))};
  for (int x = 0;; x++) {
    for (const char *part = a; part; part = part == a ? b : NULL) {
      char *name = xformat("model.layers.%d.%s.experts.%d.%s.weight", layer, of, x, part);
      int k = 0;
      while (k < f->entries.count && strcmp(f->entries.data[k].name, name)) k++;
      free(name);
      if (k == f->entries.count) break;
      SafetensorsEntry e = f->entries.data[k];
      f->entries.data[k] = f->entries.data[--f->entries.count];
      data = xrealloc(data, bytes + e.bytes);
      memcpy(data + bytes, e.data, e.bytes);
      bytes += e.bytes;
      all.dtype = e.dtype;
      all.dims[0] = x + 1;
      all.dims[1] = b ? 2 * e.dims[0] : e.dims[0];
      all.dims[2] = e.dims[1];
    }
    if (all.dims[0] <= x) break;
  }
  all.bytes = bytes;
  all.data = data;
  if (!data) return 0;
  own(f, data);
  vec_push(&f->entries, all);
  return 1;
}

// As transformers 5 computes with it, and saves with save_original_format=False.
static int fuse_experts(Folder *f, int mixtral) {
  int layers = 0;
  for (int layer = 0; layer < f->config.layers; layer++) {
    const char *of = mixtral ? "block_sparse_moe" : "mlp", *gate = mixtral ? "w1" : "gate_proj";
    int fused = fuse(f, layer, of, gate, mixtral ? "w3" : "up_proj", "gate_up_proj");
    layers += fused;
    assert_int_equal(fuse(f, layer, of, mixtral ? "w2" : "down_proj", NULL, "down_proj"), fused);
    char *router = xformat("model.layers.%d.%s.gate.weight", layer, of);
    if (fused && mixtral) entry(f, router)->name = own(f, xformat("model.layers.%d.mlp.gate.weight", layer));
    free(router);
  }
  return layers;
}

// The same Variables come from either layout; also where the names lack their prefix, and in several dtypes, which are
// those of an export, in the layout that transformers writes by default.
static void test_layouts_of_experts(void **state) {
  const char *scratch = ((Scratch *)*state)->folder;
  int tried = 0;
  for (int i = 0; i < CASES; i++) {
    Folder f;
    Memory a, b;
    folder_open(&f, cases[i]);
    if (f.config.experts) {
      int mixtral = !strncmp(cases[i], "mixtral", 7);
      char *from = golden(cases[i]), *name = xformat("fused-%s", cases[i]), *out = xformat("%s/%s-out", scratch, name);
      int layer = 0;
      while (!model_layer_has_experts(&f.config, layer)) layer++;
      char *router = xformat("model.layers.%d.%s.gate.weight", layer, mixtral ? "block_sparse_moe" : "mlp");
      for (int k = 0; k < f.entries.count; k++) convert(&f, &f.entries.data[k], DTYPE_BF16);
      convert(&f, entry(&f, router), DTYPE_F32);
      char *plain_name = xformat("plain-%s", cases[i]), *plain = folder_write(&f, scratch, plain_name);
      assert_true(fuse_experts(&f, mixtral) > 0);
      for (int k = 0; k < f.entries.count && mixtral; k++)
        if (!strncmp(f.entries.data[k].name, "model.", 6)) f.entries.data[k].name += 6;
      char *fused = folder_write(&f, scratch, name);
      memory_load(&a, plain, &f.config);
      memory_load(&b, fused, &f.config);
      for (int k = 0; k < a.count; k++)
        if (memcmp(a.values[k], b.values[k], sizeof(float) * (size_t)a.elements[k])) fail_msg("%s", a.names[k]);
      json_t *dtypes;
      SUCCEED(huggingface_dtypes(fused, &f.config, &dtypes, &error));
      assert_string_equal(json_string_value(json_object_get(dtypes, "*")), "BF16");
      assert_string_equal(json_string_value(json_object_get(dtypes, router)), "F32");
      assert_int_equal(json_object_size(dtypes), 2);
      HuggingfaceSave save = {.folder = out, .dtype = -1, .dtypes = dtypes, .read = memory_read, .context = &b};
      SUCCEED(huggingface_save(&save, &f.config, &error));
      assert_same_tensors(plain, out, "");
      json_decref(dtypes);
      memory_free(&a);
      memory_free(&b);
      free(router), free(from), free(name), free(out), free(plain_name), free(plain), free(fused);
      tried++;
    }
    folder_close(&f);
  }
  assert_int_equal(tried, 3);
}

// A folder that is of none of them is compared with the nearest.
static void test_unknown_layouts(void **state) {
  const char *scratch = ((Scratch *)*state)->folder;
  Folder f;
  folder_open(&f, "qwen3_moe-untied");
  fuse_experts(&f, 0);
  entry(&f, "model.layers.1.mlp.experts.down_proj")->name = "model.layers.1.mlp.experts.down_projection";
  expect_refusal(&f, scratch, "odd",
                 "qwen3_moe config.json: missing model.layers.1.mlp.experts.down_proj; surplus "
                 "model.layers.1.mlp.experts.down_projection");

  folder_open(&f, "llama-untied");
  for (int k = 0; k < f.entries.count; k++)
    f.entries.data[k].name = own(&f, xformat("_orig_mod.%s", f.entries.data[k].name));
  expect_refusal(&f, scratch, "wrapped", "; names here begin with \"_orig_mod.\": save the model again without");
}

// Boxes of every kind of view, in fp64, into memory with gaps: against the definition of the layout over there.
static void test_boxes(void **state) {
  Folder f;
  folder_open(&f, "gpt2-tied"); // embed 32, 4 heads of 8
  char *path = golden("gpt2-tied");
  const float *fused = entry(&f, "transformer.h.1.attn.c_attn.weight")->data,
              *bias = entry(&f, "transformer.h.1.attn.c_attn.bias")->data;
  const float *out = entry(&f, "transformer.h.1.attn.c_proj.weight")->data;
  double k[2][8][32], v_bias[8], o[5][16], gap[3][4];
  memset(gap, 0, sizeof gap);
  CheckpointTensor wanted[] = {
      {.name = "layer.1.attention.k.weight",
       .dtype = DTYPE_F64,
       .rank = 3,
       .global = {4, 8, 32},
       .offset = {1},
       .local = {2, 8, 32},
       .data = k},
      {.name = "layer.1.attention.v.bias",
       .dtype = DTYPE_F64,
       .rank = 2,
       .global = {4, 8},
       .offset = {3},
       .local = {1, 8},
       .data = v_bias},
      {.name = "layer.1.attention.output.weight",
       .dtype = DTYPE_F64,
       .rank = 4,
       .global = {32, 4, 1, 8},
       .offset = {7, 2},
       .local = {5, 2, 1, 8},
       .data = o},
      {.name = "layer.1.attention.q.weight",
       .dtype = DTYPE_F64,
       .rank = 4,
       .global = {4, 1, 8, 32},
       .offset = {3, 0, 5, 6},
       .local = {1, 1, 3, 2},
       .stride = {99, 99, 4, 1},
       .data = gap},
      {.name = "wpe", .dtype = DTYPE_F64, .rank = 2, .global = {32, 32}, .local = {0, 32}},
  };
  SUCCEED(huggingface_load(path, &f.config, wanted, 5, &error));
  for (int h = 0; h < 2; h++)
    for (int d = 0; d < 8; d++)
      for (int e = 0; e < 32; e++) assert_true(k[h][d][e] == fused[e * 96 + 32 + (1 + h) * 8 + d]);
  for (int d = 0; d < 8; d++) assert_true(v_bias[d] == bias[64 + 24 + d]);
  for (int e = 0; e < 5; e++)
    for (int d = 0; d < 16; d++) assert_true(o[e][d] == out[(16 + d) * 32 + 7 + e]);
  for (int d = 0; d < 3; d++)
    for (int e = 0; e < 4; e++) assert_true(gap[d][e] == (e < 2 ? fused[(6 + e) * 96 + 24 + 5 + d] : 0));
  wanted[0].global[0] = 5; // our own mistakes are errors too, not crashes
  Error refused = {0};
  assert_int_equal(huggingface_load(path, &f.config, wanted, 1, &refused), PLAIT_FAILED);
  wanted[1].name = "layer.7.attention.v.bias";
  refused = (Error){0};
  assert_int_equal(huggingface_load(path, &f.config, wanted + 1, 1, &refused), PLAIT_FAILED);
  free(path);
  folder_close(&f);
}

static void test_refusals(void **state) {
  const char *scratch = ((Scratch *)*state)->folder;
  Folder f;
  folder_open(&f, "gpt2-tied");
  *entry(&f, "transformer.ln_f.bias") = f.entries.data[--f.entries.count];
  expect_refusal(&f, scratch, "missing", "missing transformer.ln_f.bias");

  folder_open(&f, "llama-tied");
  f.entries.count = 0;
  expect_refusal(&f, scratch, "empty", "missing model.embed_tokens.weight, model.layers.0.input_layernorm.weight, ");

  folder_open(&f, "llama-untied");
  SafetensorsEntry extra = *entry(&f, "lm_head.weight");
  extra.name = "model.layers.0.self_attn.q_norm.weight";
  vec_push(&f.entries, extra);
  expect_refusal(&f, scratch, "surplus", "surplus model.layers.0.self_attn.q_norm.weight");

  folder_open(&f, "gpt2-untied");
  extra = *entry(&f, "transformer.wte.weight"); // the same tensor under both of its names
  extra.name = "wte.weight";
  vec_push(&f.entries, extra);
  expect_refusal(&f, scratch, "twice", "surplus wte.weight");

  folder_open(&f, "gpt2-untied");
  SafetensorsEntry *e = entry(&f, "transformer.h.0.mlp.c_fc.weight");
  e->dims[0] = 40;
  e->dims[1] = 24;
  expect_refusal(&f, scratch, "shape", "transformer.h.0.mlp.c_fc.weight has shape [40, 24]; allowed: [24, 40]");

  folder_open(&f, "llama-tied");
  e = entry(&f, "model.norm.weight");
  e->rank = 2;
  e->dims[1] = 1;
  expect_refusal(&f, scratch, "rank", "model.norm.weight has shape [32, 1]; allowed: [32]");

  folder_open(&f, "llama-tied");
  entry(&f, "model.norm.weight")->dtype = DTYPE_I32;
  expect_refusal(&f, scratch, "dtype", "model.norm.weight has dtype I32; allowed: F32, BF16, F16, F64");

  folder_open(&f, "llama-tied");
  extra = *entry(&f, "model.embed_tokens.weight");
  extra.name = "lm_head.weight";
  vec_push(&f.entries, extra);
  char *same = folder_write(&f, scratch, "tied-head-same"); // harmless
  SUCCEED(huggingface_load(same, &f.config, NULL, 0, &error));
  free(same);
  extra = *entry(&f, "model.embed_tokens.weight"); // the one tensor may be under either name
  *entry(&f, "model.embed_tokens.weight") = f.entries.data[--f.entries.count];
  same = folder_write(&f, scratch, "tied-head-alone");
  Memory m;
  memory_load(&m, same, &f.config);
  assert_string_equal(m.names[0], "wte");
  assert_memory_equal(m.values[0], extra.data, extra.bytes);
  memory_free(&m);
  free(same);
  vec_push(&f.entries, extra);
  char *data = own(&f, xcalloc(extra.bytes, 1));
  entry(&f, "lm_head.weight")->data = data;
  expect_refusal(&f, scratch, "tied-head",
                 "lm_head.weight differs from the embedding although config.json says tie_word_embeddings");

  folder_open(&f, "llama-tied");
  f.config.layers = 3; // the config of another model
  char *path = folder_write(&f, scratch, "layers");
  Error refused = {0};
  assert_int_equal(huggingface_load(path, &f.config, NULL, 0, &refused), PLAIT_BAD_INPUT);
  assert_non_null(strstr(refused.message, "missing model.layers.2.input_layernorm.weight"));
  assert_non_null(strstr(refused.message, " and 5 more"));
  char *file = xformat("%s/model.safetensors", path);
  assert_int_equal(truncate(file, 5000), 0);
  f.config.layers = 2;
  refused = (Error){0};
  assert_int_equal(huggingface_load(path, &f.config, NULL, 0, &refused), PLAIT_BAD_INPUT);
  assert_int_equal(unlink(file), 0);
  refused = (Error){0};
  assert_int_equal(huggingface_load(path, &f.config, NULL, 0, &refused), PLAIT_BAD_INPUT);
  free(file);
  free(path);
  folder_close(&f);
}

static int entries_in(const char *folder) {
  int n = -2; // . and ..
  DIR *d = opendir(folder);
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

static void test_save(void **state) {
  const char *scratch = ((Scratch *)*state)->folder;
  char *from = golden("gpt2-untied"), *parent = xformat("%s/exports", scratch), *to = xformat("%s/a", parent);
  char *tokenizer = xformat("%s/tok.json", scratch), *copy = xformat("%s/tokenizer.json", to),
       *file = xformat("%s/model.safetensors", to);
  FILE *t = fopen(tokenizer, "w");
  fputs("{\"some\": \"tokenizer\"}\n", t);
  fclose(t);
  ModelConfig c;
  Memory m;
  SUCCEED(model_config_load(&c, from, &error));
  memory_load(&m, from, &c);
  HuggingfaceSave save = {
      .folder = to, .tokenizer = tokenizer, .dtype = DTYPE_BF16, .read = memory_read, .context = &m};

  m.fail = "layer.1.ffn.down.bias"; // a failure in the middle leaves no file
  Error refused = {0};
  assert_int_equal(huggingface_save(&save, &c, &refused), PLAIT_FAILED);
  assert_int_equal(entries_in(parent), 0);
  m.fail = NULL;
  save.tokenizer = "/nonexistent/tokenizer.json";
  refused = (Error){0};
  assert_int_equal(huggingface_save(&save, &c, &refused), PLAIT_BAD_INPUT);
  assert_int_equal(entries_in(parent), 0);
  save.tokenizer = tokenizer;

  SUCCEED(folder_create(to, &error)); // empty is allowed
  SUCCEED(huggingface_save(&save, &c, &error));
  assert_int_equal(entries_in(parent), 1);
  assert_int_equal(entries_in(to), 3);
  SUCCEED(huggingface_verify(&save, to, &c, &error));
  refused = (Error){0};
  assert_int_equal(huggingface_save(&save, &c, &refused), PLAIT_BAD_INPUT); // not empty any more
  assert_non_null(strstr(refused.message, "exists already"));

  m.values[3][2] += 1; // verify sees one element, one byte of the tokenizer, one key
  refused = (Error){0};
  assert_int_equal(huggingface_verify(&save, to, &c, &refused), PLAIT_FAILED);
  m.values[3][2] -= 1;
  memory_free(&m);
  memory_load(&m, from, &c);
  c.norm_epsilon *= 2;
  refused = (Error){0};
  assert_int_equal(huggingface_verify(&save, to, &c, &refused), PLAIT_FAILED);
  c.norm_epsilon /= 2;
  SUCCEED(huggingface_verify(&save, to, &c, &error));
  t = fopen(copy, "r+");
  fputs("[", t);
  fclose(t);
  refused = (Error){0};
  assert_int_equal(huggingface_verify(&save, to, &c, &refused), PLAIT_FAILED);
  assert_non_null(strstr(refused.message, "tokenizer.json"));

  ModelConfig again;
  SUCCEED(model_config_load(&again, to, &error));
  assert_string_equal(json_string_value(json_object_get(again.json, "torch_dtype")), "bfloat16");
  model_config_free(&again);
  Safetensors x;
  SUCCEED(safetensors_open(&x, file, &error));
  for (int i = 0; i < x.count; i++) assert_int_equal(x.entries[i].dtype, DTYPE_BF16);
  safetensors_close(&x);
  memory_free(&m);
  model_config_free(&c);
  free(from);
  free(parent);
  free(to);
  free(tokenizer);
  free(copy);
  free(file);
}

// A model in several files: each within the limit, an index, and the same tensors when it is opened again.
static void test_shards(void **state) {
  for (int i = 0; i < CASES; i++) {
    char *from = golden(cases[i]), *to = xformat("%s/sharded-%s", ((Scratch *)*state)->folder, cases[i]);
    char *index = xformat("%s/model.safetensors.index.json", to), *single = xformat("%s/model.safetensors", to);
    ModelConfig c;
    Memory m, again;
    SUCCEED(model_config_load(&c, from, &error));
    memory_load(&m, from, &c);
    HuggingfaceSave save = {.folder = to, .dtype = -1, .shard_bytes = 7000, .read = memory_read, .context = &m};
    SUCCEED(huggingface_save(&save, &c, &error));
    assert_true(file_exists(index) && !file_exists(single));
    Safetensors file;
    SUCCEED(safetensors_open_folder(&file, to, &error));
    assert_true(file.file_count > 2);
    int64_t bytes[100] = {0}, tensors[100] = {0};
    for (int k = 0; k < file.count; k++)
      for (int f = 0; f < file.file_count; f++)
        if (file.entries[k].path == file.files[f].path || !strcmp(file.entries[k].path, file.files[f].path))
          bytes[f] += (int64_t)file.entries[k].bytes, tensors[f]++;
    for (int f = 0; f < file.file_count; f++) assert_true(tensors[f] && (bytes[f] <= 7000 || tensors[f] == 1));
    safetensors_close(&file);
    assert_same_tensors(from, to, "");
    memory_load(&again, to, &c);
    for (int k = 0; k < m.count; k++)
      assert_memory_equal(m.values[k], again.values[k], sizeof(float) * (size_t)m.elements[k]);
    memory_free(&again);
    save.shard_bytes = 1 << 30; // one file again, in place of the others
    save.replace = true;
    SUCCEED(huggingface_save(&save, &c, &error));
    assert_true(!file_exists(index) && file_exists(single));
    memory_free(&m);
    model_config_free(&c);
    free(single), free(index), free(from), free(to);
  }
}

// A number that the dtype cannot hold is refused by the tensor's name in the folder, and no file is left.
static void test_overflow(void **state) {
  char *from = golden("llama-tied"), *to = xformat("%s/overflow", ((Scratch *)*state)->folder);
  ModelConfig c;
  Memory m;
  SUCCEED(model_config_load(&c, from, &error));
  memory_load(&m, from, &c);
  int v = 0;
  while (strcmp(m.names[v], "layer.1.attention.k.weight")) v++;
  HuggingfaceSave save = {.folder = to, .dtype = DTYPE_F16, .read = memory_read, .context = &m};
  m.values[v][3] = -65519; // rounds to the largest
  SUCCEED(huggingface_save(&save, &c, &error));
  m.values[v][3] = -65520;
  save.replace = true;
  Error refused = {0};
  assert_int_equal(huggingface_save(&save, &c, &refused), PLAIT_BAD_INPUT);
  assert_non_null(
      strstr(refused.message, "model.layers.1.self_attn.k_proj.weight holds -65520, which is too large for fp16"));
  assert_non_null(strstr(refused.message, "--dtype bf16 or fp32"));
  Safetensors file;
  SUCCEED(safetensors_open_folder(&file, to, &error)); // what was there stays
  safetensors_close(&file);
  save.dtype = DTYPE_BF16;
  SUCCEED(huggingface_save(&save, &c, &error));
  m.values[v][3] = 3.4e38f;
  refused = (Error){0};
  assert_int_equal(huggingface_save(&save, &c, &refused), PLAIT_BAD_INPUT);
  assert_non_null(strstr(refused.message, "too large for bf16"));
  memory_free(&m);
  model_config_free(&c);
  free(from), free(to);
}

// Only a folder that holds a model is replaced.
static void test_replace(void **state) {
  const char *scratch = ((Scratch *)*state)->folder;
  char *from = golden("gpt2-tied"), *to = xformat("%s/precious", scratch), *file = xformat("%s/letter.txt", to);
  ModelConfig c;
  Memory m;
  SUCCEED(model_config_load(&c, from, &error));
  memory_load(&m, from, &c);
  SUCCEED(folder_create(to, &error));
  FILE *f = fopen(file, "w");
  fclose(f);
  HuggingfaceSave save = {.folder = to, .dtype = -1, .read = memory_read, .context = &m, .replace = true};
  Error refused = {0};
  assert_int_equal(huggingface_save(&save, &c, &refused), PLAIT_BAD_INPUT);
  assert_non_null(strstr(refused.message, "has no config.json"));
  assert_true(file_exists(file));
  memory_free(&m);
  model_config_free(&c);
  free(from), free(to), free(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
      cmocka_unit_test_setup_teardown(test_round_trip_mixed, setup, teardown),
      cmocka_unit_test_setup_teardown(test_layouts_of_experts, setup, teardown),
      cmocka_unit_test_setup_teardown(test_unknown_layouts, setup, teardown),
      cmocka_unit_test_setup_teardown(test_boxes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
      cmocka_unit_test_setup_teardown(test_save, setup, teardown),
      cmocka_unit_test_setup_teardown(test_shards, setup, teardown),
      cmocka_unit_test_setup_teardown(test_overflow, setup, teardown),
      cmocka_unit_test_setup_teardown(test_replace, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
