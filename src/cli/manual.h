// Man pages: plait.1, a page for each command, and plait-recipe.5 with every key.
#pragma once
#include "cli/options.h"
#include <stdio.h>

typedef struct Command { const char *name; int (*run)(int argc, char **argv); const char *summary; } Command;
extern const Command commands[]; // commands.def
extern const int command_count;

const Command *command_find(const char *name); // NULL where there is none

// Prints a command's part of a page or of a completion script on stdout, as `plait NAME --help=FORMAT`.
void command_print(const Command *command, const char *format);

// "plait.1", "plait-train.1", "plait-recipe.5"; NULL after the last.
const char *manual_page(int index, char *name, size_t size);
// Prints the page, "plait-train.1", "plait-train" or "train", on stdout, which is where commands print their part.
// False where there is no such page.
bool manual_print(const char *page);

// The completion script of a shell (bash, zsh, fish) on stdout. False for another shell.
bool completion_print(const char *shell);
