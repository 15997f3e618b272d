// A line of the plan for each number of machines.
#include "cmd/plan_ranks.h"
#include "base/cores.h"
#include "base/units.h"
#include "setup/setup.h"
#include "train/plan_print.h"

enum { MOST_NODES = 1 << 16, MOST_LINES = 1024 };

static int read_range(const char *text, int *least, int *most, Error *error) {
  int end = 0;
  if (sscanf(text, "%d:%d%n", least, most, &end) != 2 || text[end]) {
    end = 0;
    if (sscanf(text, "%d%n", least, &end) != 1 || text[end]) *least = 0;
    *most = *least;
  }
  if (*least < 1 || *most > MOST_NODES)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--nnodes: \"%.40s\" is neither a number of machines nor MIN:MAX, as in 1:4", text);
  if (*least > *most)
    return error_set(error, PLAIT_BAD_INPUT, "--nnodes %s: the least number is above the most; did you mean %d:%d?",
                     text, *most, *least);
  if (*most - *least < MOST_LINES) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "--nnodes %s: at most %d numbers are planned at a time; take %d:%d", text,
                   MOST_LINES, *least, *least + MOST_LINES - 1);
}

// Of one number of machines.
static int print_line(const Recipe *recipe, const ModelConfig *config, int nodes, int processes, FILE *out,
                      Error *error) {
  Recipe one;
  Job *job = NULL;
  int ranks = nodes * processes, threads = cores_available() / processes;
  int code = recipe_with_ranks(recipe, ranks, &one, error);
  if (!code) code = setup_job(&one, config, &(RunSetting){.threads = threads > 0 ? threads : 1}, &job, error);
  if (!code) {
    const Shares *s = &job_train(job)->shares;
    int used = recipe_rank_count(&one);
    int64_t bytes = plan_most_bytes(&one, config, job);
    fprintf(out, "%8d %6d %6d %8d %13d %10lld %9lld %8.1f %% %14s %14s\n", nodes, ranks, ranks - used, one.mesh.dp,
            s->microbatches, (long long)s->bound, (long long)s->most, 100 * shares_idle(s, 1),
            units_bytes((double)bytes).s, units_bytes((double)bytes * (used < processes ? used : processes)).s);
  }
  job_destroy(job);
  recipe_free(&one);
  return code;
}

static void print_head(const Recipe *r, int processes, FILE *out) {
  fprintf(out,
          "mesh.dp: auto, with pp %d × cp %d × tp %d, %d process%s on each machine; %d sequences a step, at most %d of "
          "a microbatch on a data rank\n",
          r->mesh.pp, r->mesh.cp, r->mesh.tp, processes, processes == 1 ? "" : "es", r->batch.global, r->batch.micro);
  fprintf(out, "%8s %6s %6s %8s %13s %10s %9s %10s %14s %14s\n", "machines", "ranks", "idle", "mesh.dp",
          "microbatches", "sequences", "of a step", "idle time", "memory of a", "at most of");
  fprintf(out, "%8s %6s %6s %8s %13s %10s %9s %10s %14s %14s\n", "", "", "ranks", "", "", "at most", "at most",
          "of these", "rank, at most", "a machine");
}

int plan_ranks(const Recipe *recipe, const char *nodes, int processes, FILE *out, Error *error) {
  int least, most, code = read_range(nodes, &least, &most, error), fit = 0;
  ModelConfig config = {0};
  if (!code && !recipe->dp_is_auto)
    code = error_set(error, PLAIT_BAD_INPUT,
                     "--nnodes says how many machines there may be, but mesh.dp is %d, whatever they are; add "
                     "mesh.dp=auto", recipe->mesh.dp);
  if (!code) code = setup_model_config(recipe, &config, error);
  if (!code) print_head(recipe, processes, out);
  for (int n = least; n <= most && !code; n++) {
    Error none = {0};
    if (!print_line(recipe, &config, n, processes, out, &none)) fit++;
    else fprintf(out, "%8d %6d  %s\n", n, n * processes, none.message);
    if (n == most && !fit) code = error_set(error, none.code, "%s", none.message);
  }
  model_config_free(&config);
  return code;
}
