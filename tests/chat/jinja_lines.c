// Lines of {"template", "variables"} rendered, for the tests that compare with Python's jinja2.
#include "jinja_lines.h"
#include "base/json_read.h"
#include <stdlib.h>
#include <string.h>

json_t *jinja_line(const json_t *line) {
  enum { MOST = 64 };
  const char *source = json_string_value(json_object_get(line, "template")), *key;
  JinjaVariable variables[MOST];
  int count = 0;
  json_t *value, *answer = json_object();
  json_object_foreach(json_object_get(line, "variables"), key, value) {
    bool list = !strcmp(key, "messages");
    if (count < MOST) variables[count++] = (JinjaVariable){key, value, list ? JINJA_TEMPLATE : JINJA_GIVEN, list};
  }
  JinjaTemplate *t;
  JinjaOutput output = {0};
  Error error = {0};
  int code = jinja_parse(source, strlen(source), "t", &t, &error);
  if (!code) code = jinja_run(t, variables, count, NULL, &output, &error);
  if (code) json_object_set_new(answer, "error", json_string(error.message));
  else
    json_object_set_new(answer, "text",
                        json_stringn(output.text.data ? output.text.data : "", (size_t)output.text.count));
  json_t *parts = json_array();
  for (int i = 0; i < output.parts.count; i++)
    json_array_append_new(parts, json_pack("[i, i]", (int)output.parts.data[i].end, output.parts.data[i].origin));
  json_object_set_new(answer, "parts", parts);
  jinja_output_free(&output);
  jinja_free(t);
  return answer;
}

int jinja_lines(const char *path) {
  FILE *in = fopen(path, "re");
  char *text = NULL;
  size_t capacity = 0;
  ssize_t bytes;
  if (!in) return perror(path), 1;
  while ((bytes = getline(&text, &capacity, in)) > 0) {
    json_t *line = NULL;
    Error error = {0};
    if (json_read(text, (size_t)bytes, path, &line, &error)) return fprintf(stderr, "%s\n", error.message), 1;
    json_t *answer = jinja_line(line);
    json_dumpf(answer, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(answer);
    json_decref(line);
  }
  free(text);
  fclose(in);
  return 0;
}
