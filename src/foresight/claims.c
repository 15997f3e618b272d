// The claims: their table, the recipes that they are counted on, verdicts and the text of numbers.
#include "foresight/claims.h"
#include "base/fault.h"
#include "setup/setup.h"
#include "foresight/claims_count.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the table ------------------------------------------------------------------------------------------------------

#define NUMBERS(...) .numbers = (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), .claimed = {__VA_ARGS__}
#define RUNS(...) .runs = {__VA_ARGS__}
const Claim claims[] = {
#define CLAIM(ID, TOPIC, SAYS, WHY, ...) {.id = ID, .topic = TOPIC, .says = SAYS, .why = WHY, __VA_ARGS__},
#include "foresight/claims.def"
#undef CLAIM
};
const int claim_count = (int)(sizeof claims / sizeof *claims);

// ---- compiled recipes -----------------------------------------------------------------------------------------------

struct Claims {
  char *folder;
  Vec(ClaimRun *) run;
};

Claims *claims_open(const char *folder) {
  Claims *c = xcalloc(1, sizeof *c);
  c->folder = xstrdup(folder);
  return c;
}

static void run_destroy(ClaimRun *run) {
  job_destroy(run->job);
  model_config_free(&run->config);
  recipe_free(&run->recipe);
  free(run->words);
  free(run);
}

void claims_close(Claims *compiled) {
  if (!compiled) return;
  for (int i = 0; i < compiled->run.count; i++) run_destroy(compiled->run.data[i]);
  vec_free(&compiled->run);
  free(compiled->folder);
  free(compiled);
}

// A path in the words is relative to the folder: that of the recipe, and that of a model in model.config=….
static char *word_in_folder(const char *folder, const char *word) {
  static const char key[] = "model.config=";
  if (!strchr(word, '=')) return xformat("%s/%s", folder, word);
  if (!strncmp(word, key, sizeof key - 1)) return xformat("%s%s/%s", key, folder, word + sizeof key - 1);
  return xstrdup(word);
}

static int run_compile(ClaimRun *run, const char *folder, Error *error) {
  enum { MOST_WORDS = 32 };
  char *text = xstrdup(run->words), *words[MOST_WORDS], *rest = text;
  int count = 0;
  for (char *word; (word = strsep(&rest, " "));) {
    CHECK(count < MOST_WORDS, "%s", run->words);
    words[count++] = word_in_folder(folder, word);
  }
  int code = recipe_load(words[0], count - 1, words + 1, &run->recipe, error);
  if (!code) code = setup_model_config(&run->recipe, &run->config, error);
  if (!code) code = setup_job(&run->recipe, &run->config, NULL, &run->job, error);
  for (int i = 0; i < count; i++) free(words[i]);
  free(text);
  return code;
}

static int run_of(Claims *c, const char *words, const ClaimRun **out, Error *error) {
  for (int i = 0; i < c->run.count; i++)
    if (!strcmp(c->run.data[i]->words, words)) return *out = c->run.data[i], PLAIT_OK;
  ClaimRun *run = xcalloc(1, sizeof *run);
  run->words = xstrdup(words);
  int code = run_compile(run, c->folder, error);
  if (code) return run_destroy(run), code;
  vec_push(&c->run, run);
  *out = run;
  return PLAIT_OK;
}

static int run_count(const Claim *claim) {
  int n = 0;
  while (n < CLAIM_RUNS && claim->runs[n]) n++;
  return n;
}

static int measure(const Claim *claim, const ClaimRun *const *run, int runs, double *numbers, Error *error) {
  double first = 1;
  int skip = claim->over_first ? 1 : 0;
  CHECK(claim->numbers == runs - skip, "%s: %d numbers of %d runs", claim->id, claim->numbers, runs);
  int code = skip ? claim->measure(run[0], &first, error) : PLAIT_OK;
  for (int i = 0; i < claim->numbers && !code; i++) {
    code = claim->measure(run[i + skip], &numbers[i], error);
    numbers[i] /= first;
  }
  return code;
}

int claims_count(Claims *compiled, const Claim *claim, double numbers[CLAIM_NUMBERS], Error *error) {
  const ClaimRun *run[CLAIM_RUNS] = {0};
  int runs = run_count(claim), code = PLAIT_OK;
  memset(numbers, 0, sizeof(double) * CLAIM_NUMBERS);
  for (int i = 0; i < runs && !code; i++) {
    char *words = xformat("%s%s%s", claim->common, *claim->runs[i] ? " " : "", claim->runs[i]);
    code = run_of(compiled, words, &run[i], error);
    free(words);
  }
  if (!code) code = claim->count ? claim->count(run, numbers, error) : measure(claim, run, runs, numbers, error);
  return code ? error_prefix(error, "claim %s", claim->id) : PLAIT_OK;
}

// ---- verdicts -------------------------------------------------------------------------------------------------------

ClaimVerdict claim_verdict(const Claim *claim, const double numbers[CLAIM_NUMBERS]) {
  for (int i = 0; i < claim->numbers; i++) {
    double told = claim->claimed[i];
    double off = numbers[i] - told, slack = claim->within * fabs(told);
    bool holds = claim->relation == CLAIM_BELOW ? off < -slack : claim->relation == CLAIM_ABOVE ? off > slack
                                                                                             : fabs(off) <= slack;
    if (FAULT(claims_are_all_confirmed, !holds, 0)) return CLAIM_CORRECTED;
  }
  return CLAIM_CONFIRMED;
}

const char *claim_verdict_text(ClaimVerdict verdict) {
  static const char *const text[] = {[CLAIM_CONFIRMED] = "confirmed",
                                     [CLAIM_CORRECTED] = "corrected"};
  return text[verdict];
}

// ---- text -----------------------------------------------------------------------------------------------------------

// Three digits, whole numbers from a thousand on: "0.273", "16.3", "1,045".
static char *number_text(double x) {
  if (fabs(x) < 999.5) return xformat("%.3g", x);
  long long whole = llround(x);
  if (llabs(whole) >= 1000000) return xformat("%.3g", x);
  return xformat("%lld,%03lld", whole / 1000, llabs(whole) % 1000);
}

char *claim_numbers_text(const Claim *claim, const double numbers[CLAIM_NUMBERS], const char *prefix) {
  char *text = xstrdup("");
  for (int i = 0; i < claim->numbers; i++) {
    char *number = number_text(numbers[i]), *longer = xformat("%s%s%s%s", text, i ? " · " : "", prefix, number);
    free(number);
    free(text);
    text = longer;
  }
  char *whole = xformat("%s%s%s", text, *claim->unit ? " " : "", claim->unit);
  free(text);
  return whole;
}

char *claim_claimed_text(const Claim *claim) {
  static const char *const prefix[] = {[CLAIM_EQUAL] = "", [CLAIM_BELOW] = "less than ", [CLAIM_ABOVE] = "more than "};
  return claim_numbers_text(claim, claim->claimed, prefix[claim->relation]);
}

// The keys of a run in quotation marks, where they are several words; "" where there are none.
static char *loop_words(const Claim *claim) {
  char *text = xstrdup("");
  for (int i = 0; i < run_count(claim); i++) {
    const char *keys = claim->runs[i], *quote = !*keys || strpbrk(keys, " []") ? "'" : "";
    char *longer = xformat("%s %s%s%s", text, quote, keys, quote);
    free(text);
    text = longer;
  }
  return text;
}

char *claim_command(const Claim *claim) {
  const char *tool = claim->tool ? claim->tool : "plan", *after = claim->after ? claim->after : "";
  if (run_count(claim) == 1)
    return xformat("plait %s %s%s%s%s", tool, claim->common, *claim->runs[0] ? " " : "", claim->runs[0], after);
  char *words = loop_words(claim);
  char *command = xformat("for keys in%s; do plait %s %s $keys%s; done", words, tool, claim->common, after);
  free(words);
  return command;
}
