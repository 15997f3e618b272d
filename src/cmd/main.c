// The command plait: finds the subcommand in commands.def and calls it.
#include "device/cpu/cpu.h"
#include "base/file.h"
#include "base/map_guard.h"
#include "base/nearest.h"
#include "cmd/cmd.h"
#include "cli/manual.h"
#include "cli/wrap.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const Command commands[] = {
#define COMMAND(name, function, summary) {name, function, summary},
#include "cmd/commands.def"
#undef COMMAND
};
enum { COMMANDS = sizeof commands / sizeof *commands };
const int command_count = COMMANDS;

static int print_help(FILE *out) {
  fputs("plait trains transformers: one recipe, any number of ranks.\n\n"
        "usage: plait COMMAND [options] …\n\ncommands:\n", out);
  for (int i = 0; i < COMMANDS; i++)
    if (*commands[i].summary) {
      int at = fprintf(out, "  %-10s  ", commands[i].name);
      wrap_text(out, commands[i].summary, at, at, wrap_columns(out));
    }
  fputs("\nplait COMMAND --help   what the command does, its options and examples\n"
        "plait --version        plait's version\n", out);
  return 0;
}

const Command *command_find(const char *name) {
  for (int i = 0; i < COMMANDS; i++)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
}

void command_print(const Command *command, const char *format) {
  char option[32];
  snprintf(option, sizeof option, "--help=%s", format);
  char *arguments[] = {(char *)command->name, option, NULL};
  command->run(2, arguments);
}

static int unknown(const char *name) {
  const char *names[COMMANDS + 1] = {"help"};
  for (int i = 0; i < COMMANDS; i++) names[i + 1] = commands[i].name;
  const char *nearest = nearest_word(name, names, COMMANDS + 1);
  fprintf(stderr, "plait: unknown command \"%.100s\"%s%s%s (see plait --help)\n", name,
          nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
  return 2;
}

static int help_of(const char *name) {
  const Command *command = command_find(name);
  char *arguments[] = {(char *)name, "--help", NULL};
  return command ? command->run(2, arguments) : unknown(name);
}

// Output that could not be written (redirected to a full disk) is a failure, not a success.
static int finish(int status) {
  int flushed = fflush(stdout), reason = flushed ? errno : EIO; // errno of an earlier write is lost
  if (!flushed && !ferror(stdout)) return status;
  struct pollfd reader = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&reader, 1, 0) == 1 && reader.revents & POLLERR) return status; // of a pipe: who reads had enough
  fprintf(stderr, "plait: the output cannot be written: %s\n", strerror(reason));
  return status ? status : 1;
}

static int check_space(void) {
  char text[160];
  if (device_space_wish(text, sizeof text) >= 0) return 0;
  fprintf(stderr, "plait: %s\n", text);
  return 2;
}

// PLAIT_SIMD: a level that this CPU lacks is reported, a name that does not exist ends the command. `plait doctor`
// reports both itself.
static int check_simd(const Command *command) {
  char text[160];
  CpuWish wish = command->run == cmd_doctor ? CPU_WISH_FINE : cpu_simd_wish(text, sizeof text);
  if (wish) fprintf(stderr, "plait: %s\n", text);
  return wish == CPU_WISH_UNKNOWN ? 2 : 0;
}

int main(int argc, char **argv) {
  if (argc < 2) return print_help(stderr), 2;
  const char *name = argv[1];
  Error error = {0};
  if (file_open_standard(&error)) return command_fail(name, &error);
  if (!strcmp(name, "--version") || !strcmp(name, "version")) return finish((printf("plait %s\n", PLAIT_VERSION), 0));
  if (!strcmp(name, "--help") || !strcmp(name, "-h")) return finish(print_help(stdout));
  if (!strcmp(name, "help")) return finish(argc > 2 ? help_of(argv[2]) : print_help(stdout));
  const Command *command = command_find(name);
  map_guard_install(); // here, not in the library: an application's signals are its own
  int status = command ? check_simd(command) : 0;
  if (!status) status = check_space();
  if (status) return status;
  return command ? finish(command->run(argc - 1, argv + 1)) : unknown(name);
}
