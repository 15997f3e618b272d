// plait docs: man pages and shell completion, made from the same tables as --help.
#include "base/file.h"
#include "cmd/cmd.h"
#include "cli/manual.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Commands print their part on stdout, so stdout becomes the file meanwhile.
static int write_printed(const char *folder, const char *path, bool (*print)(const char *), const char *what,
                         Error *error) {
  AtomicFile file;
  char *whole = xformat("%s/%s", folder, path), *slash = strrchr(whole, '/');
  *slash = 0;
  int code = folder_create(whole, error);
  *slash = '/';
  if (!code) code = file_begin(&file, whole, error);
  if (!code) {
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(file.stream), STDOUT_FILENO);
    print(what);
    int failed = fflush(stdout), reason = errno;
    dup2(saved, STDOUT_FILENO);
    close(saved);
    if (failed) {
      code = error_set(error, PLAIT_FAILED, "%s: cannot be written: %s", whole, strerror(reason));
      file_abandon(&file);
    } else code = file_commit(&file, error);
  }
  free(whole);
  return code;
}

// The folders are those below PREFIX/share in which man, bash-completion, zsh and fish look.
static int write_all(const char *folder, Error *error) {
  static const struct { const char *shell, *path; } scripts[] = {
      {"bash", "bash-completion/completions/plait"},
      {"zsh", "zsh/site-functions/_plait"},
      {"fish", "fish/vendor_completions.d/plait.fish"},
  };
  char name[64], path[128];
  int code = PLAIT_OK;
  for (int i = 0; !code && manual_page(i, name, sizeof name); i++) {
    snprintf(path, sizeof path, "man/man%c/%s", name[strlen(name) - 1], name);
    code = write_printed(folder, path, manual_print, name, error);
  }
  for (int i = 0; !code && i < COUNT(scripts); i++)
    code = write_printed(folder, scripts[i].path, completion_print, scripts[i].shell, error);
  return code;
}

static int no_page(const char *page, Error *error) {
  char name[64], list[1024] = "";
  for (int i = 0; manual_page(i, name, sizeof name); i++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", name);
  return error_set(error, PLAIT_BAD_INPUT, "there is no man page \"%.60s\"; the pages are %s", page, list);
}

int cmd_docs(int argc, char **argv) {
  static const char *const what[] = {"man", "completion", "write", NULL};
  const CommandHelp help = {
      "docs", "man PAGE | completion SHELL | write FOLDER",
      "Prints a man page or a shell completion script. Both are made from the same tables as --help and "
      "docs/recipes.md.\n"
      "man PAGE prints plait.1, the page of a command (train, or plait-train.1), or plait-recipe.5, which explains "
      "all recipe keys.\n"
      "completion SHELL prints the script for bash, zsh or fish. It completes commands, options, recipe keys and "
      "their values.\n"
      "write FOLDER writes all of them below FOLDER, into man/, bash-completion/, zsh/ and fish/. make install "
      "does this for PREFIX/share.",
      "  source <(plait docs completion bash)         # in ~/.bashrc, without make install\n"
      "  plait docs man train | man -l -\n"
      "  plait docs write ~/.local/share\n",
      .first = what};
  Operands operands;
  int status = options_parse(&help, NULL, 0, 2, 2, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  const char *first = operands.words[0], *second = operands.words[1];
  int code = PLAIT_OK;
  if (!strcmp(first, "man")) code = manual_print(second) ? PLAIT_OK : no_page(second, &error);
  else if (!strcmp(first, "completion")) {
    if (!completion_print(second))
      code = error_set(&error, PLAIT_BAD_INPUT, "there is no completion for \"%.40s\"; there is for bash, zsh and fish",
                       second);
  } else if (!strcmp(first, "write")) code = write_all(second, &error);
  else code = error_set(&error, PLAIT_BAD_INPUT, "\"%.40s\" must be man, completion or write", first);
  return code ? command_fail("docs", &error) : 0;
}
