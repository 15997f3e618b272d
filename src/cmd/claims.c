// plait claims: widely told claims about distributed training, recomputed; --docs prints docs/claims.md.
#include "base/file.h"
#include "base/nearest.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "cli/wrap.h"
#include "foresight/claims.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Counted { double numbers[CLAIM_NUMBERS]; ClaimVerdict verdict; } Counted;

// ---- the folder of recipes/ and models/ -----------------------------------------------------------------------------

static int has_recipes(const char *folder) {
  char *path = xformat("%s/recipes/claims.yaml", folder);
  int found = file_exists(path);
  free(path);
  return found;
}

// Where plait is: the repository's folder has build/plait, an installed one PREFIX/bin/plait.
static char *folder_of_binary(void) {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return NULL;
  path[n] = 0;
  for (int i = 0; i < 2; i++) { // the name, and the folder it is in
    char *slash = strrchr(path, '/');
    if (!slash) return NULL;
    *slash = 0;
  }
  char *installed = xformat("%s/share/plait", path);
  if (has_recipes(installed)) return installed;
  free(installed);
  return has_recipes(path) ? xstrdup(path) : NULL;
}

static int find_folder(char **folder, Error *error) {
  *folder = has_recipes(".") ? xstrdup(".") : folder_of_binary();
  if (*folder) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "recipes/claims.yaml is neither in this folder nor beside plait; run it in plait's repository, or "
                   "install it with make install");
}

// ---- which claims ---------------------------------------------------------------------------------------------------

static int is_chosen(const Claim *claim, const Operands *words) {
  for (int i = 0; i < words->count; i++)
    if (strstr(claim->id, words->words[i])) return 1;
  return !words->count;
}

static int check_words(const Operands *words, Error *error) {
  const char **ids = xcalloc((size_t)claim_count, sizeof *ids);
  int code = PLAIT_OK;
  for (int i = 0; i < claim_count; i++) ids[i] = claims[i].id;
  for (int w = 0; w < words->count && !code; w++) {
    int found = 0;
    for (int i = 0; i < claim_count; i++) found |= strstr(ids[i], words->words[w]) != NULL;
    const char *nearest = found ? NULL : nearest_word(words->words[w], ids, claim_count);
    if (!found)
      code = error_set(error, PLAIT_BAD_INPUT, "no claim's name contains \"%.60s\"%s%s%s", words->words[w],
                       nearest ? "; did you mean " : "; plait claims lists them all", nearest ? nearest : "",
                       nearest ? "?" : "");
  }
  free(ids);
  return code;
}

// ---- text -----------------------------------------------------------------------------------------------------------

enum { LABEL = 14 }; // columns before the text

static void print_text(const char *label, const char *text, int columns) {
  printf("  %-*s", LABEL - 2, label);
  wrap_text(stdout, text, LABEL, LABEL, columns);
}

static void print_claim(const Claim *claim, const Counted *counted, int columns) {
  printf("%s: %s\n", claim->id, claim_verdict_text(counted->verdict));
  char *told = claim_claimed_text(claim), *numbers = claim_numbers_text(claim, counted->numbers, ""),
       *command = claim_command(claim);
  print_text("claim", claim->says, columns);
  print_text("its number", told, columns);
  print_text("plait's", numbers, columns);
  print_text("why", claim->why, columns);
  if (*command) printf("  %-*s%s\n", LABEL - 2, "command", command); // one line, to be copied
  free(told);
  free(numbers);
  free(command);
}

static void print_tally(const Counted *counted, const Operands *words) {
  int tally[CLAIM_CORRECTED + 1] = {0};
  for (int i = 0; i < claim_count; i++)
    if (is_chosen(&claims[i], words)) tally[counted[i].verdict]++;
  for (int v = 0; v <= CLAIM_CORRECTED; v++)
    printf("%s%d %s", v ? ", " : "", tally[v], claim_verdict_text((ClaimVerdict)v));
  putchar('\n');
}

// ---- docs/claims.md -------------------------------------------------------------------------------------------------

enum { DOCS_COLUMNS = 120 };

static void print_docs_table(const Counted *counted) {
  const char *topic = "";
  for (int i = 0; i < claim_count; i++) {
    const Claim *c = &claims[i];
    if (strcmp(topic, c->topic))
      printf("\n## %s\n\n| name | claim | its number | plait's | verdict | why |\n|---|---|---|---|---|---|\n",
             c->topic);
    topic = c->topic;
    char *told = claim_claimed_text(c), *numbers = claim_numbers_text(c, counted[i].numbers, "");
    printf("| `%s` | %s | %s | %s | %s | %s |\n", c->id, c->says, told, numbers,
           claim_verdict_text(counted[i].verdict), c->why);
    free(told);
    free(numbers);
  }
}

static void print_docs_commands(void) {
  printf("\n## Commands\n\n");
  wrap_text(
      stdout,
      "In the repository's folder. `plait plan` prints the numbers of the pipeline rank that has the most. It adds "
      "sums of norms and of the loss, a few bytes, to what is sent.",
      0, 0, DOCS_COLUMNS);
  printf("\n```sh\n");
  for (int i = 0; i < claim_count; i++) {
    char *command = claim_command(&claims[i]);
    if (*command) printf("# %s\n%s\n", claims[i].id, command);
    free(command);
  }
  printf("```\n");
}

static void print_docs(const Counted *counted) {
  printf("# Claims, recomputed\n\n");
  wrap_text(
      stdout,
      "Lectures, blogs and papers tell much about distributed training with numbers. This page has some of that, in "
      "our words, and beside each number plait's. `plait claims --docs` writes the page: it compiles the recipes "
      "of the commands below for all ranks, counts memory and traffic in the Programs that would run, and replays "
      "schedules. No number of plait's stands in its source, and a verdict follows from the two numbers: "
      "*confirmed* where they agree to the digits that are told, *corrected* where they do not. `plait claims "
      "WORD` shows those whose name contains the word.",
      0, 0, DOCS_COLUMNS);
  putchar('\n');
  wrap_text(
      stdout,
      "GB are 10⁹ bytes, Ψ are parameters. Numbers are of a rank, for a step; what a rank sends is counted as ring "
      "algorithms send it, and it receives as much. Claims about the time of a step are simulated "
      "(docs/foresight.md says how far that is to be trusted).",
      0, 0, DOCS_COLUMNS);
  print_docs_table(counted);
  print_docs_commands();
}

// ---- the command ----------------------------------------------------------------------------------------------------

static int count_all(const char *folder, const Operands *words, Counted *counted, Error *error) {
  Claims *compiled = claims_open(folder);
  int code = PLAIT_OK;
  for (int i = 0; i < claim_count && !code; i++) {
    if (!is_chosen(&claims[i], words)) continue;
    code = claims_count(compiled, &claims[i], counted[i].numbers, error);
    counted[i].verdict = claim_verdict(&claims[i], counted[i].numbers);
  }
  claims_close(compiled);
  return code;
}

int cmd_claims(int argc, char **argv) {
  bool docs = false;
  const Option options[] = {{.name = "docs", .value = &docs, .help = "print all of them as docs/claims.md"}};
  const CommandHelp help = {
      "claims", "[options] [WORD…]",
      "Recomputes widely told claims about distributed training: what is told, its number, plait's number, the command "
      "that shows it, and whether the claim holds. plait's numbers are counted in compiled recipes and replayed "
      "schedules. With words, only claims whose name contains one of them.",
      "  plait claims\n"
      "  plait claims zero-2 bubble\n"
      "  plait claims --docs > docs/claims.md\n",
      .takes = TAKES_NOTHING};
  Operands words;
  int status = options_parse(&help, options, COUNT(options), 0, INT_MAX, argc, argv, &words);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  char *folder = NULL;
  Counted *counted = xcalloc((size_t)claim_count, sizeof *counted);
  int code = PLAIT_OK;
  if (docs && words.count) code = error_set(&error, PLAIT_BAD_INPUT, "--docs prints all claims; leave out the words");
  if (!code) code = check_words(&words, &error);
  if (!code) code = find_folder(&folder, &error);
  if (!code) code = count_all(folder, &words, counted, &error);
  if (!code && docs) print_docs(counted);
  for (int i = 0; i < claim_count && !code && !docs; i++) {
    if (!is_chosen(&claims[i], &words)) continue;
    print_claim(&claims[i], &counted[i], wrap_columns(stdout));
    putchar('\n');
  }
  if (!code && !docs) print_tally(counted, &words);
  free(counted);
  free(folder);
  return code ? command_fail("claims", &error) : 0;
}
