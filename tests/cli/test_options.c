// tier 1
// The option parser: values, defaults, operands, and the exit statuses of mistakes.
#include "cli/completion.c" // the command's files are not part of the library
#include "cli/help.c"
#include "cli/manual.c"
#include "cli/options.c"
#include "cli/wrap.c"
#include <limits.h>
#include <setjmp.h>
#include <unistd.h>

#include <cmocka.h>

const Command commands[] = {{"tokenize", NULL, "turn text into token files"}};
const int command_count = 1;
const Command *command_find(const char *name) { return strcmp(name, "tokenize") ? NULL : commands; }
void command_print(const Command *command, const char *format) {}

typedef struct Values {
  bool flag, given, old;
  const char *text, *dtype;
  Texts changes;
  int64_t number;
  double real;
  Operands operands;
} Values;

static int parse(Values *v, bool required, int least, int most, char **argv) {
  int argc = 0;
  while (argv[argc]) argc++;
  static const char *const formats[] = {"fp32", "bf16", NULL};
  const Option options[] = {
      {.name = "train", .kind = OPTION_FLAG, .value = &v->flag, .help = "train a tokenizer"},
      {"out", OPTION_TEXT, &v->text, "PREFIX", "where it goes", .required = required},
      {"vocab-size", OPTION_INTEGER, &v->number, "N", "entries", .least = 257, .most = 1000, .given = &v->given},
      {.name = "temperature", .kind = OPTION_REAL, .value = &v->real, .argument = "T", .help = "of sampling"},
      {.name = "dtype", .kind = OPTION_TEXT, .value = &v->dtype, .argument = "D", .words = formats, .help = "a format"},
      {.name = "what-if", .kind = OPTION_TEXTS, .value = &v->changes, .argument = "K", .help = "a change"},
      {.name = "obsolete", .kind = OPTION_FLAG, .value = &v->old}, // taken and not shown
  };
  const CommandHelp help = {"tokenize", "[options] FILE… [key=value …]", "Tokenizes.", "  plait tokenize\n",
                            .takes = TAKES_RECIPE};
  return options_parse(&help, options, COUNT(options), least, most, argc, argv, &v->operands);
}

// Runs parse with stderr and stdout going to a file, and gives what was printed.
static int parse_quietly(char **argv, bool required, int least, int most, char *printed, size_t size) {
  FILE *file = tmpfile();
  int out = dup(1), err = dup(2);
  fflush(stdout);
  dup2(fileno(file), 1);
  dup2(fileno(file), 2);
  Values v = {.number = 300, .real = 1};
  int status = parse(&v, required, least, most, argv);
  fflush(stdout);
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);
  rewind(file);
  printed[fread(printed, 1, size - 1, file)] = 0;
  fclose(file);
  return status;
}

static void test_good(void **state) {
  char *argv[] = {"tokenize", "a", "--train", "--out=x=y", "b", "--vocab-size", "500", "--temperature",
                  "-0.5",     "-", "--",      "--c",       NULL};
  Values v = {0};
  assert_int_equal(parse(&v, true, 1, INT_MAX, argv), OPTIONS_OK);
  assert_true(v.flag && v.given);
  assert_string_equal(v.text, "x=y");
  assert_int_equal(v.number, 500);
  assert_true(v.real == -0.5);
  assert_int_equal(v.operands.count, 4);
  assert_string_equal(v.operands.words[0], "a");
  assert_string_equal(v.operands.words[1], "b");
  assert_string_equal(v.operands.words[2], "-");
  assert_string_equal(v.operands.words[3], "--c");
  char *twice[] = {"tokenize", "--what-if", "a=1", "x", "--what-if=b=2x", "--what-if", "a=3", NULL};
  assert_int_equal(parse(&v, false, 1, 1, twice), OPTIONS_OK);
  assert_int_equal(v.changes.count, 3);
  assert_string_equal(v.changes.text[0], "a=1");
  assert_string_equal(v.changes.text[1], "b=2x");
  assert_string_equal(v.changes.text[2], "a=3");
  char *old[] = {"tokenize", "--obsolete", NULL};
  assert_true(parse(&v, false, 0, 0, old) == OPTIONS_OK && v.old);
}

static void test_defaults(void **state) {
  char *argv[] = {"tokenize", NULL};
  Values v = {.text = "t", .number = 300, .real = 0.5};
  assert_int_equal(parse(&v, false, 0, 0, argv), OPTIONS_OK);
  assert_true(!v.flag && !v.given && v.number == 300 && v.real == 0.5 && v.operands.count == 0);
  assert_string_equal(v.text, "t");
}

static void test_bad(void **state) {
  static const struct { const char *words[4], *message; bool required; int least, most; } cases[] = {
      {{"--trian"}, "unknown option --trian; did you mean --train?", false, 0, 9},
      {{"--xyzxyz"}, "unknown option --xyzxyz (see", false, 0, 9},
      {{"--vocabsize=3"}, "did you mean --vocab-size?", false, 0, 9},
      {{"-x"}, "two dashes", false, 0, 9},
      {{"--train=1"}, "--train takes no value", false, 0, 9},
      {{"--train", "--train"}, "--train is given twice", false, 0, 9},
      {{"--out"}, "--out needs a value, PREFIX", false, 0, 9},
      {{"--vocab-size", "many"}, "--vocab-size must be an integer from 257 to 1000, not \"many\"", false, 0, 9},
      {{"--vocab-size=256"}, "from 257", false, 0, 9},
      {{"--vocab-size=1001"}, "from 257", false, 0, 9},
      {{"--vocab-size="}, "from 257", false, 0, 9},
      {{"--vocab-size=99999999999999999999"}, "from 257", false, 0, 9},
      {{"--vocab-size= 300"}, "from 257", false, 0, 9},
      {{"--temperature=nan"}, "--temperature must be a number, not \"nan\"", false, 0, 9},
      {{"--temperature=1x"}, "must be a number", false, 0, 9},
      {{"a"}, "--out PREFIX must be given", true, 0, 9},
      {{NULL}, "FILE… is missing; usage: plait tokenize [options] FILE… [key=value …] (see plait", false, 1, 9},
      {{"a", "b"}, "\"b\" is one argument too many; usage: plait tokenize [options] FILE…", false, 0, 1},
      {{"--dtype", "fp23"}, "--dtype must be fp32 or bf16, not \"fp23\"; did you mean fp32?", false, 0, 9},
      {{"--batch.micro", "4"}, "keys of the recipe are written without dashes: batch.micro=VALUE", false, 0, 9},
      {{"--mesh.dp=4"}, "keys of the recipe are written without dashes: mesh.dp=VALUE", false, 0, 9},
      {{"--learning-rate", "1"}, "unknown option --learning-rate; keys of the recipe are written without dashes: "
                                 "optimizer.lr=VALUE", false, 0, 9},
      {{"mesh.dp=4"}, "FILE… is missing before mesh.dp=4; usage: plait tokenize [options] FILE…", false, 1, 9},
      {{"-train"}, "unknown option -train; did you mean --train?", false, 0, 9},
      {{"--obsolet"}, "unknown option --obsolet (see", false, 0, 9},
      {{"--help=html"}, "--help=html: there is no such format", false, 0, 9},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *argv[6] = {"tokenize"};
    for (int j = 0; j < 4 && cases[i].words[j]; j++) argv[j + 1] = (char *)cases[i].words[j];
    char printed[4096];
    int status = parse_quietly(argv, cases[i].required, cases[i].least, cases[i].most, printed, sizeof printed);
    if (status != 2 || !strstr(printed, cases[i].message) || strncmp(printed, "plait tokenize: ", 16))
      fail_msg("case %zu: status %d, %s", i, status, printed);
  }
}

// Each operand that is missing is named; values of options are none.
static void test_operand_names(void **state) {
  static const struct { const char *usage, *name; int index; } cases[] = {
      {"RECIPE [key=value …]", "RECIPE", 0},
      {"[options] CHECKPOINT|RUN|FOLDER --prompt TEXT [key=value …]", "CHECKPOINT|RUN|FOLDER", 0},
      {"--out FOLDER A B", "B", 1},
      {"[A [B …]] C", "C", 0},
      {"[A]", "an argument", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[64];
    operand_name(cases[i].usage, cases[i].index, name, sizeof name);
    assert_string_equal(name, cases[i].name);
  }
}

static void expect_wrapped(const char *text, int at, int indent, int columns, const char *lines) {
  char *got;
  size_t size;
  FILE *out = open_memstream(&got, &size);
  wrap_text(out, text, at, indent, columns);
  fclose(out);
  assert_string_equal(got, lines);
  free(got);
}

static void test_wrap(void **state) {
  expect_wrapped("one two three", 0, 0, 80, "one two three\n");
  expect_wrapped("one two three", 0, 2, 7, "one two\n  three\n");
  expect_wrapped("one two three", 4, 4, 11, "one two\n    three\n");
  expect_wrapped("one\ntwo", 2, 2, 80, "one\n  two\n");
  expect_wrapped("one\n\ntwo", 0, 0, 80, "one\n\ntwo\n");
  expect_wrapped("incomprehensibly a b", 0, 1, 6, "incomprehensibly\n a b\n");
  expect_wrapped("é é é é", 0, 0, 7, "é é é é\n"); // characters, not bytes
  expect_wrapped("", 0, 0, 80, "\n");
}

static void test_help(void **state) {
  char *argv[] = {"tokenize", "--nonsense", "--help", NULL}, printed[4096];
  assert_int_equal(parse_quietly(argv, true, 1, 1, printed, sizeof printed), 0);
  assert_non_null(strstr(printed, "usage: plait tokenize [options] FILE… [key=value …]\n"));
  assert_non_null(strstr(printed, "--vocab-size N   entries (default 300)\n"));
  assert_non_null(strstr(printed, "--out PREFIX     where it goes (must be given)\n"));
  assert_non_null(strstr(printed, "examples:\n  plait tokenize\n"));
  for (const HelpFormat *f = help_formats; f->name; f++) {
    char option[32], *words[] = {"tokenize", option, NULL};
    snprintf(option, sizeof option, "--help=%s", f->name);
    assert_int_equal(parse_quietly(words, true, 1, 1, printed, sizeof printed), 0);
    assert_non_null(strstr(printed, "vocab"));
    assert_null(strstr(printed, "obsolete"));
  }
  char *version[] = {"tokenize", "--version", NULL};
  assert_int_equal(parse_quietly(version, true, 1, 1, printed, sizeof printed), 0);
  assert_string_equal(printed, "plait " PLAIT_VERSION "\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good),
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_bad),
      cmocka_unit_test(test_operand_names),
      cmocka_unit_test(test_wrap),
      cmocka_unit_test(test_help),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
