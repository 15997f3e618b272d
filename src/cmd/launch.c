// plait launch: starts the ranks of a run as processes of this machine, watches them and starts them again.
#include "base/cores.h"
#include "base/descriptors.h"
#include "base/endpoint.h"
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/launch_interface.h"
#include "cmd/launch_torchrun.h"
#include "cli/options.h"
#include "comm/net.h"
#include "net/secret.h"
#include "elastic/job_state.h"
#include "elastic/job_store.h"
#include "elastic/supervisor.h"
#include "recipe/recipe.h"
#include "runtime/launch.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORKERS = 4096 };

typedef struct Asked {
  const char *workers, *nodes, *rendezvous, *backend, *endpoint, *conf, *id, *address, *log_folder, *tee;
  int64_t restarts, node_rank;
  double grace, silence, patience, interval;
  bool standalone, no_python, insecure;
  int least, most; // machines, from `nodes`
  bool is_open;    // a store that other machines reach
} Asked;

// What the operands mean ---------------------------------------------------------------------------------------------

typedef struct LaunchedJob {
  char self[PATH_MAX];
  char **argv;        // of a worker, ended by NULL
  const char *folder; // run.dir; NULL: a program
  Recipe given, recipe; // as it was loaded; and its variant for the ranks, where these are known
  int nproc;
  bool net;           // ranks talk by net. The recipe.yaml of the run keeps what the user wrote, perhaps for threads
  int ranks, unit;    // that the mesh has, or 0: a multiple of unit
  char *what;         // all that the machines must have in common (elastic/job_what.h)
  char number[20];    // of that
} LaunchedJob;

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

// A mesh that the machines can never form would wait for ever. They are taken to start as many processes as this one
// does; where that differs, a larger MAX lets it wait.
static int check_machines(const Recipe *r, int workers, const Asked *asked, Error *error) {
  int least = r->dp_is_auto ? r->mesh.pp * r->mesh.cp * r->mesh.tp : recipe_rank_count(r);
  int each = (least + asked->most - 1) / asked->most;
  char mesh[120];
  if (asked->most == 1 || r->plan != RECIPE_PLAN_FIXED || (long long)asked->most * workers >= least) return PLAIT_OK;
  if (r->dp_is_auto)
    snprintf(mesh, sizeof mesh, "mesh: pp %d × cp %d × tp %d takes a multiple of %d ranks", r->mesh.pp, r->mesh.cp,
             r->mesh.tp, least);
  else
    snprintf(mesh, sizeof mesh, "mesh: pp %d × dp %d × cp %d × tp %d is %d ranks", r->mesh.pp, r->mesh.dp, r->mesh.cp,
             r->mesh.tp, least);
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s, but %d machines with --nproc-per-node %d start %d; give --nproc-per-node %d or --nnodes %d, or "
                   "change the mesh",
                   mesh, asked->most, workers, asked->most * workers, each, (least + workers - 1) / workers);
}

// Here, before a process is started for nothing. One process may have the ranks as threads.
static int check_mesh(const Recipe *r, bool is_fixed, const Asked *asked, int workers, Error *error) {
  int ranks = recipe_rank_count(r);
  if (workers == 1 && asked->most == 1) return PLAIT_OK;
  if (is_fixed && ranks != workers && asked->most == 1)
    return error_set(error, PLAIT_BAD_INPUT,
                     "mesh: pp %d × dp %d × cp %d × tp %d is %d rank%s, but --nproc-per-node %d starts %d; give "
                     "--nproc-per-node %d, or change the mesh",
                     r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp, ranks, ranks == 1 ? "" : "s", workers, workers,
                     ranks);
  if (check_machines(r, workers, asked, error)) return PLAIT_BAD_INPUT;
  return PLAIT_OK;
}

// mesh.dp: auto takes any multiple of the ranks that one row of data ranks has; else there is one number.
static void plan_ranks(LaunchedJob *job) {
  const Recipe *r = &job->recipe;
  if (!r->dp_is_auto) job->ranks = recipe_rank_count(r);
  else job->unit = r->mesh.pp * r->mesh.cp * r->mesh.tp;
}

// Ranks of several processes are net's, whatever the recipe says, which may be written for threads. Workers learn it by
// a variable: the run's recipe.yaml keeps what the user wrote.
static int plan_training(LaunchedJob *job, const Asked *asked, const Operands *o, Error *error) {
  const Recipe *given = &job->given;
  int code = recipe_load(o->words[0], o->count - 1, o->words + 1, &job->given, error), n = 0;
  bool is_fixed = !code && given->plan == RECIPE_PLAN_FIXED && !given->dp_is_auto;
  int ranks = is_fixed ? recipe_rank_count(given) : cores_available();
  if (!code && asked->most > 1 && is_fixed)
    ranks = asked->least < asked->most ? cores_available() : (ranks + asked->most - 1) / asked->most;
  if (!code) code = count_workers(asked->workers, ranks, &job->nproc, error);
  if (!code) // what is wrong with the ranks is refused here rather than by each process
    code = asked->most == 1 ? recipe_with_ranks(given, job->nproc > 1 ? job->nproc : 0, &job->recipe, error)
                            : recipe_variant(given, "", &job->recipe, error);
  if (!code) code = check_mesh(&job->recipe, is_fixed, asked, job->nproc, error);
  if (code) return code;
  if (job->recipe.plan == RECIPE_PLAN_FIXED) plan_ranks(job);
  ssize_t length = readlink("/proc/self/exe", job->self, sizeof job->self - 1);
  if (length < 0) return error_set(error, PLAIT_FAILED, "/proc/self/exe: %s", strerror(errno));
  job->folder = job->recipe.run.dir;
  job->argv = xcalloc((size_t)o->count + 4, sizeof *job->argv);
  job->argv[n++] = job->self;
  job->argv[n++] = "train";
  job->argv[n++] = o->words[0];
  job->net = (job->nproc > 1 || asked->most > 1) && !sets(o, "run.comm");
  for (int i = 1; i < o->count; i++) job->argv[n++] = o->words[i];
  return PLAIT_OK;
}


// What torchrun's flags mean ------------------------------------------------------------------------------------------

static int check_nodes(Asked *a, Error *error) {
  int end = 0;
  if (sscanf(a->nodes, "%d:%d%n", &a->least, &a->most, &end) != 2 || a->nodes[end]) {
    end = 0;
    if (sscanf(a->nodes, "%d%n", &a->least, &end) != 1 || a->nodes[end]) a->least = 0;
    a->most = a->least;
  }
  if (a->least < 1 || a->most < 1)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--nnodes: \"%.40s\" is neither a number of machines nor MIN:MAX, as in 1:4", a->nodes);
  if (a->least > a->most)
    return error_set(error, PLAIT_BAD_INPUT, "--nnodes %s: the least number is above the most; did you mean %d:%d?",
                     a->nodes, a->most, a->least);
  if (a->most > JOB_MACHINES)
    return error_set(error, PLAIT_BAD_INPUT, "--nnodes %s: a job has at most %d machines", a->nodes, JOB_MACHINES);
  return PLAIT_OK;
}

// The list of processes would show it.
static const char *hide_password(const char *url) {
  char *at = strrchr(url, '@'), *own = at ? xstrdup(url) : NULL; // kept until the process ends
  for (char *c = strstr(url, "://"); at && c && c + 3 < at; c++) c[3] = '*';
  return own ? own : url;
}

// Whether other machines reach the store: it is served at another address than loopback's, or asked for without TLS.
static bool others_reach(const Asked *a) {
  NetAddress at;
  Error unused = {0};
  if (!strncmp(a->rendezvous, "etcd://", 7)) return a->insecure;
  if (!strncmp(a->rendezvous, "etcds://", 8)) return false;
  for (int i = 0; store_endpoint(a->rendezvous, i, &at, &unused) > 0; i++)
    if (!net_is_loopback(&at)) return true;
  return false;
}

// --rdzv, or torchrun's --rdzv-endpoint, whose port may be left out.
static int check_rendezvous(Asked *a, Error *error) {
  static char endpoint[ENDPOINT_TEXT];
  Endpoint e;
  if (a->most == 1 || a->standalone) a->rendezvous = a->endpoint = NULL;
  if (a->standalone && a->most > 1)
    return error_set(error, PLAIT_BAD_INPUT, "--standalone is one machine, but --nnodes is %s", a->nodes);
  if (a->rendezvous && a->endpoint)
    return error_set(error, PLAIT_BAD_INPUT, "--rdzv and --rdzv-endpoint say the same; give one of them");
  if (a->endpoint) {
    bool bare = endpoint_parse(a->endpoint, strlen(a->endpoint), false, &e) && !e.port;
    a->rendezvous = bare ? endpoint_print(e.host, 29400, endpoint) : a->endpoint;
  }
  if (a->most == 1) return PLAIT_OK;
  if (!a->rendezvous)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--nnodes %s: give all machines where they meet, one of them and a port, as in --rdzv hostA:29400",
                     a->nodes);
  a->rendezvous = hide_password(a->rendezvous);
  int code = job_store_check(a->rendezvous, a->insecure, error);
  a->is_open = !code && others_reach(a);
  return code;
}

// At each start, whatever it starts.
static void tell_insecure(const Asked *a) {
  const char *secret = getenv("PLAIT_SECRET");
  NetAddress own;
  Error unknown = {0};
  bool open = a->is_open ||
              (a->address && a->insecure && !net_resolve(a->address, 0, &own, &unknown) && !net_is_loopback(&own));
  if (!open || (secret && *secret)) return;
  fprintf(stderr, "note: %s: whoever reaches this network can join this job, end it, and read and change what its "
                  "machines and processes say; --secret FILE lets in nobody without it\n",
          a->insecure ? "--insecure" : "PLAIT_INSECURE is set");
}

static int check(Asked *a, Error *error) {
  int code = check_nodes(a, error);
  if (!code) code = torchrun_take_conf(a->conf, &a->patience, error);
  if (code) return code;
  if (a->backend && !strncmp(a->backend, "etcd", 4))
    return error_set(
        error, PLAIT_BAD_INPUT,
        "--rdzv-backend %.40s: plait launch meets in etcd by --rdzv etcd://HOST:2379, and speaks its version 3; "
        "leave --rdzv-backend and --rdzv-endpoint out",
        a->backend);
  if (a->backend && strcmp(a->backend, "c10d") && strcmp(a->backend, "static"))
    return error_set(error, PLAIT_BAD_INPUT, "--rdzv-backend: \"%.40s\" is neither c10d nor static", a->backend);
  if (a->node_rank >= a->most)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--node-rank %lld, but the machines of --nnodes %s have the numbers 0 to %d",
                     (long long)a->node_rank, a->nodes, a->most - 1);
  if (a->tee && strcmp(a->tee, "0") && !a->log_folder)
    return error_set(error, PLAIT_BAD_INPUT, "--tee copies to the console what goes to files; give --log-dir DIR, too");
  if (a->log_folder && folder_create_given(a->log_folder, error)) return error_prefix(error, "--log-dir");
  return check_rendezvous(a, error);
}

static int plan_program(LaunchedJob *job, const Asked *asked, char **program, Error *error) {
  if (!program[0]) return error_set(error, PLAIT_BAD_INPUT, "-- is not followed by a program");
  job->argv = program;
  return count_workers(asked->workers, cores_available(), &job->nproc, error);
}

static uint64_t add_text(uint64_t hash, const char *text) { // FNV-1a, with the text's end
  for (;; text++) {
    hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    if (!*text) return hash;
  }
}

// Of the printed recipe, line by line: the keys with their sections, and what stands below a key as its value.
static void describe_recipe(char *text, FILE *out) {
  char section[64] = "";
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    size_t indent = strspn(line, " "), end = strcspn(line, ":");
    bool is_key = indent <= (*section ? 2u : 0u) && line[indent] != '-' && line[end];
    if (!indent && is_key && !line[end + 1]) snprintf(section, sizeof section, "%.*s.", (int)end, line);
    else if (!is_key) fprintf(out, " %s", line + indent);
    else {
      if (!indent) *section = 0;
      fprintf(out, "\n%s%.*s\t%s", section, (int)(end - indent), line + indent,
              line + end + 1 + strspn(line + end + 1, " "));
    }
  }
}

// All machines must run the same: the recipe with its keys, or the program with its arguments.
static void name_what(LaunchedJob *job, const Asked *a, char *const *program) {
  char *text = NULL;
  size_t size = 0;
  uint64_t hash = 14695981039346656037u;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  if (!program) recipe_print(&job->recipe, out);
  fclose(out);
  out = open_memstream(&job->what, &size);
  CHECK(out);
  fprintf(out, "--nnodes\t%s\n--max-restarts\t%lld\nwhat runs\t%s", a->nodes ? a->nodes : "1", (long long)a->restarts,
          program ? "" : "a recipe");
  for (int i = 0; program && program[i]; i++) {
    fprintf(out, "%s%s", i ? " " : "", program[i]);
    hash = add_text(hash, program[i]); // words, whatever they hold
  }
  if (!program) describe_recipe(text, out);
  fclose(out);
  free(text);
  snprintf(job->number, sizeof job->number, "%016llx", (unsigned long long)add_text(hash, job->what));
}

static bool is_plait(const char *program) {
  if (!program) return false; // an error has said so
  const char *slash = strrchr(program, '/');
  return !strcmp(slash ? slash + 1 : program, "plait");
}

static int launch(Asked *a, const Operands *operands, char **program, int *status, Error *error) {
  LaunchedJob job = {.nproc = 1, .unit = 1};
  int code = check(a, error);
  if (!code) code = program ? plan_program(&job, a, program, error) : plan_training(&job, a, operands, error);
  if (!code) name_what(&job, a, program);
  LaunchOptions options = {.argv = job.argv,
                           .trains = !program,
                           .says_done = !program || is_plait(program[0]),
                           .workers = job.nproc,
                           .most_restarts = (int)a->restarts,
                           .grace = a->grace,
                           .id = a->id,
                           .address = a->address,
                           .log_folder = a->log_folder,
                           .tee = a->tee ? atoi(a->tee) : 0,
                           .run_folder = job.folder,
                           .endpoints = a->rendezvous,
                           .least = a->least,
                           .most = a->most,
                           .node_rank = (int)a->node_rank,
                           .ranks = job.ranks,
                           .unit = job.unit,
                           .insecure = a->insecure,
                           .net = job.net,
                           .copies = !program && !code && job.recipe.checkpoint.copies > 0,
                           .silence = a->silence,
                           .patience = a->patience,
                           .recipe = job.number,
                           .what = job.what};
  if (!code) tell_insecure(a);
  descriptors_raise(); // strangers take some, and workers inherit the limit
  if (!code) code = launch_supervise(&options, status, error);
  if (!program) free(job.argv);
  recipe_free(&job.recipe);
  recipe_free(&job.given);
  free(job.what);
  return code;
}

// Of all that this process starts and serves, by the environment. PLAIT_BAD_INPUT: no good secret, or interface.
static int use_network(const char *path, bool encrypts, const char *interface, Error *error) {
  char whole[PATH_MAX];
  Secret secret;
  bool there;
  unsetenv(secret_drawn_variable); // of a supervisor that is itself a worker
  if (interface && launch_check_interfaces(interface, error)) return PLAIT_BAD_INPUT;
  if (interface) setenv("UCX_NET_DEVICES", interface, 1);
  int code = path ? secret_read(path, &secret, error) : PLAIT_OK;
  if (!code && path && !realpath(path, whole))
    code = error_set(error, PLAIT_BAD_INPUT, "--secret %s: %s", path, strerror(errno));
  if (code) return code;
  if (path) setenv("PLAIT_SECRET", whole, 1); // workers may have another folder
  if (encrypts && !secret_is_users())
    return error_set(error, PLAIT_BAD_INPUT, "--encrypt needs a secret as its key; give --secret FILE as well "
                     "(plait launch --make-secret FILE makes one)");
  if (encrypts) setenv("PLAIT_ENCRYPT", "1", 1);
  return secret_of_environment(&secret, &there, error);
}

static const char summary[] =
    "Starts the ranks of a run as processes of this machine, without MPI, and watches them. If one fails, plait launch "
    "says which and how, ends all of them and, up to --max-restarts times, starts them again: training resumes from "
    "its last checkpoint. RUN/launch.jsonl has a line for each start.\n"
    "Several machines run the same command, with --nnodes and --rdzv: they meet at the first endpoint that answers. A "
    "machine that comes later, or leaves (Ctrl-C, SIGTERM), ends the round of processes at a step, which is saved, and "
    "the next round continues from there; after a machine is lost, it continues from the last checkpoint, or from "
    "copies "
    "in memory (checkpoint.copies). --nnodes MIN:MAX says how many there may be; more than that, or than the mesh has "
    "use "
    "for, wait as spares. run.dir must be one folder for all.\n"
    "After -- comes any program that is to run once for each rank. It finds its rank in torchrun's variables (RANK, "
    "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT …), and plait_world_launched_create its world.\n"
    "Of one machine, Ctrl-C and SIGTERM go on to the processes, which save a checkpoint and end. If plait launch is "
    "killed, they are killed, too.";

int cmd_launch(int argc, char **argv) {
  const char *secret = NULL, *made = NULL, *interface = NULL;
  bool encrypts = false;
  static const char *const streams[] = {"0", "1", "2", "3", NULL};
  Asked a = {.workers = "1", .nodes = "1", .id = "plait", .grace = 5, .silence = 5, .patience = 300, .node_rank = -1};
  const Option options[] = {
      {"nproc-per-node", OPTION_TEXT, &a.workers, "N",
       "processes to start; auto: the ranks of the recipe's mesh, or "
       "with mesh.dp auto and for a program the cores",
       .shown = "1"},
      {"max-restarts", OPTION_INTEGER, &a.restarts, "K",
       "how often all are started again after a failure of a process; of the whole job", .least = 0, .most = INT_MAX},
      {"log-dir", OPTION_TEXT, &a.log_folder, "DIR", "what processes print goes to DIR/round-R/rank-N.out and .err"},
      {"tee", OPTION_TEXT, &a.tee, "N",
       "also to the console, each line after its rank: 1 what goes to standard output, 2 errors, 3 both (the default), "
       "0 nothing", .words = streams},
      {"grace", OPTION_REAL, &a.grace, "SECONDS", "from SIGTERM to SIGKILL, when all are ended", .least = 0,
       .most = 86400},
      {"nnodes", OPTION_TEXT, &a.nodes, "N|MIN:MAX", "machines", .shown = "1"},
      {"rdzv", OPTION_TEXT, &a.rendezvous, "HOST:PORT,...",
       "where the machines meet: at the first of these; if it is lost, the next takes over; or in etcd: "
       "etcd://HOST:2379, etcds:// by TLS"},
      {"rdzv-id", OPTION_TEXT, &a.id, "ID", "the job's name: machines of another one are not let in", .shown = "plait"},
      {"rdzv-timeout", OPTION_REAL, &a.patience, "SECONDS", "how long nobody may answer there", .least = 1,
       .most = 1e6},
      {"silence", OPTION_REAL, &a.silence, "SECONDS", "a machine that says nothing for so long is lost", .least = 0.5,
       .most = 86400},
      {"node-rank", OPTION_INTEGER, &a.node_rank, "N", "this machine's place among the others",
       .least = -1, .most = JOB_MACHINES, .shown = "as they come"},
      {"local-addr", OPTION_TEXT, &a.address, "ADDRESS", "this machine's address for the others",
       .shown = "the one by which it reaches them"},
      {.name = "insecure",
       .value = &a.insecure,
       .help = "allows addresses that are not of this machine alone, though nothing is encrypted, and whoever reaches "
               "the store can join"},
      {"secret", OPTION_TEXT, &secret, "FILE",
       "32 random bytes that all machines of the job have; then its processes let in nobody without it, and talk by "
       "TLS, but for what they compute with"},
      {"make-secret", OPTION_TEXT, &made, "FILE", "makes such a file, and starts nothing"},
      {.name = "encrypt",
       .value = &encrypts,
       .help = "what processes compute with goes by TLS, too, where it leaves a machine; needs --secret"},
      {"iface", OPTION_TEXT, &interface, "NAME", "the network interface for messages (UCX_NET_DEVICES)"},
      {.name = "standalone", .value = &a.standalone, .help = "this machine alone"},
      {"rdzv-backend", OPTION_TEXT, &a.backend, "NAME", "torchrun's: c10d or static; changes nothing"},
      {"rdzv-endpoint", OPTION_TEXT, &a.endpoint, "HOST[:PORT]", "torchrun's name for --rdzv"},
      {"rdzv-conf", OPTION_TEXT, &a.conf, "KEY=VALUE,...",
       "torchrun's settings: timeout is --rdzv-timeout, others have another name here, which is told"},
      {"monitor-interval", OPTION_REAL, &a.interval, "SECONDS",
       "torchrun's; changes nothing: the end of a process is seen when it happens", .least = 0, .most = 1e6,
       .shown = "at once"},
      {.name = "no-python", .value = &a.no_python}, // torchrun's, which says what is always so here
  };
  const CommandHelp help = {"launch", "[options] RECIPE [key=value …]", summary,
                            "  plait launch --nproc-per-node 2 --max-restarts 3 my.yaml mesh.dp=2\n"
                            "  plait launch --nnodes 1:4 --nproc-per-node 2 --rdzv hostA:29400,hostB:29400 --rdzv-id "
                            "run7 --secret key my.yaml\n"
                            "  plait launch --nproc-per-node auto --log-dir logs --tee my.yaml\n"
                            "  plait launch --nproc-per-node 4 -- ./program arguments\n"
                            "  plait launch --make-secret key\n",
                            .takes = TAKES_RECIPE};
  Operands operands;
  char **program = NULL;
  int words = 1, status = 0;
  while (words < argc && strcmp(argv[words], "--")) words++;
  if (words < argc) program = argv + words + 1;
  words = torchrun_take_words(words, argv);
  int code = options_parse(&help, options, COUNT(options), 0, program ? 0 : INT_MAX, words, argv, &operands);
  if (code != OPTIONS_OK) return code;
  Error error = {0};
  if (made) {
    code = secret_make(made, &error);
    return code ? command_fail("launch", &error) : 0;
  }
  if (!program && !operands.count)
    error_set(&error, PLAIT_BAD_INPUT, "a recipe is missing: plait launch [options] RECIPE [key=value …]");
  code = error.code ? error.code : use_network(secret, encrypts, interface, &error);
  if (!code) code = launch(&a, &operands, program, &status, &error);
  return code ? command_fail("launch", &error) : status;
}
