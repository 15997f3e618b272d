// A command's table of options as text: as --help, as a man page, and for the completion of three shells.
#pragma once
#include "cli/options.h"
#include <stdio.h>

typedef struct HelpFormat {
  const char *name; // --help=NAME
  void (*print)(const CommandHelp *help, const Option *options, int count, FILE *out);
} HelpFormat;
extern const HelpFormat help_formats[]; // the first is --help; ended by a name that is NULL

void help_print(const CommandHelp *help, const Option *options, int count, FILE *out);
void help_print_man(const CommandHelp *help, const Option *options, int count, FILE *out);
void help_print_bash(const CommandHelp *help, const Option *options, int count, FILE *out);
void help_print_zsh(const CommandHelp *help, const Option *options, int count, FILE *out);
void help_print_fish(const CommandHelp *help, const Option *options, int count, FILE *out);

// " (default 4)", " (must be given)", or nothing.
void help_default(const Option *option, char *out, size_t size);
bool help_wants_file(const Option *option);   // its value is a path
bool help_takes_keys(const CommandHelp *help); // key=value follow
