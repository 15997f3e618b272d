// Strings of schemas: lengths, expressions, and formats.
#include "grammar/schema.h"
#include <math.h>
#include <string.h>

// Formats that are built, as expressions. Days of months and leap years are exact, and there is no year 0.
#define YEAR "(\\d{3}[1-9]|\\d{2}[1-9]\\d|\\d[1-9]\\d{2}|[1-9]\\d{3})"
#define LEAP "(\\d{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|" \
             "02-(0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

static const struct { const char *name, *pattern; } formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^(" BYTE "\\.){3}" BYTE "$"},
};

int schema_count(Schema *s, const json_t *schema, const char *key, int64_t absent, int64_t *count) {
  const json_t *value = json_object_get(schema, key);
  double x = json_number_value(value);
  *count = absent;
  if (!value) return PLAIT_OK;
  if (!json_is_number(value) || x < 0 || floor(x) != x)
    return schema_refuse(s, ".%s is not a whole number from 0 on", key);
  if (x > 1e9) return schema_not_built(s, ".%s is more than the 1000000000 that are built", key);
  *count = (int64_t)x;
  return PLAIT_OK;
}

static int format_pattern(Schema *s, const json_t *format, const char **pattern) {
  if (!json_is_string(format)) return schema_refuse(s, ".format is not a string");
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(formats[i].name, json_string_value(format))) return *pattern = formats[i].pattern, PLAIT_OK;
  return schema_not_built(s, ".format is %.40s, which is not built (date, time, date-time, uuid and ipv4 are)",
                       json_string_value(format));
}

int schema_string(Schema *s, const json_t *schema) {
  const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
  int64_t min, max;
  StringAutomaton a;
  Error why = {0};
  const char *text = NULL;
  if (schema_count(s, schema, "minLength", 0, &min) < 0 || schema_count(s, schema, "maxLength", -1, &max) < 0)
    return PLAIT_BAD_INPUT;
  if (pattern && !json_is_string(pattern)) return schema_refuse(s, ".pattern is not a string");
  if (pattern && format) return schema_not_built(s, ".format beside a pattern is not built");
  if (format && format_pattern(s, format, &text) < 0) return PLAIT_BAD_INPUT;
  if (!pattern && !format && !min && max < 0) return grammar_any_string(s->g);
  if (!pattern && !format) {
    string_automaton_any(&a, min, max);
    return grammar_string(s->g, a);
  }
  size_t bytes = pattern ? json_string_length(pattern) : strlen(text);
  if (pattern) text = json_string_value(pattern);
  if (string_automaton_pattern(&a, text, bytes, min, max, &why) < 0)
    return (why.code == GRAMMAR_NOT_BUILT ? schema_not_built : schema_refuse)(s, ".%s %s",
                                                                              pattern ? "pattern" : "format",
                                                                              why.message);
  return grammar_string(s->g, a);
}
