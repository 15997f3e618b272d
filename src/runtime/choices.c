// See choices.h. A table of choices is {kind: {key: value}}, in the file and between ranks.
#include "runtime/choices.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json_read.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20 };

typedef struct Settling {
  DeviceQueue *queue;
  const DeviceImplementation *device;
  PlaitComm *world;
  const char *path;
  int resumes;
  char *memory;
  int64_t bytes;
  DeviceChoices own; // what this rank's calls leave open
  json_t *known;     // the table, as the file had it and with what was chosen since
} Settling;

static void free_choices(DeviceChoices *c) {
  for (int i = 0; i < c->list.count; i++) {
    free(c->list.data[i].key);
    free(c->list.data[i].value);
  }
  vec_free(&c->list);
  free(c->kind);
}

// Every rank's JSON, in a list in their order. NULL: the world has failed.
static json_t *exchange(PlaitComm *world, const json_t *mine, Error *error) {
  const int n = plait_comm_size(world);
  char *text = json_dumps(mine, JSON_ENCODE_ANY | JSON_COMPACT);
  int64_t bytes = (int64_t)strlen(text), *counts = xcalloc((size_t)n, sizeof *counts);
  size_t *sizes = xcalloc((size_t)n, sizeof *sizes), all = 0;
  json_t *list = NULL;
  int failed = plait_all_gather(world, &(PlaitBuffer){&bytes, counts, 1}, 1, PLAIT_INT64, NULL, NULL);
  for (int i = 0; i < n && !failed; i++) all += sizes[i] = (size_t)counts[i];
  char *texts = xcalloc(all + 1, 1), *at = texts;
  if (!failed) failed = plait_all_gather_v(world, text, (size_t)bytes, texts, sizes, NULL, PLAIT_UINT8, NULL, NULL);
  if (failed) plait_comm_failure(world, error);
  else list = json_array();
  for (int i = 0; i < n && !failed; at += sizes[i++])
    json_array_append_new(list, json_loadb(at, sizes[i], JSON_DECODE_ANY, NULL));
  free(texts);
  free(sizes);
  free(counts);
  free(text);
  return list;
}

// Adds what `from` has to a table; with `values` only keys that were chosen.
static void merge(json_t *table, const json_t *from, int values) {
  const char *kind, *key;
  json_t *keys, *value;
  json_object_foreach((json_t *)from, kind, keys) {
    if (!json_object_get(table, kind)) json_object_set_new(table, kind, json_object());
    json_object_foreach(keys, key, value)
      if (json_is_string(value) && (!values || *json_string_value(value)))
        json_object_set(json_object_get(table, kind), key, value);
  }
}

// The run's choices so far; an empty table where there is nothing.
static json_t *read_table(const char *path) {
  json_t *tree = NULL, *table = json_object(), *keys;
  const char *kind;
  Error error = {0};
  int found = json_read_file(path, MOST_BYTES, &tree, &error);
  int good = found <= 0 || json_is_object(tree);
  json_object_foreach(tree, kind, keys) good &= json_is_object(keys);
  if (found < 0 || !good)
    fprintf(stderr, "note: %s%s; the file will be written anew\n", found < 0 ? "" : path,
            found < 0 ? error.message : " is not a table of choices");
  else if (found) merge(table, tree, 1);
  json_decref(tree);
  return table;
}

static int write_table(const char *path, const json_t *table, Error *error) {
  AtomicFile file;
  int code = file_begin(&file, path, error);
  if (code) return code;
  int failed = json_dumpf(table, file.stream, JSON_INDENT(1)) || fputc('\n', file.stream) == EOF;
  if (failed) code = file_write_failed(path, 0, 0, error);
  else code = file_commit(&file, error);
  if (code) file_abandon(&file);
  return code;
}

// This rank's keys, without values.
static json_t *own_table(const Settling *s) {
  json_t *table = json_object(), *keys = json_object();
  for (int i = 0; i < s->own.list.count; i++) json_object_set_new(keys, s->own.list.data[i].key, json_string(""));
  if (s->own.kind) json_object_set(table, s->own.kind, keys);
  json_decref(keys);
  return table;
}

// Whether this rank is the first of its kind, which chooses.
static int chooses(const Settling *s, const json_t *messages) {
  size_t i = 0;
  if (!s->own.kind) return 0;
  while (!json_object_get(json_object_get(json_array_get(messages, i), "open"), s->own.kind)) i++;
  return (int)i == plait_comm_rank(s->world);
}

// By time: what all ranks of the kind need and nobody has chosen.
static json_t *choose(const Settling *s, const json_t *open) {
  json_t *made = json_object(), *value, *before = json_object_get(s->known, s->own.kind);
  const char *key;
  if ((json_object_size(s->known) || s->resumes) && !before && json_object_size(open))
    fprintf(stderr, "note: %s has no choices for %s: they are made anew, and bits may differ\n", s->path,
            s->own.kind);
  json_object_foreach((json_t *)open, key, value) {
    if (json_object_get(before, key)) continue;
    char *chosen = s->device->choose(s->queue, key, s->memory, s->bytes);
    json_object_set_new(made, key, json_string(chosen));
    free(chosen);
  }
  return json_pack("{s:o}", s->own.kind, made);
}

static void take(const Settling *s) {
  const json_t *values = s->own.kind ? json_object_get(s->known, s->own.kind) : NULL;
  for (int i = 0; i < s->own.list.count; i++) {
    const char *key = s->own.list.data[i].key, *value = json_string_value(json_object_get(values, key));
    if (value) s->device->take(s->queue, key, value, s->memory, s->bytes);
  }
}

// Both exchanges are made by all ranks: while some choose the others wait.
static int settle(Settling *s, Error *error) {
  json_t *open = json_object(), *made, *message, *list;
  size_t i;
  json_t *mine = json_pack("{s:o, s:O}", "open", own_table(s), "known", s->known);
  json_t *messages = exchange(s->world, mine, error);
  json_decref(mine);
  if (!messages) return json_decref(open), error->code;
  json_array_foreach(messages, i, message) {
    merge(open, json_object_get(message, "open"), 0);
    if (!i) json_object_update(s->known, json_object_get(message, "known"));
  }
  made = FAULT(every_rank_chooses, chooses(s, messages), s->own.kind != NULL)
             ? choose(s, json_object_get(open, s->own.kind))
             : json_object();
  list = exchange(s->world, made, error);
  if (FAULT(every_rank_chooses, 0, 1)) merge(s->known, made, 1);
  else json_array_foreach(list, i, message) merge(s->known, message, 1);
  json_decref(made);
  json_decref(messages);
  json_decref(open);
  if (!list) return error->code;
  json_decref(list);
  take(s);
  return device_drain(s->queue, error);
}

int choices_settle(DeviceQueue *queue, PlaitComm *world, const char *path, int resumes, char *memory, int64_t bytes,
                   Error *error) {
  Settling s = {.queue = queue, .device = queue->device->implementation, .world = world, .path = path,
                .resumes = resumes, .memory = memory, .bytes = bytes};
  if (!s.device->choices) return PLAIT_OK;
  int first = !plait_comm_rank(world);
  s.device->choices(queue, &s.own);
  s.known = first ? read_table(path) : json_object();
  json_t *before = json_deep_copy(s.known);
  int code = settle(&s, error);
  if (!code && first && !json_equal(before, s.known)) code = write_table(path, s.known, error);
  json_decref(before);
  json_decref(s.known);
  free_choices(&s.own);
  return code;
}
