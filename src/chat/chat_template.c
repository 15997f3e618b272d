// Where the template of a model lies, and which special tokens it may name.
#include "base/file.h"
#include "base/json_read.h"
#include "chat/chat_parts.h"
#include <string.h>

enum { MOST_BYTES = 4 << 20 };

static int parse_file(const json_t *files, const char *name, const char *model, json_t **tree, Error *error) {
  const json_t *file = json_object_get(files, name), *broken = json_object_get(file, "broken");
  *tree = NULL;
  if (broken) return error_set(error, PLAIT_BAD_INPUT, "%s", json_string_value(broken));
  if (!json_is_string(file)) return PLAIT_OK;
  char *path = xformat("%s/%s", model, name);
  int code = json_read(json_string_value(file), json_string_length(file), path, tree, error);
  free(path);
  return code;
}

static void take(char **text, size_t *bytes, const json_t *string) {
  if (!json_is_string(string)) return;
  free(*text);
  *bytes = json_string_length(string);
  *text = xcalloc(*bytes + 1, 1);
  memcpy(*text, json_string_value(string), *bytes);
}

// "chat_template" of tokenizer_config.json: a text, or a list of {"name", "template"}. wanted: the name of one that the
// user has chosen, or NULL.
static int take_template(ChatSource *s, const json_t *value, const char *path, const char *wanted, Error *error) {
  size_t i;
  json_t *item;
  if (json_is_string(value)) take(&s->text, &s->bytes, value);
  json_array_foreach(value, i, item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    const json_t *text = json_object_get(item, "template");
    if (!name || !json_is_string(text))
      return error_set(error, PLAIT_BAD_INPUT, "%s: chat_template[%zu] has no name, or no template", path, i);
    if (wanted && !strcmp(name, wanted)) take(&s->named_text, &s->named_bytes, text);
    if (!strcmp(name, "tool_use")) take(&s->tools_text, &s->tools_bytes, text);
    else if (!strcmp(name, "default") || !s->text) take(&s->text, &s->bytes, text);
  }
  if (value && !json_is_null(value) && !json_is_string(value) && !json_is_array(value))
    return error_set(error, PLAIT_BAD_INPUT, "%s: chat_template is neither a text nor a list", path);
  return PLAIT_OK;
}

// Texts under keys that end in _token: a text, or {"content": a text}.
static void take_specials(ChatSource *s, const json_t *config) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)config, key, value) {
    size_t n = strlen(key);
    const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    if (n > 6 && !strcmp(key + n - 6, "_token") && json_is_string(text) && !json_object_get(s->specials, key))
      json_object_set(s->specials, key, (json_t *)(uintptr_t)text);
  }
}

static int find_in(ChatSource *s, const json_t *files, const char *model, const char *wanted, Error *error) {
  const json_t *file = json_object_get(files, "chat_template.jinja");
  json_t *config = NULL, *map = NULL, *processor = NULL;
  int code = parse_file(files, "tokenizer_config.json", model, &config, error);
  if (!code) code = parse_file(files, "special_tokens_map.json", model, &map, error);
  if (!code) code = parse_file(files, "chat_template.json", model, &processor, error);
  take_specials(s, config);
  take_specials(s, map);
  const json_t *broken = json_object_get(file, "broken");
  if (!code && broken) code = error_set(error, PLAIT_BAD_INPUT, "%s", json_string_value(broken));
  const json_t *in_config = json_object_get(config, "chat_template");
  const json_t *in_processor = json_object_get(processor, "chat_template");
  if (!code && !json_is_string(file)) {
    s->name = xformat("%s/%s", model, in_config ? "tokenizer_config.json" : "chat_template.json");
    code = take_template(s, in_config ? in_config : in_processor, s->name, wanted, error);
  } else if (!code) { // a model that has the file alone, or both: the file is the newer form
    s->name = xformat("%s/chat_template.jinja", model);
    take(&s->text, &s->bytes, file);
  }
  json_decref(config);
  json_decref(map);
  json_decref(processor);
  return code;
}

int chat_source_find(ChatSource *s, const json_t *files, const char *name, const char *template_path, Error *error) {
  *s = (ChatSource){.specials = json_object()};
  int code = find_in(s, files, name, template_path, error);
  if (code || !template_path) return code;
  free(s->text), free(s->tools_text);
  s->text = s->named_text;
  s->bytes = s->named_bytes;
  s->tools_text = s->named_text = NULL;
  if (s->text) return PLAIT_OK;
  free(s->name);
  s->name = xstrdup(template_path);
  return file_read(template_path, MOST_BYTES, &s->text, &s->bytes, error);
}

void chat_source_free(ChatSource *s) {
  free(s->text), free(s->tools_text), free(s->named_text), free(s->name);
  json_decref(s->specials);
  *s = (ChatSource){0};
}
