// plait slurm: writes the batch script of a run, and submits it.
#include "base/file.h"
#include "base/node_list.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "cmd/slurm_array.h"
#include "elastic/batch_script.h"
#include "plait/plait.h"
#include "recipe/recipe.h"
#include "train/run_times.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NODES = 65536, MOST_TASKS = 4096, MOST_LEAD = 65535, MOST_CHAIN = 1000, STORES = 3 };

typedef struct Asked {
  const char *nodes, *time, *lead, *array, *out, *secret;
  int64_t tasks, restarts, chain;
  bool submit, insecure, encrypts, stores;
} Asked;

// The parts of the script. Paths are owned.
typedef struct Plan {
  BatchScript script;
  Recipe recipe;
  SlurmArray array;
  char *plait, *recipe_path, *folder, *name;
  double seconds; // of the time limit
} Plan;

// Options ------------------------------------------------------------------------------------------------------------

// Slurm's: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
static int read_time(const char *text, double *seconds, Error *error) {
  const char *dash = strchr(text, '-'), *at = dash ? dash + 1 : text;
  double number[3] = {0}, days = dash ? atof(text) : 0;
  int count = 0, good = strspn(text, "0123456789:-") == strlen(text) && strlen(text) < 24 && dash != text;
  for (; good && count < 3; at++) {
    size_t digits = strspn(at, "0123456789");
    number[count++] = atof(at);
    at += digits;
    good = digits && (*at == ':' || !*at);
    if (!*at) break;
  }
  if (!good || *at)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--time: \"%.40s\" is not a time limit; give minutes, hours:minutes:seconds or days-hours, as in "
                     "4:00:00",
                     text);
  int first = dash || count == 3 ? 0 : 1; // of hours, minutes, seconds
  *seconds = 24 * 3600 * days;
  for (int i = 0; i < count; i++) *seconds += number[i] * (double[]){3600, 60, 1}[first + i];
  if (*seconds > 0) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "--time %s is not a time; without a limit there is nothing to save before",
                   text);
}

static int read_nodes(const char *text, BatchScript *s, Error *error) {
  int end = 0, *least = &s->least_nodes, *most = &s->most_nodes;
  if (sscanf(text, "%d%*1[:-]%d%n", least, most, &end) != 2 || text[end]) {
    end = 0;
    if (sscanf(text, "%d%n", least, &end) != 1 || text[end]) *least = 0;
    *most = *least;
  }
  if (*least < 1 || *most < 1 || *least > MOST_NODES || *most > MOST_NODES)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--nodes: \"%.40s\" is neither a number of machines nor MIN:MAX, as in 2:4", text);
  if (*least > *most)
    return error_set(error, PLAIT_BAD_INPUT, "--nodes %s: the least number is above the most; did you mean %d:%d?",
                     text, *most, *least);
  return PLAIT_OK;
}

// With a mesh that is given, the fewest machines must have its ranks; more are spares.
static int check_mesh(const Recipe *r, const BatchScript *s, Error *error) {
  int64_t ranks = recipe_rank_count(r), least = (int64_t)s->least_nodes * s->tasks,
          most = (int64_t)s->most_nodes * s->tasks;
  if (r->plan != RECIPE_PLAN_FIXED || ranks < 1 || most == 1) return PLAIT_OK;
  if (least == most ? ranks == most : ranks <= least) return PLAIT_OK;
  char machines[64];
  if (least == most) snprintf(machines, sizeof machines, "are %lld", (long long)most);
  else snprintf(machines, sizeof machines, "are %lld to %lld", (long long)least, (long long)most);
  return error_set(
      error, PLAIT_BAD_INPUT,
      "mesh: pp %d × dp %d × cp %d × tp %d is %lld rank%s, but --nodes %d:%d with --ntasks-per-node %d %s; "
      "change the mesh, or give --nodes and --ntasks-per-node so that they are %lld",
      r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp, (long long)ranks, ranks == 1 ? "" : "s", s->least_nodes,
      s->most_nodes, s->tasks, machines, (long long)ranks);
}

// The lead -----------------------------------------------------------------------------------------------------------

// Twice what has been measured, and half a minute; without measurements five minutes, or a quarter of a short limit.
static int choose_lead(const RunTimes *times, double limit) {
  double lead = times->known ? fmax(60, 10 * ceil((2 * run_times_to_stop(times) + 30) / 10)) : fmin(300, limit / 4);
  return (int)fmax(1, fmin(fmin(lead, limit / 2), MOST_LEAD));
}

static int find_lead(const Asked *a, Plan *p, Error *error) {
  RunTimes times = run_times_read(p->recipe.run.dir);
  char *end;
  double needed = run_times_to_stop(&times);
  long lead = strtol(a->lead, &end, 10);
  if (!strcmp(a->lead, "auto")) lead = choose_lead(&times, p->seconds);
  else if (!*a->lead || *end || lead < 1 || lead > MOST_LEAD)
    return error_set(error, PLAIT_BAD_INPUT, "--lead: \"%.40s\" is neither auto nor a number of seconds from 1 to %d",
                     a->lead, MOST_LEAD);
  if ((double)lead >= p->seconds)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--lead %ld: --time %s is %.0f s, all of which would be before the signal; give less, or auto",
                     lead, a->time, p->seconds);
  p->script.lead = (int)lead;
  if (times.known && (double)lead < needed)
    fprintf(stderr,
            "note: the signal comes %ld s before the time is up, but a step has taken %s and a checkpoint %s, so that "
            "the last steps may be lost; give --lead %.0f, or auto\n",
            lead, units_duration(times.step).s, units_duration(times.save).s, ceil(2 * needed));
  if ((double)lead + 60 >= p->seconds)
    fprintf(stderr,
            "note: Slurm may send the signal up to 60 s early: of %.0f s there may be none left to train, since --lead "
            "is %ld\n",
            p->seconds, lead);
  return PLAIT_OK;
}

// The plan -----------------------------------------------------------------------------------------------------------

static int find_paths(const Asked *a, const Operands *o, Plan *p, Error *error) {
  BatchScript *s = &p->script;
  p->plait = realpath("/proc/self/exe", NULL);
  p->recipe_path = realpath(o->words[0], NULL);
  p->folder = getcwd(NULL, 0);
  if (!p->plait || !p->recipe_path || !p->folder)
    return error_set(error, PLAIT_FAILED, "%s: no path leads there: %s", o->words[0], strerror(errno));
  const char *slash = strrchr(p->recipe.run.dir, '/');
  p->name = xstrdup(slash && slash[1] ? slash + 1 : "plait");
  s->plait = p->plait;
  s->recipe = p->recipe_path;
  s->folder = p->folder;
  s->name = p->name;
  s->version = plait_version();
  s->time = a->time;
  return PLAIT_OK;
}

static int plan_launch(const Asked *a, BatchScript *s, Error *error) {
  char restarts[32];
  snprintf(restarts, sizeof restarts, "%lld", (long long)a->restarts);
  if (a->restarts) words_add(&s->launch, "--max-restarts"), words_add(&s->launch, restarts);
  if (a->secret) words_add(&s->launch, "--secret"), words_add(&s->launch, a->secret);
  if (a->insecure) words_add(&s->launch, "--insecure");
  if (a->encrypts) words_add(&s->launch, "--encrypt");
  if (a->encrypts && !a->secret)
    return error_set(error, PLAIT_BAD_INPUT, "--encrypt needs a secret as its key; give --secret FILE as well");
  if (a->secret && a->insecure)
    return error_set(error, PLAIT_BAD_INPUT, "--secret and --insecure contradict each other; leave one out");
  if (s->most_nodes > 1 && !a->secret && !a->insecure)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "--nodes %s: supervisors of several machines talk over the network; give --secret FILE, or --insecure "
        "where everybody in that network may be trusted",
        a->nodes);
  return PLAIT_OK;
}

static int plan(const Asked *a, const Operands *o, char **further, int further_count, Plan *p, Error *error) {
  BatchScript *s = &p->script;
  s->tasks = (int)a->tasks;
  s->requeues = !a->chain;
  int code = recipe_load(o->words[0], o->count - 1, o->words + 1, &p->recipe, error);
  if (!code) code = read_nodes(a->nodes, s, error);
  if (!code) code = read_time(a->time, &p->seconds, error);
  if (!code) code = check_mesh(&p->recipe, s, error);
  if (!code) code = plan_launch(a, s, error);
  if (!code) code = find_lead(a, p, error);
  if (!code) code = find_paths(a, o, p, error);
  if (code) return code;
  for (int i = 1; i < o->count; i++) words_add(&s->keys, o->words[i]);
  for (int i = 0; i < further_count; i++) words_add(&s->options, further[i]);
  if (!a->array) return PLAIT_OK;
  code = slurm_array_read(a->array, o, &p->recipe, &p->array, error);
  s->runs = p->array.runs;
  s->run_count = p->array.count;
  return code;
}

static void plan_free(Plan *p) {
  words_free(&p->script.keys);
  words_free(&p->script.launch);
  words_free(&p->script.options);
  slurm_array_free(&p->array);
  recipe_free(&p->recipe);
  free(p->plait);
  free(p->recipe_path);
  free(p->folder);
  free(p->name);
}

// Writing and submitting ----------------------------------------------------------------------------------------------

static int write_file(const Plan *p, const char *path, Error *error) {
  AtomicFile file;
  int code = file_begin(&file, path, error);
  if (code) return code;
  code = batch_script_write(&p->script, file.stream, error);
  if (!code) return file_commit(&file, error);
  file_abandon(&file);
  return code;
}

static int submit(const Plan *p, const char *path, int64_t jobs, Error *error) {
  char id[64] = "", before[64];
  int code = PLAIT_OK;
  for (int64_t i = 0; i < jobs && !code; i++) {
    memcpy(before, id, sizeof before);
    code = batch_script_submit(path, *before ? before : NULL, id, error);
    if (!code && *before) printf("job %s, after job %s has ended\n", id, before);
    else if (!code)
      printf("job %s: %s; the signal comes %d s before %s are over\n", id, path, p->script.lead, p->script.time);
  }
  return code;
}

static int write_script(const Asked *a, const Plan *p, Error *error) {
  if (!a->out && !a->submit) return batch_script_write(&p->script, stdout, error);
  char *own = a->out ? NULL : xformat("%s/slurm.sh", p->recipe.run.dir);
  const char *path = a->out ? a->out : own;
  int code = a->out ? PLAIT_OK : folder_create_given(p->recipe.run.dir, error);
  if (!code) code = write_file(p, path, error);
  if (!code && a->submit) code = submit(p, path, a->chain ? a->chain : 1, error);
  free(own);
  return code;
}

// In the job: where the stores of its rendezvous are ------------------------------------------------------------------

// A port of this job, below those that supervisors take for ranks.
static int port_of_job(void) {
  const char *job = getenv("SLURM_JOB_ID");
  return 15000 + (int)(job ? strtoul(job, NULL, 10) % 5000 : 0);
}

static int print_stores(Error *error) {
  const char *text = getenv("SLURM_JOB_NODELIST");
  NodeList nodes;
  if (!text || !*text)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--stores: SLURM_JOB_NODELIST is not set; this belongs into a job of Slurm");
  int code = node_list_parse("SLURM_JOB_NODELIST", text, &nodes, error);
  if (code) return code;
  for (int i = 0; i < nodes.count && i < STORES; i++) printf("%s%s:%d", i ? "," : "", nodes.name[i], port_of_job());
  putchar('\n');
  node_list_free(&nodes);
  return PLAIT_OK;
}

static int run(const Asked *a, const Operands *o, char **further, int further_count, Error *error) {
  Plan p = {0};
  if (a->stores) return print_stores(error);
  if (!o->count) return error_set(error, PLAIT_BAD_INPUT, "RECIPE is missing; plait slurm --help shows how to call it");
  if (!a->time)
    return error_set(error, PLAIT_BAD_INPUT, "--time is missing, the limit of the job, as in --time 4:00:00");
  if (a->chain && !a->submit)
    return error_set(error, PLAIT_BAD_INPUT, "--chain submits jobs that follow each other; give --submit, too");
  int code = plan(a, o, further, further_count, &p, error);
  if (!code) code = write_script(a, &p, error);
  plan_free(&p);
  return code;
}

static const char summary[] =
    "Writes a batch script for a run: on each machine srun starts one plait launch, which starts the ranks. LEAD "
    "seconds "
    "before the time is up Slurm signals the run: it saves a checkpoint and ends with status 75, and the script "
    "requeues "
    "the job, which then resumes. scancel saves the run and ends it. After -- come further options of sbatch.\n"
    "With --array each line of FILE is a run with its own keys and its own run.dir (RUN/1, RUN/2, … unless the line "
    "says "
    "another), and each is requeued alone; plait runs RUN shows them. Where requeueing is off, --chain N submits N "
    "jobs "
    "that follow each other, whatever becomes of the one before.\n"
    "--lead auto takes twice what the longest step and two checkpoints of the run have taken; of a run that has not "
    "begun, "
    "five minutes.";

int cmd_slurm(int argc, char **argv) {
  Asked a = {.nodes = "1", .tasks = 1, .lead = "auto", .restarts = 3};
  const Option options[] = {
      {"nodes", OPTION_TEXT, &a.nodes, "N|MIN:MAX", "machines of the job", .shown = "1"},
      {"ntasks-per-node", OPTION_INTEGER, &a.tasks, "N", "ranks of each machine", .least = 1, .most = MOST_TASKS},
      {"time", OPTION_TEXT, &a.time, "TIME", "the limit of the job, as sbatch takes it: 90, 4:00:00, 2-12"},
      {"lead", OPTION_TEXT, &a.lead, "SECONDS|auto", "from the signal to the limit", .shown = "auto"},
      {.name = "submit",
       .value = &a.submit,
       .help = "give the script to sbatch; it lies at run.dir/slurm.sh, or --out"},
      {"out", OPTION_TEXT, &a.out, "FILE", "where the script goes", .shown = "standard output"},
      {"chain", OPTION_INTEGER, &a.chain, "N", "submit N jobs, each after the one before, which are never requeued",
       .least = 1, .most = MOST_CHAIN, .shown = "none"},
      {"array", OPTION_TEXT, &a.array, "FILE", "a run for each line of key=value …"},
      {"max-restarts", OPTION_INTEGER, &a.restarts, "K", "of plait launch: restarts after failures within a job",
       .least = 0, .most = INT_MAX},
      {"secret", OPTION_TEXT, &a.secret, "FILE", "of plait launch: the key of the machines"},
      {.name = "insecure", .value = &a.insecure, .help = "of plait launch: machines talk without a key"},
      {.name = "encrypt", .value = &a.encrypts, .help = "of plait launch: what they compute with goes by TLS"},
      {.name = "stores", .value = &a.stores, .help = "in a job: print HOST:PORT of its first machines, for --rdzv"},
  };
  const CommandHelp help = {
      "slurm", "[options] RECIPE [key=value …]", summary,
      "  plait slurm my.yaml --ntasks-per-node 8 --time 4:00:00 --submit -- --partition=long --gres=gpu:8\n"
      "  plait slurm my.yaml --nodes 2:4 --ntasks-per-node 2 --time 2-0 --insecure --out job.sh\n"
      "  plait slurm my.yaml --time 90 --array sweep.txt --submit\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int words = 1;
  while (words < argc && strcmp(argv[words], "--")) words++;
  int code = options_parse(&help, options, COUNT(options), 0, INT_MAX, words, argv, &operands);
  if (code != OPTIONS_OK) return code;
  Error error = {0};
  int further = words < argc ? argc - words - 1 : 0;
  code = run(&a, &operands, argv + argc - further, further, &error);
  return code ? command_fail("slurm", &error) : 0;
}
