// Long options for the subcommands: --name VALUE or --name=VALUE, flags, --help; words in between are operands.
//
//   int64_t size = 0; const char *out = NULL; bool train = false;
//   const Option options[] = {
//     {"vocab-size", OPTION_INTEGER, &size, "N", "entries of the vocabulary", .least = 257, .most = 1 << 24},
//     {"out", OPTION_TEXT, &out, "PREFIX", "where the files go", .required = true},
//     {.name = "train", .kind = OPTION_FLAG, .value = &train, .help = "train a tokenizer"},
//   };
//   const CommandHelp help = {"tokenize", "[options] FILE…", "Tokenizes.", "  plait tokenize …\n"};
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
  OPTION_INTEGER, // int64_t *
  OPTION_REAL,    // double *
} OptionKind;

typedef struct Option {
  const char *name; // without --
  OptionKind kind;
  void *value;          // holds the default; written when the option is given
  const char *argument; // its name in --help, NULL for a flag
  const char *help;
  double least, most; // inclusive range of a number; both 0: any
  bool required;
  bool *given; // set when the option was given; may be NULL
} Option;

typedef struct CommandHelp {
  const char *name;     // "tokenize"
  const char *operands; // after the name in the usage line
  const char *summary;  // a sentence or a few
  const char *examples; // lines, indented; ends with a newline
} CommandHelp;

typedef struct Operands { char **words; int count; } Operands; // sorted to the front of argv[1…], order kept

enum { OPTIONS_OK = -1 };

// argv[0] is the command's name. Returns OPTIONS_OK to go on, else the exit status: 0 after --help (printed on stdout),
// 2 after a wrong command line (one sentence on stderr, with the nearest option). "--" ends the options.
int options_parse(const CommandHelp *help, const Option *options, int option_count, int least_operands,
                  int most_operands, int argc, char **argv, Operands *operands);

// Prints "plait NAME: message" on stderr and returns the exit status for error->code; after a signal 128 + its number.
int command_fail(const char *name, const Error *error);
