// The option parser that the subcommands share.
#include "cli/options.h"
#include "base/nearest.h"
#include "base/signals.h"
#include "cli/help.h"
#include "recipe/recipe_keys.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_OPTIONS = 64 };

typedef struct Parse {
  const CommandHelp *help;
  const Option *options;
  int count;
  bool seen[MAX_OPTIONS];
} Parse;

static int wrong(const Parse *parse, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int wrong(const Parse *parse, const char *format, ...) {
  fprintf(stderr, "plait %s: ", parse->help->name);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fprintf(stderr, " (see plait %s --help)\n", parse->help->name);
  return 2;
}

// --help, or --help=FORMAT.
static int print_help(const Parse *parse, const char *format) {
  Option shown[MAX_OPTIONS];
  int count = 0;
  const HelpFormat *f = help_formats;
  while (f->name && *format && strcmp(f->name, format)) f++;
  if (!f->name)
    return wrong(parse, "--help=%.40s: there is no such format; it is text, man, bash, zsh or fish", format);
  for (int i = 0; i < parse->count; i++)
    if (parse->options[i].help) shown[count++] = parse->options[i];
  f->print(parse->help, shown, count, stdout);
  if (fflush(stdout) == 0) return 0;
  fprintf(stderr, "plait: the help cannot be printed: %s\n", strerror(errno));
  return 1;
}

static int unknown(const Parse *parse, const char *name, int length) {
  char word[64];
  const char *names[MAX_OPTIONS + 2];
  int count = 0;
  snprintf(word, sizeof word, "%.*s", length, name);
  for (int i = 0; i < parse->count; i++)
    if (parse->options[i].help) names[count++] = parse->options[i].name;
  names[count++] = "help";
  names[count++] = "version";
  if (help_takes_keys(parse->help) && recipe_key_find(word))
    return wrong(parse, "keys of the recipe are written without dashes: %s=VALUE", word);
  const char *nearest = nearest_word(word, names, count);
  if (nearest) return wrong(parse, "unknown option --%s; did you mean --%s?", word, nearest);
  const RecipeKey *key = help_takes_keys(parse->help) ? recipe_key_meant(word) : NULL;
  if (key && (parse->help->takes != TAKES_MODEL || key->inference))
    return wrong(parse, "unknown option --%s; keys of the recipe are written without dashes: %s=VALUE", word,
                 key->path);
  return wrong(parse, "unknown option --%s", word);
}

// "-threads", "-t 4"
static int unknown_short(const Parse *parse, const char *word) {
  for (int i = 0; i < parse->count; i++)
    if (!strcmp(parse->options[i].name, word + 1))
      return wrong(parse, "unknown option %.60s; did you mean -%.60s?", word, word);
  return wrong(parse, "unknown option %.60s; options start with two dashes", word);
}

static bool in_range(const Option *option, double value) {
  return (option->least == 0 && option->most == 0) || (value >= option->least && value <= option->most);
}

static int wrong_number(const Parse *parse, const Option *option, const char *text) {
  const char *kind = option->kind == OPTION_INTEGER ? "an integer" : "a number";
  if (option->least == 0 && option->most == 0)
    return wrong(parse, "--%s must be %s, not \"%.100s\"", option->name, kind, text);
  if (option->most >= 2147483647.0)
    return wrong(parse, "--%s must be %s of at least %.15g, not \"%.100s\"", option->name, kind, option->least, text);
  return wrong(parse, "--%s must be %s from %.15g to %.15g, not \"%.100s\"", option->name, kind, option->least,
               option->most, text);
}

static bool is_one_of(const char *const *words, const char *text) {
  while (*words && strcmp(*words, text)) words++;
  return *words != NULL;
}

static int wrong_word(const Parse *parse, const Option *option, const char *text) {
  char list[512] = "";
  int count = 0;
  for (; option->words[count]; count++) {
    size_t n = strlen(list);
    snprintf(list + n, sizeof list - n, "%s%s", !count ? "" : option->words[count + 1] ? ", " : " or ",
             option->words[count]);
  }
  const char *nearest = nearest_word(text, option->words, count);
  return wrong(parse, "--%s must be %s, not \"%.100s\"%s%s%s", option->name, list, text,
               nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static int set_value(const Parse *parse, const Option *option, const char *text) {
  char *end;
  errno = 0;
  if (option->kind == OPTION_TEXT) {
    if (!*text && strcmp(option->argument, "TEXT") != 0) // files, names, hosts …: "" is none
      return wrong(parse, "--%s needs a value, %s, and \"\" is none", option->name, option->argument);
    if (option->words && !is_one_of(option->words, text)) return wrong_word(parse, option, text);
    *(const char **)option->value = text;
  } else if (option->kind == OPTION_TEXTS) {
    Texts *texts = option->value;
    if (texts->count == MOST_TEXTS) return wrong(parse, "--%s is given more than %d times", option->name, MOST_TEXTS);
    texts->text[texts->count++] = text;
  } else if (option->kind == OPTION_INTEGER) {
    long long value = strtoll(text, &end, 10);
    if (!*text || *end || errno || strspn(text, "+-0123456789") != strlen(text) || !in_range(option, (double)value))
      return wrong_number(parse, option, text);
    *(int64_t *)option->value = value;
  } else {
    double value = strtod(text, &end);
    if (!*text || *end || !isfinite(value) || strspn(text, "+-.eE0123456789") != strlen(text) ||
        !in_range(option, value))
      return wrong_number(parse, option, text);
    *(double *)option->value = value;
  }
  return OPTIONS_OK;
}

// argv[*at] starts with "--". Advances *at when the value is the next word.
static int take_option(Parse *parse, int argc, char **argv, int *at) {
  const char *name = argv[*at] + 2, *equals = strchr(name, '=');
  int length = equals ? (int)(equals - name) : (int)strlen(name), found = -1;
  for (int i = 0; i < parse->count; i++)
    if ((int)strlen(parse->options[i].name) == length && !strncmp(parse->options[i].name, name, (size_t)length))
      found = i;
  if (found < 0) return unknown(parse, name, length);
  const Option *option = &parse->options[found];
  if (parse->seen[found] && option->kind != OPTION_TEXTS) return wrong(parse, "--%s is given twice", option->name);
  parse->seen[found] = true;
  if (option->given) *option->given = true;
  if (option->kind == OPTION_FLAG) {
    if (equals) return wrong(parse, "--%s takes no value", option->name);
    *(bool *)option->value = true;
    return OPTIONS_OK;
  }
  if (equals) return set_value(parse, option, equals + 1);
  if (*at + 1 >= argc) return wrong(parse, "--%s needs a value, %s", option->name, option->argument);
  return set_value(parse, option, argv[++*at]);
}

// The operand at `index` in a usage line such as "[options] RECIPE [key=value …]", where those in brackets and the
// values of options ("--out FOLDER") are none.
static void operand_name(const char *usage, int index, char *out, size_t size) {
  int depth = 0, value = 0;
  snprintf(out, size, "an argument");
  for (const char *c = usage; *c; c += strspn(c, " ")) {
    int n = (int)strcspn(c, " "), option = !strncmp(c, "--", 2);
    int outside = !depth && *c != '[';
    if (outside && !option && !value && !index--) snprintf(out, size, "%.*s", n, c);
    for (int i = 0; i < n; i++) depth += (c[i] == '[') - (c[i] == ']');
    value = option;
    c += n;
  }
}

static int check_given(const Parse *parse, const Operands *operands, int least, int most) {
  for (int i = 0; i < parse->count; i++)
    if (parse->options[i].required && !parse->seen[i])
      return wrong(parse, "--%s %s must be given", parse->options[i].name, parse->options[i].argument);
  if (operands->count < least) {
    char missing[64];
    operand_name(parse->help->operands, operands->count, missing, sizeof missing);
    return wrong(parse, "%s is missing; usage: plait %s %s", missing, parse->help->name, parse->help->operands);
  }
  const char *first = operands->count ? operands->words[0] : "";
  if (help_takes_keys(parse->help) && strchr(first, '=') && access(first, F_OK)) {
    char missing[64];
    operand_name(parse->help->operands, 0, missing, sizeof missing);
    return wrong(parse, "%s is missing before %.100s; usage: plait %s %s", missing, first, parse->help->name,
                 parse->help->operands);
  }
  if (operands->count > most)
    return wrong(parse, "\"%.100s\" is one argument too many; usage: plait %s%s%s", operands->words[most],
                 parse->help->name, *parse->help->operands ? " " : "", parse->help->operands);
  return OPTIONS_OK;
}

int options_parse(const CommandHelp *help, const Option *options, int option_count, int least_operands,
                  int most_operands, int argc, char **argv, Operands *operands) {
  CHECK(option_count <= MAX_OPTIONS);
  Parse parse = {.help = help, .options = options, .count = option_count};
  *operands = (Operands){argv + 1, 0};
  // --help wins over every mistake, and shows defaults, so it is looked for before any value is written.
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return print_help(&parse, "");
    if (!strncmp(argv[i], "--help=", 7)) return print_help(&parse, argv[i] + 7);
    if (!strcmp(argv[i], "--version")) return printf("plait %s\n", PLAIT_VERSION), 0;
  }
  bool ended = false;
  for (int i = 1; i < argc; i++) {
    if (!ended && !strcmp(argv[i], "--")) {
      ended = true;
    } else if (!ended && !strncmp(argv[i], "--", 2)) {
      int status = take_option(&parse, argc, argv, &i);
      if (status != OPTIONS_OK) return status;
    } else if (!ended && argv[i][0] == '-' && argv[i][1]) {
      return unknown_short(&parse, argv[i]);
    } else {
      operands->words[operands->count++] = argv[i];
    }
  }
  return check_given(&parse, operands, least_operands, most_operands);
}

int command_fail(const char *name, const Error *error) {
  if (error->message[0]) fprintf(stderr, "plait %s: %s\n", name, error->message);
  return error->code == PLAIT_INTERRUPTED ? signals_exit_status() : error_exit_status(error->code);
}
