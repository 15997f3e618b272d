// One rank's runs, each made once.
#include "one_rank.h"
#include "corpora.h"
#include <math.h>
#include <string.h>

typedef struct Kept { ParityCase c; char *corpus, *settings, *more_settings; ParityResult result; } Kept;
static Vec(Kept *) kept; // of this test program; results stay where they are

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

void one_rank_settings(const char *settings, char *out, size_t size) {
  static const char *const of_meshes[] = {"parallel.",     "layout.",      "mesh.",
                                           "batch.balance=", "batch.micro=", "moe.chunks="};
  out[0] = 0;
  for (size_t n; *settings; settings += n + strspn(settings + n, " ")) {
    int meshes = 0;
    size_t k = strlen(out);
    n = strcspn(settings, " ");
    for (size_t i = 0; i < sizeof of_meshes / sizeof *of_meshes; i++) meshes |= starts(settings, of_meshes[i]);
    if (!meshes || starts(settings, "parallel.grad_dtype=")) snprintf(out + k, size - k, "%.*s ", (int)n, settings);
  }
}

static int alike(const ParityCase *a, const ParityCase *b) {
  return !strcmp(a->model, b->model) && a->precision == b->precision && a->steps == b->steps && a->seq == b->seq &&
         a->layers == b->layers && a->global == b->global && a->poison == b->poison && a->config == b->config &&
         a->records == b->records && a->follows == b->follows && !strcmp(a->settings, b->settings) &&
         !strcmp(a->more_settings, b->more_settings);
}

const ParityResult *one_rank_run(const ParityCase *c, const char *corpus, int *fresh) {
  char settings[512];
  one_rank_settings(c->settings ? c->settings : "", settings, sizeof settings);
  ParityCase one = {.name = "one rank",
                    .model = c->model,
                    .dp = 1,
                    .tp = 1,
                    .pp = 1,
                    .micro = c->global ? c->global : 16,
                    .precision = c->precision,
                    .steps = c->steps,
                    .global = c->global,
                    .seq = c->seq,
                    .layers = c->layers,
                    .settings = settings,
                    .more_settings = c->more_settings ? c->more_settings : "",
                    .config = c->config,
                    .records = c->records,
                    .follows = c->follows,
                    .poison = c->poison};
  for (int i = 0; i < kept.count; i++)
    if (alike(&kept.data[i]->c, &one) && !strcmp(kept.data[i]->corpus, corpus)) {
      if (fresh) *fresh = 0;
      return &kept.data[i]->result;
    }
  Kept *k = xcalloc(1, sizeof *k);
  Error error = {0};
  CHECK(!parity_run(&one, corpus, &k->result, &error), "%s", error.message);
  k->c = one;
  k->corpus = xstrdup(corpus);
  k->c.settings = k->settings = xstrdup(settings);
  k->c.more_settings = k->more_settings = xstrdup(one.more_settings);
  vec_push(&kept, k);
  if (fresh) *fresh = 1;
  return &k->result;
}

void one_rank_forget(void) {
  for (int i = 0; i < kept.count; i++) {
    parity_free(&kept.data[i]->result);
    free(kept.data[i]->corpus);
    free(kept.data[i]->settings);
    free(kept.data[i]->more_settings);
    free(kept.data[i]);
  }
  vec_free(&kept);
}

int one_rank_end(void **state) {
  one_rank_forget();
  return corpora_remove(state);
}

// Is a norm that the run reported off from that of the gradients that it left? Not asked where updates in backward have
// no common norm.
static int wrong_norm(const ParityCase *c, const ParityResult *r) {
  int wrong = 0;
  for (int i = 0; i < PARITY_GRADIENTS && i < r->steps; i++) {
    double norm = parity_norm(r, i), difference = fabs(r->norm[i] - norm) / fmax(norm, 1e-300);
    if (r->skipped[i] || difference <= (c->precision == DTYPE_F64 ? 1e-12 : 1e-5)) continue;
    printf("%s, %s: the norm of step %d is off by %.1e from its gradients'  WRONG\n", c->model, c->name, i + 1,
           difference);
    wrong = 1;
  }
  return wrong;
}

int one_rank_differs(const ParityCase *c, const char *corpus, ParityResult *result) {
  const ParityResult *one = one_rank_run(c, corpus, NULL);
  ParityResult got;
  Error error = {0};
  if (result) *result = (ParityResult){0};
  if (parity_run(c, corpus, &got, &error)) return printf("%s, %s: %s  WRONG\n", c->model, c->name, error.message), 1;
  ParityTolerance t = parity_tolerance(c, one);
  ParityDifference d = parity_compare(&got, one, &t);
  const char *initial = parity_first_different(&got, one, DUMP_INITIAL);
  if (initial) printf("%s, %s: begins with other bits: %s  WRONG\n", c->model, c->name, initial);
  int wrong = parity_report(c, &d, &t, 1) + wrong_norm(c, &got) + wrong_norm(c, one) + (initial != NULL);
  if (result) *result = got;
  else parity_free(&got);
  return wrong > 0;
}
