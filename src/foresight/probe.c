// Measures until the time is over: collectives, and kernels in runs of small models.
#include "base/clock.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/signals.h"
#include "machine/cluster_machine.h"
#include "machine/kernel_table.h"
#include "recipe/recipe_device.h"
#include "foresight/probe_links.h"
#include "foresight/probe_state.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// One rank alone with one thread and with all; all cores with ranks of 1, 2, 4 … threads.
static void choose_crews(Probe *p) {
  if (p->comm) {
    int ranks = plait_comm_size(p->comm);
    p->crew[p->crews++] = (Crew){1, p->cores / p->local};
    if (ranks > 1) p->crew[p->crews++] = (Crew){ranks, p->cores / p->local};
    return;
  }
  p->crew[p->crews++] = (Crew){1, 1};
  for (int threads = 1; threads < p->cores && p->crews < MOST_CREWS - 1; threads *= 2)
    p->crew[p->crews++] = (Crew){p->cores / threads, threads};
  if (p->cores > 1) p->crew[p->crews++] = (Crew){1, p->cores};
}


static void show(const Probe *p, const char *what) {
  if (!p->options->out) return;
  fprintf(p->options->out, "\r\033[K%s: %d of %d", what, p->runs, p->of);
  fflush(p->options->out);
}


static int interrupted(Error *error) {
  return signals_stop() ? error_set(error, PLAIT_INTERRUPTED, "interrupted; nothing was written") : PLAIT_OK;
}

static int run_recipes(Probe *p, Error *error) {
  int code = PLAIT_OK;
  for (int c = 0; c < p->crews && !code && p->options->recipe; c++)
    for (int microbatches = 1; microbatches <= 2 && !code; microbatches++) {
      show(p, "kernels of the recipe, run");
      code = probe_recipe_run(p, p->crew[c], microbatches, error);
      if (!code) code = interrupted(error);
    }
  return code;
}

static int pass(Probe *p, int first, Error *error) {
  int code = run_recipes(p, error);
  for (int s = 0; s < probe_shape_count && !code; s++)
    for (int d = 0; d < p->dtypes && !code; d++)
      for (int c = 0; c < p->crews && !code; c++) {
        if (p->options->quick && !probe_shapes[s].quick) continue;
        if (!first && clock_seconds() > p->end) return code;
        show(p, "kernels, run");
        code = probe_shape_run(p, &probe_shapes[s], p->crew[c], p->dtype[d], error);
        p->runs++;
        if (!code) code = interrupted(error);
      }
  return code;
}

static int links(Probe *p, Cluster *c, Error *error) {
  Session *session = NULL;
  if (p->cores < 2 && !p->comm) return PLAIT_OK;
  if (p->options->out) fprintf(p->options->out, "\r\033[Kcollectives"), fflush(p->options->out);
  int code = session_open(&(SessionOptions){.ranks = p->comm ? 0 : p->cores, .comm = p->comm}, &session, error);
  if (!code) code = probe_links(session, p->options->quick, c, error);
  session_close(session);
  return code;
}

int probe(const ProbeOptions *options, Cluster **out, Error *error) {
  Probe p = {.options = options,
             .cores = cores_available(),
             .end = clock_seconds() + options->seconds,
             .helping = 1,
             .local = cores_available(),
             .cache = probe_last_cache(),
             .dtype = {DTYPE_F32, DTYPE_BF16},
             .dtypes = 1};
  p.dtypes += device_cpu()->fast_dtypes >> DTYPE_BF16 & 1;
  const Launch *launch = options->launch && options->launch->world ? options->launch : NULL;
  int threads = 1, joined = launch ? launch_threads(launch, 0, launch->ranks, &threads, error) : PLAIT_OK;
  if (joined) return joined;
  if (launch) {
    p.comm = launch->comm;
    p.local = plait_world_local_size(launch->world);
    p.cores = p.local * threads;
    p.nodes = (launch->ranks + p.local - 1) / p.local;
  }
  choose_crews(&p);
  for (int s = 0; s < probe_shape_count; s++) p.of += options->quick ? probe_shapes[s].quick : 1;
  p.of *= p.dtypes * p.crews;
  const char *tmp = getenv("TMPDIR");
  if (tmp && strlen(tmp) > sizeof p.folder / 2)
    return error_set(error, PLAIT_BAD_INPUT, "TMPDIR has %zu characters; at most %zu are allowed", strlen(tmp),
                     sizeof p.folder / 2);
  snprintf(p.folder, sizeof p.folder, "%s/plait-probe-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(p.folder))
    return error_set(error, PLAIT_FAILED, "%s cannot be created; set TMPDIR to a folder that can be written", p.folder);
  Cluster *c = xcalloc(1, sizeof *c);
  int code = links(&p, c, error), first = 1;
  // Processes must agree on what they do, so they make one pass.
  for (double start = clock_seconds(), took = 0;
       !code && (first || (!p.comm && clock_seconds() + took / 4 < p.end)); first = 0) {
    code = pass(&p, first, error);
    took = clock_seconds() - start;
    start += took;
    if (p.runs >= p.of) p.of += p.of;
  }
  if (options->out) fputs("\r\033[K", options->out);
  if (!code) probe_describe(&p, c);
  if (!code) c->table = kernel_table_create(c);
  if (!code) code = probe_helping(&p, c, error);
  probe_times_free(&p.times);
  vec_free(&p.skew);
  folder_remove(p.folder, NULL);
  if (code) cluster_free(c), c = NULL;
  *out = c;
  return code;
}

int probe_kept(Cluster **out, Error *error) {
  char *path = cluster_machine_path();
  *out = NULL;
  if (!path)
    return error_set(error, PLAIT_BAD_INPUT,
                     "neither XDG_CACHE_HOME nor HOME says where measurements of this machine "
                     "can be kept; name a cluster, or a file that plait probe --out has written");
  if (cluster_machine_is_measured()) {
    Error damage = {0};
    int code = cluster_load(path, out, &damage);
    if (code != PLAIT_BAD_INPUT) {
      if (code) error_set(error, code, "%s", damage.message);
      free(path);
      return code;
    }
    fprintf(stderr, "note: %s\n", damage.message);
  }
  signals_install("stopping; nothing will be kept"); // a temporary folder must go
  fprintf(stderr, "measuring this machine, which takes about a minute; the result is kept in %s\n", path);
  const ProbeOptions options = {.seconds = 60, .out = isatty(2) ? stderr : NULL};
  int code = probe_keep(&options, out, error);
  free(path);
  return code;
}

int probe_keep(const ProbeOptions *options, Cluster **out, Error *error) {
  char *path;
  *out = NULL;
  int code = cluster_machine_prepare(&path, error);
  if (!code) code = probe(options, out, error);
  if (!code) code = cluster_machine_keep(*out, error);
  if (!code) (*out)->path = arena_strdup(&(*out)->arena, path);
  if (code) cluster_free(*out), *out = NULL;
  free(path);
  return code;
}
