// Man pages from the tables of options, of commands and of recipe keys.
#include "cli/manual.h"
#include "cli/help.h"
#include "recipe/recipe_keys.h"
#include <stdlib.h>
#include <string.h>

// ---- troff ---------------------------------------------------------------------------------------------------------

// One character of UTF-8, as troff's \[uXXXX]. Returns its bytes.
static int put_unicode(const unsigned char *c, FILE *out) {
  int bytes = *c >= 0xf0 ? 4 : *c >= 0xe0 ? 3 : 2;
  unsigned value = *c & (0xffu >> (bytes + 1));
  for (int i = 1; i < bytes; i++) value = value << 6 | (c[i] & 0x3fu);
  fprintf(out, "\\[u%04X]", value);
  return bytes;
}

// Text of a page. `words` in backticks become bold, and a newline ends a paragraph.
static void put_text(const char *text, FILE *out) {
  int bold = 0, starts = 1; // a line
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (starts && (*c == '.' || *c == '\'')) fputs("\\&", out);
    starts = *c == '\n';
    if (*c == '`') fputs((bold = !bold) ? "\\fB" : "\\fR", out);
    else if (*c == '\\') fputs("\\e", out);
    else if (*c == '-') fputs("\\-", out);
    else if (*c == '\n') fputs(c[1] && c[1] != '\n' ? "\n.PP\n" : "", out);
    else if (*c >= 0xc0) c += put_unicode(c, out) - 1;
    else putc(*c, out);
  }
  putc('\n', out);
}

static void put_section(const char *title, const char *text, FILE *out) {
  fprintf(out, ".SH %s\n", title);
  if (text) put_text(text, out);
}

static void put_item(const char *name, const char *argument, const char *text, FILE *out) {
  fprintf(out, ".TP\n\\fB");
  for (; *name; name++) fputs(*name == '-' ? "\\-" : (char[]){*name, 0}, out);
  fputs("\\fR", out);
  if (argument) fprintf(out, " \\fI%s\\fR", argument);
  putc('\n', out);
  put_text(text, out);
}

static void put_lines(const char *lines, FILE *out) {
  fputs(".nf\n", out);
  for (const char *line = lines; *line;) {
    int n = (int)strcspn(line, "\n");
    char *copy = xformat("%.*s", n, line);
    put_text(copy, out);
    free(copy);
    line += n + (line[n] == '\n');
  }
  fputs(".fi\n", out);
}

static void put_head(const char *title, int section, const char *name, const char *summary, FILE *out) {
  fprintf(out, ".TH %s %d \"\" \"plait %s\" \"plait\"\n.nh\n.ad l\n.SH NAME\n", title, section, PLAIT_VERSION);
  for (const char *c = name; *c; c++) fputs(*c == '-' ? "\\-" : (char[]){*c, 0}, out);
  fputs(" \\- ", out);
  put_text(summary, out);
}

// ---- a command -----------------------------------------------------------------------------------------------------

// From the synopsis to the examples.
void help_print_man(const CommandHelp *help, const Option *options, int count, FILE *out) {
  char *usage = xformat("`plait %s` %s", help->name, help->operands);
  put_section("SYNOPSIS", usage, out);
  free(usage);
  put_section("DESCRIPTION", help->summary, out);
  put_section("OPTIONS", NULL, out);
  for (int i = 0; i < count; i++) {
    char fallback[128], *name = xformat("--%s", options[i].name);
    help_default(&options[i], fallback, sizeof fallback);
    char *text = xformat("%s%s", options[i].help, fallback);
    put_item(name, options[i].argument, text, out);
    free(text);
    free(name);
  }
  put_item("--help", NULL, "print this help and exit", out);
  put_item("--version", NULL, "print plait's version and exit", out);
  if (!help->examples) return;
  put_section("EXAMPLES", NULL, out);
  put_lines(help->examples, out);
}

static const char exit_status[] =
    "`0`: done. `1`: something failed: a file, the network, memory. `2`: the command line, "
    "a recipe or an input file is wrong; one sentence says where and what is allowed. "
    "`75`: SIGUSR1, SIGUSR2 or SIGXCPU stopped the command, which is to be started again. "
    "`128 + N`: another signal N ended it.";

static void print_command(const Command *command) {
  char *title = xformat("PLAIT-%s", command->name), *name = xformat("plait-%s", command->name);
  for (char *c = title; *c; c++)
    if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
  put_head(title, 1, name, command->summary, stdout);
  command_print(command, "man");
  put_section("EXIT STATUS", exit_status, stdout);
  fputs(".SH SEE ALSO\n.BR plait (1),\n.BR plait\\-recipe (5)\n", stdout);
  free(title);
  free(name);
}

// ---- plait.1 -------------------------------------------------------------------------------------------------------

static const struct { const char *name, *text;
} variables[] = {
    {"COLUMNS", "The width for which help is wrapped, where it should not be the terminal's."},
    {"NO_COLOR", "Set to anything: no colours."},
    {"PLAIT_SIMD",
     "The instruction set that kernels use (`portable`, `avx2`, `avx512`, `avx512_bf16` or `amx`), instead of "
     "the best that the machine has. `plait doctor` says which ones it has."},
};

static void print_plait(void) {
  FILE *out = stdout;
  put_head("PLAIT", 1, "plait", "train transformers: one recipe, any number of ranks", out);
  put_section("SYNOPSIS", "`plait` COMMAND [options] …", out);
  put_section(
      "DESCRIPTION",
      "plait trains transformers on CPUs, in one process or in many. A recipe, a YAML file, says which model is "
      "trained on what data and how; `plait-recipe`(5) lists its keys. The mesh in the recipe says over how many "
      "ranks, and every mesh gives the same model.\n"
      "The usual order: `plait tokenize` turns text into token files, `plait plan` says how much memory a recipe "
      "needs, `plait train` trains, `plait eval` and `plait generate` show what the model has learnt, and `plait "
      "export` writes it for other programs.",
      out);
  put_section("COMMANDS", NULL, out);
  for (int i = 0; i < command_count; i++)
    if (*commands[i].summary) put_item(commands[i].name, NULL, commands[i].summary, out);
  put_section("ENVIRONMENT", NULL, out);
  for (int i = 0; i < COUNT(variables); i++) put_item(variables[i].name, NULL, variables[i].text, out);
  put_section("EXIT STATUS", exit_status, out);
  fputs(".SH SEE ALSO\n", out);
  for (int i = 0; i < command_count; i++)
    if (*commands[i].summary) fprintf(out, ".BR plait\\-%s (1),\n", commands[i].name);
  fputs(".BR plait\\-recipe (5)\n", out);
}

// ---- plait-recipe.5 ------------------------------------------------------------------------------------------------

static void put_key(const RecipeKey *key, FILE *out) {
  char allowed[512], *text;
  size_t size;
  FILE *line = open_memstream(&text, &size);
  CHECK(line, "no memory");
  recipe_key_allowed(key, allowed, sizeof allowed);
  fprintf(line, "%s; ", allowed);
  if (key->required) fputs("must be given. ", line);
  else if (key->fallback) fprintf(line, "default `%s`. ", key->fallback);
  else fputs("no default. ", line);
  recipe_key_describe(key, line);
  if (key->another_run) fputs(" A resumed run refuses another value without `--force`.", line);
  fclose(line);
  put_item(key->path, NULL, text, out);
  free(text);
}

static void print_keys(void) {
  FILE *out = stdout;
  int before = -1;
  put_head("PLAIT-RECIPE", 5, "plait-recipe", "the keys of recipes", out);
  put_section(
      "DESCRIPTION",
      "A recipe is a YAML file that says what plait trains, on what data, and how. Its keys stand in sections: "
      "`batch.micro` is the key `micro` of the section `batch:`. Commands that read a recipe take keys as well, "
      "`batch.micro=4`; they come after the file and win over it.\n"
      "Relative paths in a recipe start from its folder, those on the command line from the current folder. "
      "`plait recipe` FILE checks a recipe and prints it with every default filled in.",
      out);
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    int length = recipe_key_section_length(key);
    int same = before >= 0 && length == recipe_key_section_length(&recipe_keys[before]) &&
               !strncmp(key->path, recipe_keys[before].path, (size_t)length);
    if (!same || !length) {
      fprintf(out, ".SH ");
      for (const char *c = key->path; c < key->path + (length ? length : (int)strlen(key->path)); c++)
        putc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, out);
      putc('\n', out);
    }
    put_key(key, out);
    before = i;
  }
  put_section("RENAMED KEYS", "These old names still work, with a note that tells the new one.", out);
  for (int i = 0; i < recipe_alias_count; i++) put_item(recipe_aliases[i].old, NULL, recipe_aliases[i].path, out);
  fputs(".SH SEE ALSO\n.BR plait (1),\n.BR plait\\-recipe (1),\n.BR plait\\-train (1)\n", out);
}

// ---- all of them ---------------------------------------------------------------------------------------------------

const char *manual_page(int index, char *name, size_t size) {
  if (index == 0) snprintf(name, size, "plait.1");
  else if (index == 1) snprintf(name, size, "plait-recipe.5");
  else {
    int i = 0;
    for (index -= 2; i < command_count && (!*commands[i].summary || index); i++) index -= *commands[i].summary != 0;
    if (i == command_count) return NULL;
    snprintf(name, size, "plait-%s.1", commands[i].name);
  }
  return name;
}

bool manual_print(const char *page) {
  bool begins = !strncmp(page, "plait", 5), ends = strchr(page, '.') != NULL;
  char *whole = xformat("%s%s%s", begins ? "" : "plait-", page, ends ? "" : ".1"), name[64];
  bool good = true;
  if (!strcmp(whole, "plait.1")) print_plait();
  else if (!strcmp(whole, "plait-recipe.5")) print_keys();
  else {
    int end = 0;
    const Command *command = sscanf(whole, "plait-%60[a-z].1%n", name, &end) == 1 ? command_find(name) : NULL;
    good = command && end && !whole[end];
    if (good) print_command(command);
  }
  free(whole);
  return good;
}
