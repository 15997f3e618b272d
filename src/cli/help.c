// --help of a command, from its table of options, wrapped to the terminal.
#include "cli/help.h"
#include "cli/wrap.h"
#include <string.h>

const HelpFormat help_formats[] = {
    {"text", help_print},    {"man", help_print_man},   {"bash", help_print_bash},
    {"zsh", help_print_zsh}, {"fish", help_print_fish}, {NULL, NULL},
};

void help_default(const Option *o, char *out, size_t size) {
  *out = 0;
  if (o->required) snprintf(out, size, " (must be given)");
  else if (o->shown) snprintf(out, size, " (default %s)", o->shown);
  else if (o->kind == OPTION_INTEGER) snprintf(out, size, " (default %lld)", (long long)*(int64_t *)o->value);
  else if (o->kind == OPTION_REAL) snprintf(out, size, " (default %.15g)", *(double *)o->value);
  else if (o->kind == OPTION_TEXT && *(const char **)o->value)
    snprintf(out, size, " (default %.99s)", *(const char **)o->value);
}

bool help_wants_file(const Option *o) {
  static const char *const paths[] = {"FILE", "FOLDER", "PREFIX", "PATH"};
  for (int i = 0; i < COUNT(paths); i++)
    if (o->argument && !strcmp(o->argument, paths[i])) return true;
  return false;
}

bool help_takes_keys(const CommandHelp *help) { return strstr(help->operands, "key=value") != NULL; }

enum { MOST_LEFT = 24 }; // columns; a longer option has a line to itself

static void print_row(const char *left, const char *right, int width, int columns, FILE *out) {
  int n = wrap_length(left, (int)strlen(left));
  fprintf(out, "  %s", left);
  if (n > width) fprintf(out, "\n%*s", width + 4, "");
  else fprintf(out, "%*s", width - n + 2, "");
  wrap_text(out, right, width + 4, width + 4, columns);
}

static void left_of(const Option *o, char *out, size_t size) {
  snprintf(out, size, "--%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
}

void help_print(const CommandHelp *help, const Option *options, int count, FILE *out) {
  int width = (int)strlen("--version"), columns = wrap_columns(out);
  char left[96], right[1024], fallback[128];
  for (int i = 0; i < count; i++) {
    left_of(&options[i], left, sizeof left);
    int n = wrap_length(left, (int)strlen(left));
    if (n > width && n <= MOST_LEFT) width = n;
  }
  int usage = fprintf(out, "usage: plait %s%s", help->name, *help->operands ? " " : "");
  wrap_text(out, help->operands, usage, (int)strlen("usage: plait ") + 2, columns);
  putc('\n', out);
  wrap_text(out, help->summary, 0, 0, columns);
  fputs("\noptions:\n", out);
  for (int i = 0; i < count; i++) {
    left_of(&options[i], left, sizeof left);
    help_default(&options[i], fallback, sizeof fallback);
    snprintf(right, sizeof right, "%s%s", options[i].help, fallback);
    print_row(left, right, width, columns, out);
  }
  print_row("--help", "print this help and exit", width, columns, out);
  print_row("--version", "print plait's version and exit", width, columns, out);
  if (help->examples) fprintf(out, "\nexamples:\n%s", help->examples);
}
