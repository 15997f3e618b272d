// Opens a Hugging Face folder and checks it against its config.json.
#include "checkpoint/huggingface_folder.h"
#include "base/fault.h"
#include "tokenizer/folder_check.h"
#include "model/family.h"
#include <stdlib.h>
#include <string.h>

void huggingface_views_of(HuggingfaceViews *views, const ModelConfig *config, int layout) {
  Error error = {0};
  int code = huggingface_views_create(views, config->family->layouts[layout], model_graph(config, 1), &error);
  CHECK(!code, "%s: %s", model_family_name(config->family), error.message);
}

// Files hold names with the prefix or, of the bare model, without.
static const SafetensorsEntry *find(const HuggingfaceFolder *f, const char *name) {
  const SafetensorsEntry *entry = safetensors_find(&f->file, name);
  const char *prefix = f->config->family->prefix;
  if (!entry && !strncmp(name, prefix, strlen(prefix))) entry = safetensors_find(&f->file, name + strlen(prefix));
  return entry;
}

// The only piece of the Variable wte.
static bool is_embedding(const HuggingfaceFolder *f, const HuggingfaceTensor *t) {
  const HuggingfaceViews *v = &f->views;
  return t->pieces == 1 && !strcmp(v->graph->variable.data[v->piece.data[t->piece].variable].name, "wte");
}

// Of a tied model the one tensor may be under the head's name, as writers that know no transformers leave it.
const SafetensorsEntry *huggingface_folder_find(const HuggingfaceFolder *f, const HuggingfaceTensor *tensor) {
  const SafetensorsEntry *entry = find(f, tensor->name);
  bool tied = f->config->tied && f->views.head && is_embedding(f, tensor);
  return entry || !tied ? entry : find(f, f->views.head);
}

static int count_lacking(const HuggingfaceFolder *f) {
  int lacking = 0;
  for (int i = 0; i < f->views.tensor.count; i++) lacking += !huggingface_folder_find(f, &f->views.tensor.data[i]);
  return lacking;
}

// The views of the layout of which the folder lacks the smallest part: of none where it is one that the family knows.
static void choose_layout(HuggingfaceFolder *f) {
  huggingface_views_of(&f->views, f->config, 0);
  int lacking = count_lacking(f);
  for (int layout = 1; FAULT(one_layout_a_family, lacking, 0) && f->config->family->layouts[layout]; layout++) {
    HuggingfaceViews before = f->views;
    int before_lacks = lacking, tensors = before.tensor.count;
    huggingface_views_of(&f->views, f->config, layout);
    lacking = count_lacking(f);
    bool better = (int64_t)lacking * tensors < (int64_t)before_lacks * f->views.tensor.count;
    huggingface_views_free(better ? &before : &f->views);
    if (!better) f->views = before, lacking = before_lacks;
  }
}

static int is_buffer(const HuggingfaceFolder *f, const char *name) {
  for (const char *const *end = f->config->family->buffers; *end; end++)
    if (strlen(name) >= strlen(*end) && !strcmp(name + strlen(name) - strlen(*end), *end)) return 1;
  return 0;
}

// A list of names for a message: the first few, and how many more.
typedef struct Names {
  char text[400];
  int count;
} Names;
static void add_name(Names *names, const char *name) {
  size_t used = strlen(names->text);
  if (names->count++ < 4) snprintf(names->text + used, sizeof names->text - used, "%s%.90s", used ? ", " : "", name);
}
static const char *more(const Names *names, char text[32]) {
  text[0] = 0;
  if (names->count > 4) snprintf(text, 32, " and %d more", names->count - 4);
  return text;
}

static int check_tensor(const HuggingfaceFolder *f, const HuggingfaceTensor *t, const SafetensorsEntry *e,
                        Error *error) {
  char found[200], expected[200];
  if (e->dtype < 0 || !dtype_is_float((Dtype)e->dtype))
    return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s has dtype %.20s; allowed: F32, BF16, F16, F64", f->path,
                     e->name, e->dtype_name ? e->dtype_name : dtype_file_name((Dtype)e->dtype));
  if (e->rank == t->rank && dims_equal(t->rank, e->dims, t->dims)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s: tensor %.100s has shape %s; allowed: %s, by config.json", f->path,
                   e->name, dims_text(e->rank, e->dims, found), dims_text(t->rank, t->dims, expected));
}

// The tensor that is the token embedding.
static const SafetensorsEntry *find_embedding(const HuggingfaceFolder *f) {
  for (int i = 0; i < f->views.tensor.count; i++)
    if (is_embedding(f, &f->views.tensor.data[i])) return huggingface_folder_find(f, &f->views.tensor.data[i]);
  return NULL;
}

// A tied head that is in the file all the same is not surplus where it equals the embedding.
static int check_tied_head(const HuggingfaceFolder *f, const SafetensorsEntry *head, Error *error) {
  const SafetensorsEntry *wte = find_embedding(f);
  if (!wte) return PLAIT_OK;
  if (wte->dtype == head->dtype && wte->bytes == head->bytes && !memcmp(wte->data, head->data, head->bytes))
    return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s: %s differs from the embedding although config.json says tie_word_embeddings: "
                   "true; allowed: equal tensors, or tie_word_embeddings: false",
                   f->path, head->name);
}

// The prefix that names in the folder have and expected names lack, as in "module.lm_head.weight"; "" where nothing.
static void find_strange_prefix(const HuggingfaceFolder *f, char prefix[80]) {
  *prefix = 0;
  for (int i = 0; i < f->views.tensor.count; i++) {
    const char *name = f->views.tensor.data[i].name;
    for (int k = 0; k < f->file.count && !huggingface_folder_find(f, &f->views.tensor.data[i]); k++) {
      const char *found = f->file.entries[k].name;
      size_t more = strlen(found) > strlen(name) ? strlen(found) - strlen(name) : 0;
      if (!more || more >= 80 || found[more - 1] != '.' || strcmp(found + more, name)) continue;
      snprintf(prefix, 80, "%.*s", (int)more, found);
      return;
    }
    if (i == 16) return; // enough names to tell
  }
}

static int refuse_names(const HuggingfaceFolder *f, const Names *lacking, const Names *surplus, Error *error) {
  char more_lacking[32], more_surplus[32], prefix[80], hint[200] = "";
  find_strange_prefix(f, prefix);
  if (*prefix)
    snprintf(hint, sizeof hint,
             "; names here begin with \"%s\": save the model again without the wrapper that added it", prefix);
  return error_set(error, PLAIT_BAD_INPUT, "%s: the tensors are not those of its %s config.json: %s%s%s%s%s%s%s%s",
                   f->path, model_family_name(f->config->family), lacking->count ? "missing " : "", lacking->text,
                   more(lacking, more_lacking), lacking->count && surplus->count ? "; " : "",
                   surplus->count ? "surplus " : "", surplus->text, more(surplus, more_surplus), hint);
}

static int check_all(const HuggingfaceFolder *f, Error *error) {
  const HuggingfaceViews *v = &f->views;
  Names lacking = {0}, surplus = {0};
  char *used = xcalloc((size_t)f->file.count, 1);
  int code = PLAIT_OK;
  for (int i = 0; i < v->tensor.count && !code; i++) {
    const SafetensorsEntry *e = huggingface_folder_find(f, &v->tensor.data[i]);
    if (!e) {
      add_name(&lacking, v->tensor.data[i].name);
      continue;
    }
    used[e - f->file.entries] = 1;
    code = check_tensor(f, &v->tensor.data[i], e, error);
  }
  for (int i = 0; i < f->file.count && !code; i++) {
    const SafetensorsEntry *e = &f->file.entries[i];
    if (used[i] || is_buffer(f, e->name)) continue;
    if (f->config->tied && v->head && !strcmp(e->name, v->head)) code = check_tied_head(f, e, error);
    else add_name(&surplus, e->name);
  }
  free(used);
  return code || (!lacking.count && !surplus.count) ? code : refuse_names(f, &lacking, &surplus, error);
}

int huggingface_folder_open(HuggingfaceFolder *f, const char *path, const ModelConfig *config, Error *error) {
  *f = (HuggingfaceFolder){.path = path, .config = config};
  int code = folder_check_model(path, false, error);
  if (!code) code = safetensors_open_folder(&f->file, path, error);
  if (!code) choose_layout(f);
  if (!code) code = check_all(f, error);
  if (code) huggingface_folder_close(f);
  return code;
}

void huggingface_folder_close(HuggingfaceFolder *f) {
  huggingface_views_free(&f->views);
  safetensors_close(&f->file);
}
