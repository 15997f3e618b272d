// Long options for the subcommands: --name VALUE or --name=VALUE, flags, --help; words in between are operands.
//
//   int64_t size = 0; const char *out = NULL; bool train = false;
//   const Option options[] = {
//     {"vocab-size", OPTION_INTEGER, &size, "N", "entries of the vocabulary", .least = 257, .most = 1 << 24},
//     {"out", OPTION_TEXT, &out, "PREFIX", "where the files go", .required = true},
//     {.name = "train", .kind = OPTION_FLAG, .value = &train, .help = "train a tokenizer"},
//   };
//   const CommandHelp help = {"tokenize", "[options] FILE…", "Tokenizes.", "  plait tokenize …\n", TAKES_FILES};
//   Operands operands;
//   int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
//   if (status != OPTIONS_OK) return status;
//   … operands.words[i], operands.count; nothing to free …
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

typedef enum OptionKind {
  OPTION_FLAG,    // bool *
  OPTION_TEXT,    // const char ** (points into argv)
  OPTION_TEXTS,   // Texts *: one text each time that it is given
  OPTION_INTEGER, // int64_t *
  OPTION_REAL,    // double *
} OptionKind;

enum { MOST_TEXTS = 32 };
typedef struct Texts { const char *text[MOST_TEXTS]; int count; } Texts; // in the order of argv

typedef struct Option {
  const char *name; // without --
  OptionKind kind;
  void *value;          // holds the default; written when the option is given
  const char *argument; // its name in --help, NULL for a flag. A text may be empty only where this is TEXT
  const char *help;     // NULL: an option of older versions that is still taken; nothing mentions it
  double least, most; // inclusive range of a number; both 0: any
  bool required;
  bool *given;              // set when the option was given; may be NULL
  const char *const *words; // of a text: all that it may be, ended by NULL; NULL: anything
  const char *shown;        // the default in words where the number in `value` says too little ("all cores")
} Option;

// The kind of the operands; shells complete them.
typedef enum OperandKind {
  TAKES_NOTHING,
  TAKES_FILES,
  TAKES_RECIPE, // a recipe, then key=value of any recipe key
  TAKES_MODEL,  // a checkpoint, run or model folder, then key=value of the keys with `inference`, where the usage has
                // them
} OperandKind;

typedef struct CommandHelp {
  const char *name;     // "tokenize"
  const char *operands; // after the name in the usage line: words in capitals are operands
  const char *summary;  // sentences; a newline ends a paragraph
  const char *examples; // lines, indented; ends with a newline
  OperandKind takes;
  const char *const *first; // the words that the first operand may be, ended by NULL; NULL: see `takes`. With
                            // TAKES_FILES it may be a file too
} CommandHelp;

typedef struct Operands { char **words; int count; } Operands; // sorted to the front of argv[1…], order kept

enum { OPTIONS_OK = -1 };

// argv[0] is the command's name. Returns OPTIONS_OK if the command is to run, else the exit status: 0 after --help
// (printed on stdout), 2 after a wrong command line (one sentence on stderr, with the nearest option). "--" ends the
// options. --help=man and --help=bash, zsh, fish print the command's part of what `plait docs` makes.
int options_parse(const CommandHelp *help, const Option *options, int option_count, int least_operands,
                  int most_operands, int argc, char **argv, Operands *operands);

// Prints "plait NAME: message" on stderr and returns the exit status for error->code; after a signal what
// base/signals.h says.
int command_fail(const char *name, const Error *error);
