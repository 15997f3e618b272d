// plait explain --play: one page that steps through what the Programs of a recipe do, or of two beside each other.
#include "cmd/play/play.h"
#include "base/file.h"
#include "base/units.h"
#include "cmd/explain.h"
#include "cmd/play/play_page.h"
#include "setup/setup.h"
#include "foresight/auto_plan.h"
#include <ctype.h>
#include <string.h>

enum { MOST_WORDS = 64 };

// "parallel.zero=1 layout.ffn=[dp, tp]" as words: a blank ends one where "key=" follows. `text` is cut into them. Words
// beyond MOST_WORDS stay in the last one.
static int split_words(char *text, char **words) {
  int count = 0;
  for (char *at = text + strspn(text, " \t\n"); *at && count < MOST_WORDS;) {
    char *end = at + strcspn(at, " \t\n");
    for (;;) {
      char *next = end + strspn(end, " \t\n");
      if (!*next || (count < MOST_WORDS - 1 && isalpha((unsigned char)*next) &&
                     next[strspn(next, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")] == '='))
        break;
      if (!count && !memchr(at, '=', (size_t)(end - at))) break; // the path of a recipe
      end = next + strcspn(next, " \t\n");
    }
    words[count++] = at;
    at = end + strspn(end, " \t\n");
    *end = 0;
  }
  return count;
}

// ---- a setting ------------------------------------------------------------------------------------------------------

static json_t *describe_setting(const char *path, int count, char **overrides, const Recipe *recipe,
                                const Job *job) {
  char text[1024];
  json_t *words = json_array();
  const char *slash = strrchr(path, '/');
  for (int i = 0; i < count; i++) json_array_append_new(words, json_string(overrides[i]));
  setup_describe(recipe, &job->options.step, text, sizeof text);
  return json_pack("{s:s, s:o, s:s, s:i, s:i, s:i}", "recipe", slash ? slash + 1 : path, "overrides", words, "parallel",
                   text, "zero", recipe->parallel.zero, "samples", recipe->batch.global, "sequence",
                   recipe->data.seq_len);
}

static int load_view(const char *path, int count, char **overrides, json_t **view, Error *error) {
  Recipe recipe = {0};
  ModelConfig config = {0};
  Job *job = NULL;
  int code = recipe_load(path, count, overrides, &recipe, error);
  if (!code) code = setup_model_config(&recipe, &config, error);
  if (!code) code = setup_job(&recipe, &config, NULL, &job, error);
  if (!code) code = play_view(job, view, error);
  if (!code) json_object_set_new(*view, "setting", describe_setting(path, count, overrides, &recipe, job));
  fflush(stdout); // notes come after what was printed, where both go to one file
  if (!code && recipe.notes) fputs(recipe.notes, stderr);
  if (!code) auto_plan_note(&recipe, stderr);
  job_destroy(job);
  model_config_free(&config);
  recipe_free(&recipe);
  return code;
}

// The same recipe and settings, followed by others, or another recipe.
static int load_beside(const char *beside, int count, char **operands, json_t **view, Error *error) {
  char *text = xstrdup(beside), *words[MOST_WORDS], **all = xcalloc((size_t)(count + MOST_WORDS), sizeof *all);
  int n = split_words(text, words), code;
  if (!n)
    code = error_set(error, PLAIT_BAD_INPUT, "it is empty; give settings such as parallel.zero=1, or another recipe");
  else if (!strchr(words[0], '=')) code = load_view(words[0], n - 1, words + 1, view, error);
  else {
    memcpy(all, operands, sizeof *all * (size_t)count);
    memcpy(all + count, words, sizeof *all * (size_t)n);
    code = load_view(all[0], count - 1 + n, all + 1, view, error);
  }
  free(all);
  free(text);
  return code ? error_prefix(error, "--beside") : PLAIT_OK;
}

// ---- the page -------------------------------------------------------------------------------------------------------

// JSON within HTML: a '<' stands in strings only, and must not end the element.
static void write_data(const char *json, FILE *out) {
  for (const char *at = json; *at; at++)
    if (*at == '<') fputs("\\u003c", out);
    else fputc(*at, out);
}

static int write_page(const json_t *data, const char *path, Error *error) {
  static const char mark[] = "@DATA@";
  const char *at = strstr(play_page, mark);
  CHECK(at, "play.html has no place for the data");
  char *json = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(15));
  CHECK(json, "JSON of the page");
  AtomicFile file = {0};
  int code = file_begin(&file, path, error);
  if (!code) {
    fwrite(play_page, 1, (size_t)(at - play_page), file.stream);
    write_data(json, file.stream);
    fputs(at + strlen(mark), file.stream);
    code = file_commit(&file, error);
  }
  file_abandon(&file);
  free(json);
  return code;
}

static void report(const char *path, const json_t *views) {
  size_t i;
  json_t *view;
  printf("%s: open it in a browser;", path);
  json_array_foreach(views, i, view) {
    const json_t *setting = json_object_get(view, "setting");
    int all = (int)json_integer_value(json_object_get(view, "pipeline_ranks")),
        shown = (int)json_array_size(json_object_get(view, "coordinates"));
    printf("%s %s, %d rank%s", i ? " beside" : "", json_string_value(json_object_get(setting, "parallel")),
           (int)json_integer_value(json_object_get(view, "ranks")),
           json_integer_value(json_object_get(view, "ranks")) > 1 ? "s" : "");
    if (shown < all) printf(" (%d of %d pipeline ranks are shown)", shown, all);
  }
  fputc('\n', stdout);
}

int explain_play(int count, char **operands, const char *path, const char *beside, Error *error) {
  const char *dot = strrchr(path, '.');
  json_t *view = NULL, *second = NULL;
  if (!dot || (strcmp(dot, ".html") && strcmp(dot, ".htm")))
    return error_set(error, PLAIT_BAD_INPUT, "--play %.200s: the name must end in .html", path);
  int code = load_view(operands[0], count - 1, operands + 1, &view, error);
  if (!code && beside) code = load_beside(beside, count, operands, &second, error);
  if (!code) {
    json_t *views = second ? json_pack("[O, O]", view, second) : json_pack("[O]", view);
    json_t *data = json_pack("{s:s, s:O}", "version", PLAIT_VERSION, "views", views);
    code = write_page(data, path, error);
    if (!code) report(path, views);
    json_decref(data);
    json_decref(views);
  }
  json_decref(view);
  json_decref(second);
  return code;
}
