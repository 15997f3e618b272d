// plait launch: starts the ranks of a run as processes of this machine, watches them and starts them again.
#include "base/cores.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "comm/net.h"
#include "comm/secret.h"
#include "elastic/supervisor.h"
#include "recipe/recipe.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORKERS = 4096 };

typedef struct Asked {
  const char *workers, *nodes, *rendezvous, *backend, *endpoint, *id, *address, *log_folder;
  int64_t restarts, node_rank;
  double grace;
  bool standalone, tee, no_python;
} Asked;

// What the operands mean ---------------------------------------------------------------------------------------------

typedef struct Job {
  char self[PATH_MAX];
  char **argv;        // of a worker, ended by NULL
  const char *folder; // run.dir; NULL: a program
  Recipe recipe;
  int nproc;
} Job;

static bool sets(const Operands *o, const char *key) {
  size_t n = strlen(key);
  for (int i = 1; i < o->count; i++)
    if (!strncmp(o->words[i], key, n) && o->words[i][n] == '=') return true;
  return false;
}

static int count_workers(const char *text, int otherwise, int *count, Error *error) {
  char *end;
  long n = strtol(text, &end, 10);
  if (!strcmp(text, "auto")) n = otherwise;
  else if (!*text || *end || n < 1 || n > MOST_WORKERS)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--nproc-per-node: \"%.40s\" is neither auto nor a number of processes from 1 to %d", text,
                     MOST_WORKERS);
  *count = (int)n;
  return PLAIT_OK;
}

// Here, before a process is started for nothing. One process may have the ranks as threads.
static int check_mesh(const Recipe *r, bool is_fixed, int workers, Error *error) {
  int ranks = recipe_rank_count(r);
  if (workers == 1) return PLAIT_OK;
  if (is_fixed && ranks != workers)
    return error_set(error, PLAIT_BAD_INPUT,
                     "mesh: pp %d × dp %d × cp %d × tp %d is %d rank%s, but --nproc-per-node %d starts %d; give "
                     "--nproc-per-node %d, or change the mesh",
                     r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp, ranks, ranks == 1 ? "" : "s", workers, workers,
                     ranks);
  if (!net_is_built())
    return error_set(
        error, PLAIT_BAD_INPUT,
        "--nproc-per-node %d: processes that plait launch starts talk by UCX, without which this plait was "
        "built; install it (on Debian libucx-dev) and build again, with -DPLAIT_UCX=ON to be sure",
        workers);
  return PLAIT_OK;
}

// Ranks of several processes are net's, whatever the recipe says, which may be written for threads.
static int plan_training(Job *job, const Asked *asked, const Operands *o, Error *error) {
  int code = recipe_load(o->words[0], o->count - 1, o->words + 1, &job->recipe, error), n = 0;
  bool is_fixed = !code && job->recipe.plan == RECIPE_PLAN_FIXED && !job->recipe.dp_is_auto;
  int ranks = is_fixed ? recipe_rank_count(&job->recipe) : cores_available();
  if (!code) code = count_workers(asked->workers, ranks, &job->nproc, error);
  if (!code) code = recipe_set_ranks(&job->recipe, job->nproc, error); // refused here rather than by each process
  if (!code) code = check_mesh(&job->recipe, is_fixed, job->nproc, error);
  if (code) return code;
  ssize_t length = readlink("/proc/self/exe", job->self, sizeof job->self - 1);
  if (length < 0) return error_set(error, PLAIT_FAILED, "/proc/self/exe: %s", strerror(errno));
  job->folder = job->recipe.run.dir;
  job->argv = xcalloc((size_t)o->count + 5, sizeof *job->argv);
  job->argv[n++] = job->self;
  job->argv[n++] = "train";
  job->argv[n++] = o->words[0];
  if (job->nproc > 1 && !sets(o, "run.comm")) job->argv[n++] = "run.comm=net";
  for (int i = 1; i < o->count; i++) job->argv[n++] = o->words[i];
  return PLAIT_OK;
}


// What torchrun's flags mean, as far as one machine goes --------------------------------------------------------------

static int check_nodes(const Asked *a, Error *error) {
  int least = 0, most = 0, end = 0;
  if (sscanf(a->nodes, "%d:%d%n", &least, &most, &end) != 2 || a->nodes[end]) {
    end = 0;
    if (sscanf(a->nodes, "%d%n", &least, &end) != 1 || a->nodes[end]) least = 0;
    most = least;
  }
  if (least < 1 || most < 1)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--nnodes: \"%.40s\" is neither a number of machines nor MIN:MAX, as in 1:4", a->nodes);
  if (least > most)
    return error_set(error, PLAIT_BAD_INPUT, "--nnodes %s: the least number is above the most; did you mean %d:%d?",
                     a->nodes, most, least);
  if (most > 1)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--nnodes %s: runs over several machines are not built yet; start the ranks by mpirun, srun or "
                     "torchrun, or leave --nnodes out",
                     a->nodes);
  return PLAIT_OK;
}

static int check(const Asked *a, Error *error) {
  int code = check_nodes(a, error);
  if (code) return code;
  if (a->backend && !strncmp(a->backend, "etcd", 4))
    return error_set(error, PLAIT_BAD_INPUT, "--rdzv-backend %s is not built yet; leave it out, or say c10d",
                     a->backend);
  if (a->backend && strcmp(a->backend, "c10d") && strcmp(a->backend, "static"))
    return error_set(error, PLAIT_BAD_INPUT, "--rdzv-backend: \"%.40s\" is neither c10d nor static", a->backend);
  if (a->node_rank)
    return error_set(error, PLAIT_BAD_INPUT, "--node-rank %lld, but --nnodes says that there is one machine, number 0",
                     (long long)a->node_rank);
  if (a->tee && !a->log_folder)
    return error_set(error, PLAIT_BAD_INPUT, "--tee copies to the console what goes to files; give --log-dir DIR, too");
  return PLAIT_OK;
}

static int plan_program(Job *job, const Asked *asked, char **program, Error *error) {
  if (!program[0]) return error_set(error, PLAIT_BAD_INPUT, "-- is not followed by a program");
  job->argv = program;
  return count_workers(asked->workers, cores_available(), &job->nproc, error);
}

static int launch(const Asked *a, const Operands *operands, char **program, int *status, Error *error) {
  Job job = {.nproc = 1};
  int code = check(a, error);
  if (!code) code = program ? plan_program(&job, a, program, error) : plan_training(&job, a, operands, error);
  LaunchOptions options = {.argv = job.argv,
                           .trains = !program,
                           .workers = job.nproc,
                           .most_restarts = (int)a->restarts,
                           .grace = a->grace,
                           .id = a->id,
                           .address = a->address,
                           .log_folder = a->log_folder,
                           .tee = a->tee,
                           .run_folder = job.folder};
  if (!code) code = launch_supervise(&options, status, error);
  if (!program) free(job.argv);
  recipe_free(&job.recipe);
  return code;
}

// Of all that this process starts and serves, by the environment. PLAIT_BAD_INPUT: no good secret.
static int use_secret(const char *path, const char *interface, Error *error) {
  char whole[PATH_MAX];
  Secret secret;
  if (interface) setenv("UCX_NET_DEVICES", interface, 1);
  if (!path) return PLAIT_OK;
  int code = secret_read(path, &secret, error);
  if (!code && !realpath(path, whole))
    code = error_set(error, PLAIT_BAD_INPUT, "--secret %s: %s", path, strerror(errno));
  if (!code) setenv("PLAIT_SECRET", whole, 1); // workers may have another folder
  return code;
}

static const char summary[] =
    "Starts the ranks of a run as processes of this machine, without MPI, and watches them. If one fails, plait launch "
    "says which and how, ends all of them and, up to --max-restarts times, starts them again: training resumes from "
    "its last checkpoint. RUN/launch.jsonl has a line for each start.\n"
    "After -- comes any program that is to run once for each rank. It finds its rank in torchrun's variables (RANK, "
    "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT …), and plait_world_launched_create its world.\n"
    "Ctrl-C and SIGTERM go on to the processes, which save a checkpoint and end. If plait launch is killed, they are "
    "killed, too.";

int cmd_launch(int argc, char **argv) {
  const char *secret = NULL, *made = NULL, *interface = NULL;
  Asked a = {.workers = "1", .nodes = "1", .id = "plait", .grace = 5};
  const Option options[] = {
      {"nproc-per-node", OPTION_TEXT, &a.workers, "N",
       "processes to start; auto: the ranks of the recipe's mesh, or "
       "with mesh.dp auto and for a program the cores",
       .shown = "1"},
      {"max-restarts", OPTION_INTEGER, &a.restarts, "K", "how often all are started again after a failure", .least = 0,
       .most = INT_MAX},
      {"log-dir", OPTION_TEXT, &a.log_folder, "DIR", "what processes print goes to DIR/round-R/rank-N.out and .err"},
      {.name = "tee", .value = &a.tee, .help = "… and to the console, each line after its rank"},
      {"grace", OPTION_REAL, &a.grace, "SECONDS", "from SIGTERM to SIGKILL, when all are ended", .least = 0,
       .most = 86400},
      {"nnodes", OPTION_TEXT, &a.nodes, "N", "machines; only 1 is built yet", .shown = "1"},
      {.name = "standalone", .value = &a.standalone, .help = "this machine alone, as always yet"},
      {"rdzv-id", OPTION_TEXT, &a.id, "ID", "the job's name, for TORCHELASTIC_RUN_ID", .shown = "plait"},
      {"rdzv-backend", OPTION_TEXT, &a.backend, "NAME", "torchrun's: c10d or static; changes nothing on one machine"},
      {"rdzv-endpoint", OPTION_TEXT, &a.endpoint, "HOST:PORT", "torchrun's; changes nothing on one machine"},
      {"node-rank", OPTION_INTEGER, &a.node_rank, "N", "torchrun's: this machine's number, 0", .least = 0,
       .most = MOST_WORKERS},
      {"local-addr", OPTION_TEXT, &a.address, "ADDRESS", "this machine's address for MASTER_ADDR",
       .shown = "127.0.0.1"},
      {"secret", OPTION_TEXT, &secret, "FILE",
       "32 random bytes that all machines of the job have; then its processes talk by TLS, and let in nobody without "
       "it"},
      {"make-secret", OPTION_TEXT, &made, "FILE", "makes such a file, and starts nothing"},
      {"iface", OPTION_TEXT, &interface, "NAME", "the network interface for messages (UCX_NET_DEVICES)"},
      {.name = "no-python", .value = &a.no_python}, // torchrun's, which says what is always so here
  };
  const CommandHelp help = {
      "launch", "[options] RECIPE [key=value …]", summary,
      "  plait launch --nproc-per-node 2 --max-restarts 3 my.yaml mesh.dp=2\n"
      "  plait launch --nproc-per-node auto --log-dir logs --tee my.yaml\n"
      "  plait launch --nproc-per-node 4 -- ./program arguments\n"
      "  plait launch --make-secret key\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  char **program = NULL;
  int words = 1, status = 0;
  while (words < argc && strcmp(argv[words], "--")) words++;
  if (words < argc) program = argv + words + 1;
  int code = options_parse(&help, options, COUNT(options), 0, program ? 0 : INT_MAX, words, argv, &operands);
  if (code != OPTIONS_OK) return code;
  Error error = {0};
  if (made) {
    code = secret_make(made, &error);
    return code ? command_fail("launch", &error) : 0;
  }
  if (!program && !operands.count)
    error_set(&error, PLAIT_BAD_INPUT, "a recipe is missing: plait launch [options] RECIPE [key=value …]");
  code = error.code ? error.code : use_secret(secret, interface, &error);
  if (!code) code = launch(&a, &operands, program, &status, &error);
  return code ? command_fail("launch", &error) : status;
}
