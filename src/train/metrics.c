// Writing, cutting and reading of metrics.jsonl.
#include "train/metrics.h"
#include "base/file.h"
#include "base/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_LINE = 64 << 10 }; // longer ones are not ours

int metrics_open(Metrics *metrics, const char *path, Error *error) {
  memset(metrics, 0, sizeof *metrics);
  metrics->fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND);
  if (metrics->fd < 0) {
    int code = file_write_failed(path, errno, 0, error);
    metrics->fd = 0;
    return code;
  }
  metrics->path = xstrdup(path);
  return PLAIT_OK;
}

void metrics_close(Metrics *metrics) {
  if (!metrics->path) return;
  close(metrics->fd);
  free(metrics->path);
  memset(metrics, 0, sizeof *metrics);
}

static void add(Metrics *metrics, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(Metrics *metrics, const char *format, ...) {
  size_t left = sizeof metrics->line - (size_t)metrics->length;
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(metrics->line + metrics->length, left, format, arguments);
  va_end(arguments);
  if (n < 0 || (size_t)n >= left) metrics->overflow = true;
  else metrics->length += n;
}

static void add_text(Metrics *metrics, const char *text) {
  add(metrics, "\"");
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') add(metrics, "\\%c", *c);
    else if (*c < 0x20) add(metrics, "\\u%04x", *c);
    else add(metrics, "%c", *c);
  }
  add(metrics, "\"");
}

static void add_key(Metrics *metrics, const char *key) {
  if (metrics->length > 1) add(metrics, ", ");
  add_text(metrics, key);
  add(metrics, ": ");
}

void metrics_begin(Metrics *metrics) {
  metrics->length = 0;
  metrics->overflow = false;
  add(metrics, "{");
}

static double seconds_since_1970(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The step comes first and opens the event; without it there is none.
static void mirror(Metrics *metrics, const char *key, double value) {
  if (!metrics->events) return;
  if (metrics->length == 1)
    events_begin(metrics->events, strcmp(key, "step") ? -1 : (int64_t)value, seconds_since_1970());
  else events_scalar(metrics->events, key, value);
}

void metrics_integer(Metrics *metrics, const char *key, int64_t value) {
  mirror(metrics, key, (double)value);
  add_key(metrics, key);
  add(metrics, "%lld", (long long)value);
}

void metrics_real(Metrics *metrics, const char *key, double value) {
  mirror(metrics, key, value);
  add_key(metrics, key);
  if (isnan(value)) add(metrics, "null");
  else if (isinf(value)) add(metrics, value > 0 ? "\"inf\"" : "\"-inf\"");
  else add(metrics, "%.17g", value);
}

void metrics_integers(Metrics *metrics, const char *key, const int *values, int count) {
  add_key(metrics, key);
  for (int i = 0; i < count; i++) add(metrics, "%s%d", i ? ", " : "[", values[i]);
  add(metrics, count ? "]" : "[]");
}

void metrics_unknown(Metrics *metrics, const char *key) {
  add_key(metrics, key);
  add(metrics, "null");
}

void metrics_text(Metrics *metrics, const char *key, const char *value) {
  add_key(metrics, key);
  add_text(metrics, value);
}

// Who reads the copy started the run and wants no more of it, or is dead: as when a terminal is closed.
static void write_copy(const Metrics *metrics) {
  if (!metrics->copy) return;
  errno = 0;
  fwrite(metrics->line, 1, (size_t)metrics->length, metrics->copy);
  fflush(metrics->copy); // the results of the two do not say it: after a write that failed in fwrite, fflush has none
  if (errno == EPIPE && !signals_stop()) signals_request_stop(SIGHUP);
}

int metrics_end(Metrics *metrics, Error *error) {
  add(metrics, "}\n");
  CHECK(!metrics->overflow, "a metrics line is longer than %zu bytes", sizeof metrics->line);
  off_t before = lseek(metrics->fd, 0, SEEK_END);
  ssize_t wrote;
  do wrote = write(metrics->fd, metrics->line, (size_t)metrics->length);
  while (wrote < 0 && errno == EINTR);
  if (wrote == metrics->length) {
    write_copy(metrics);
    return metrics->events ? events_end(metrics->events, error) : PLAIT_OK;
  }
  int why = wrote < 0 ? errno : ENOSPC;
  if (wrote > 0 && before >= 0 && ftruncate(metrics->fd, before)) why = errno; // no half line stays
  return file_write_failed(metrics->path, why, 0, error);
}

// --- reading ---------------------------------------------------------------------------------------------------------

// One line as an object that the caller decrefs, or NULL if it is none.
static json_t *parse_line(const uint8_t *line, size_t size) {
  if (size > LONGEST_LINE) return NULL;
  json_t *object = json_loadb((const char *)line, size, JSON_REJECT_DUPLICATES, NULL);
  if (json_is_object(object)) return object;
  json_decref(object);
  return NULL;
}

// Bytes of the line at `at` without its newline; *whole says whether there was one.
static size_t line_length(const FileMap *map, size_t at, bool *whole) {
  const uint8_t *end = memchr(map->data + at, '\n', map->size - at);
  *whole = end != NULL;
  return end ? (size_t)(end - (map->data + at)) : map->size - at;
}

static bool keep_line(const uint8_t *line, size_t size, int64_t step) {
  json_t *object = parse_line(line, size);
  if (!object) return false;
  const json_t *of = json_object_get(object, "step");
  bool keep = !of || (json_is_integer(of) && json_integer_value(of) <= step);
  json_decref(object);
  return keep;
}

// Copies the lines to keep into `out` (may be NULL: only counts) and returns how many are dropped.
static int64_t copy_kept(const FileMap *map, int64_t step, FILE *out) {
  int64_t dropped = 0;
  bool whole;
  for (size_t at = 0, size; at < map->size; at += size + 1) {
    size = line_length(map, at, &whole);
    if (!whole || !keep_line(map->data + at, size, step)) dropped++;
    else if (out) fwrite(map->data + at, 1, size + 1, out);
  }
  return dropped;
}

int metrics_truncate_after(const char *path, int64_t step, Error *error) {
  if (!file_exists(path)) return PLAIT_OK;
  FileMap map;
  int code = file_map(path, &map, error);
  if (code < 0) return code;
  if (copy_kept(&map, step, NULL)) {
    AtomicFile file;
    code = file_begin(&file, path, error);
    if (code == PLAIT_OK) {
      copy_kept(&map, step, file.stream);
      code = file_commit(&file, error);
    }
  }
  file_unmap(&map);
  return code;
}

static bool read_value(const json_t *value, double *out) {
  if (json_is_number(value)) return *out = json_number_value(value), true;
  if (json_is_null(value)) return *out = NAN, true;
  const char *text = json_string_value(value);
  if (!text) return false;
  if (!strcmp(text, "nan")) *out = NAN; // as older runs wrote it
  else if (!strcmp(text, "inf")) *out = INFINITY;
  else if (!strcmp(text, "-inf")) *out = -INFINITY;
  else return false;
  return true;
}

int metrics_read(const char *path, const char *key, MetricsSeries *series, Error *error) {
  *series = (MetricsSeries){0};
  FileMap map;
  int code = file_map(path, &map, error);
  if (code < 0) return code;
  bool whole;
  for (size_t at = 0, size; at < map.size; at += size + 1) {
    size = line_length(&map, at, &whole);
    if (!memmem(map.data + at, size, key, strlen(key))) continue; // most lines, in the file of a long run
    json_t *object = parse_line(map.data + at, size);
    const json_t *step = object ? json_object_get(object, "step") : NULL;
    double value;
    if (json_is_integer(step) && read_value(json_object_get(object, key), &value)) {
      if (series->count == series->capacity) {
        series->capacity = series->capacity ? 2 * series->capacity : 256;
        series->step = xrealloc(series->step, sizeof *series->step * (size_t)series->capacity);
        series->value = xrealloc(series->value, sizeof *series->value * (size_t)series->capacity);
      }
      series->step[series->count] = json_integer_value(step);
      series->value[series->count++] = value;
    }
    json_decref(object);
  }
  file_unmap(&map);
  return PLAIT_OK;
}

void metrics_series_free(MetricsSeries *series) {
  free(series->step);
  free(series->value);
  *series = (MetricsSeries){0};
}

// --- lists -----------------------------------------------------------------------------------------------------------

static MetricsList *add_list(MetricsLists *lists, int64_t step, int count) {
  lists->list = xrealloc(lists->list, sizeof *lists->list * (size_t)(lists->count + 1));
  MetricsList *l = &lists->list[lists->count++];
  *l = (MetricsList){step, count, xcalloc((size_t)count + 1, sizeof *l->value)};
  return l;
}

static void read_list(const json_t *object, const char *key, MetricsLists *lists) {
  const json_t *step = json_object_get(object, "step"), *array = json_object_get(object, key), *item;
  size_t i, n = json_array_size(array);
  if (!json_is_integer(step) || !json_is_array(array) || n > INT_MAX / 2) return;
  json_array_foreach((json_t *)(uintptr_t)array, i, item)
    if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) > INT_MAX) return;
  MetricsList *l = add_list(lists, json_integer_value(step), (int)n);
  for (i = 0; i < n; i++) l->value[i] = (int)json_integer_value(json_array_get(array, i));
}

int metrics_read_lists(const char *path, const char *key, MetricsLists *lists, Error *error) {
  *lists = (MetricsLists){0};
  FileMap map;
  int code = file_map(path, &map, error);
  if (code < 0) return code;
  bool whole;
  for (size_t at = 0, size; at < map.size; at += size + 1) {
    size = line_length(&map, at, &whole);
    if (!memmem(map.data + at, size, key, strlen(key))) continue;
    json_t *object = parse_line(map.data + at, size);
    if (object) read_list(object, key, lists);
    json_decref(object);
  }
  file_unmap(&map);
  return PLAIT_OK;
}

void metrics_lists_keep(MetricsLists *lists, int index) {
  MetricsList kept = {0};
  if (index >= 0) kept = lists->list[index], lists->list[index].value = NULL;
  metrics_lists_free(lists);
  if (index >= 0) free(add_list(lists, 0, 0)->value), lists->list[0] = kept;
}

char *metrics_lists_text(const MetricsLists *lists) {
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out, "no memory");
  for (int i = 0; i < lists->count; i++) {
    fprintf(out, "%lld %d", (long long)lists->list[i].step, lists->list[i].count);
    for (int k = 0; k < lists->list[i].count; k++) fprintf(out, " %d", lists->list[i].value[k]);
    fputc('\n', out);
  }
  fclose(out);
  return text;
}

void metrics_lists_parse(const char *text, MetricsLists *lists) {
  *lists = (MetricsLists){0};
  for (char *at = (char *)(uintptr_t)(text ? text : ""); *at; at++) { // after the line's end
    int64_t step = strtoll(at, &at, 10);
    MetricsList *l = add_list(lists, step, (int)strtol(at, &at, 10));
    for (int k = 0; k < l->count; k++) l->value[k] = (int)strtol(at, &at, 10);
  }
}

void metrics_lists_free(MetricsLists *lists) {
  for (int i = 0; i < lists->count; i++) free(lists->list[i].value);
  free(lists->list);
  *lists = (MetricsLists){0};
}
