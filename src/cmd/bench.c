// plait bench comm: latency and bandwidth of every collective, between threads or processes, beside plain MPI calls.
#include "base/dtype.h"
#include "base/clock.h"
#include "base/memory_usage.h"
#include "base/nearest.h"
#include "base/units.h"
#include "cmd/bench_comm.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "comm/comm.h"
#include "comm/launcher.h"
#include "runtime/session.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST_KINDS = 32, MOST_SIZES = 32, HUGE_PAGE = 2 << 20 };
static const size_t LARGEST = (size_t)1 << 30, SPAN = 1 << 18; // bytes; short calls are timed SPAN bytes at a time …
enum { MOST_AT_ONCE = 50 };                                    // … and not more than this many

typedef struct Plan {
  int ranks, repeat;
  PlaitDtype dtype;
  const BenchKind *kinds[MOST_KINDS];
  size_t sizes[MOST_SIZES]; // bytes of a rank
  int kind_count, size_count, plain, chain;
  bool patterns; // all of them, beside each other
} Plan;

// ---- what is asked for ----

static int parse_size(const char *option, const char *word, size_t *size, Error *error) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(word, &end, 10);
  static const char prefixes[] = "KMG";
  const char *prefix = *end ? strchr(prefixes, *end) : NULL;
  int shift = prefix ? 10 * (int)(prefix - prefixes + 1) : 0;
  if (*word < '0' || *word > '9' || errno || (*end && (!prefix || end[1])) || value < 1 || value > LARGEST >> shift)
    return error_set(error, PLAIT_BAD_INPUT, "--%s: \"%.40s\" is not a size from 1 to 1G bytes, such as 8, 64K or 1M",
                     option, word);
  *size = (size_t)value << shift;
  return PLAIT_OK;
}

static int add_kind(Plan *plan, const char *word, Error *error) {
  const char *names[MOST_KINDS];
  int count = bench_kind_count;
  for (int i = 0; i < count; i++) names[i] = bench_kinds[i].name;
  for (int i = 0; i < count; i++)
    if (!strcmp(names[i], word)) return plan->kinds[plan->kind_count++] = &bench_kinds[i], PLAIT_OK;
  const char *nearest = nearest_word(word, names, count);
  return error_set(error, PLAIT_BAD_INPUT, "--collectives: there is no \"%.40s\"%s%s%s", word,
                   nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

// Calls for every word of an option's comma-separated list; 1 to `most` are allowed.
static int each_word(const char *option, const char *list, int most, int (*add)(Plan *, const char *, Error *),
                     Plan *plan, Error *error) {
  char *copy = xstrdup(list), *save = NULL;
  int code = PLAIT_OK, words = 0;
  for (char *word = strtok_r(copy, ",", &save); word && !code && words++ < most; word = strtok_r(NULL, ",", &save))
    code = add(plan, word, error);
  if (words < 1 || words > most)
    code = error_set(error, PLAIT_BAD_INPUT, "--%s \"%.60s\" is a list of %s words; allowed are 1 to %d", option, list,
                     words ? "too many" : "no", most);
  free(copy);
  return code;
}

static int add_size(Plan *plan, const char *word, Error *error) {
  return parse_size("sizes", word, &plan->sizes[plan->size_count++], error);
}

static int choose(Plan *plan, const char *kinds, const char *sizes, const char *most, const char *dtype, Error *error) {
  size_t largest = 0;
  int code = PLAIT_OK;
  plan->dtype = (PlaitDtype)dtype_from_name(dtype);
  if (kinds) code = each_word("collectives", kinds, MOST_KINDS, add_kind, plan, error);
  else
    for (int i = 0; i < bench_kind_count; i++) plan->kinds[plan->kind_count++] = &bench_kinds[i];
  if (code) return code;
  if (sizes) return each_word("sizes", sizes, MOST_SIZES, add_size, plan, error);
  if ((code = parse_size("to", most, &largest, error))) return code;
  plan->sizes[plan->size_count++] = 8;
  for (size_t size = 64; size <= largest; size *= 4) plan->sizes[plan->size_count++] = size;
  return PLAIT_OK;
}

// ---- patterns ----

// Of the collectives that have several; COMM_KIND_COUNT: it is another one.
static CommKind kind_with_patterns(const BenchKind *kind) {
  static const CommKind have[] = {COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER};
  for (int i = 0; i < COUNT(have); i++)
    if (!strcmp(comm_traits[have[i]].name, kind->name)) return have[i];
  return COMM_KIND_COUNT;
}

// Of two levels: the ranks of a machine; of one machine halves, as if they were two. 0: there are not two levels.
static int level_of(const PlaitComm *comm) {
  int machine = process_ranks_of_machine(comm), n = plait_comm_size(comm);
  return machine > 1 ? machine : !machine && n >= 4 && n % 2 == 0 ? n / 2 : 0;
}

// ---- measuring ----

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int run_once(const BenchKind *kind, const BenchCall *call, int plain) {
  return plain ? bench_plain(kind, call) : kind->run(call);
}

// The median, over `repeat` samples, of what the slowest rank took for a call. Between samples the ranks meet.
static int measure(const Plan *plan, const BenchKind *kind, const BenchCall *call, int plain, double *samples,
                   double *seconds) {
  size_t bytes = call->count * call->element + 1, fit = SPAN / bytes;
  int at_once = fit < 1 ? 1 : fit > MOST_AT_ONCE ? MOST_AT_ONCE : (int)fit, code = 0;
  for (int i = 0; i < plan->repeat + 3 && !code; i++) { // the first three are not kept
    double *sample = &samples[i < 3 ? 0 : i - 3];
    if ((code = plait_barrier(call->comm, NULL, NULL))) return code;
    double start = clock_seconds();
    for (int k = 0; k < at_once && !code; k++) code = run_once(kind, call, plain);
    *sample = (clock_seconds() - start) / at_once / (kind->halves ? 2 : 1);
  }
  if (code) return code;
  code = plait_all_reduce(call->comm, &(PlaitBuffer){samples, samples, (size_t)plan->repeat}, 1, PLAIT_FP64, PLAIT_MAX,
                          NULL, NULL);
  if (code) return code;
  qsort(samples, (size_t)plan->repeat, sizeof *samples, compare);
  *seconds = samples[plan->repeat / 2];
  return 0;
}

// ---- printing ----

static void print_size(size_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit < 3) bytes /= 1024, unit++;
  printf(" %6zu %-3s", bytes, units[unit]);
}

static void print_time(double seconds, size_t bytes, int known) {
  if (!known) printf("  %10s %8s", "-", "-");
  else if (!bytes) printf("  %10.2f %8s", seconds * 1e6, "-");
  else printf("  %10.2f %8.3f", seconds * 1e6, (double)bytes / seconds * 1e-9);
}

static void print_head(const Plan *plan, const char *backend) {
  printf("%d rank%s, %s, %s, in place where the call can be; warm, median of %d\n", plan->ranks,
         plan->ranks == 1 ? "" : "s", backend, dtype_name((Dtype)plan->dtype), plan->repeat);
  printf("%-14s %10s  %10s %8s", "collective", "size", "us", "GB/s");
  if (plan->plain) printf("  %10s %8s", "MPI us", "GB/s");
  putchar('\n');
}

static void print_patterns_head(const Plan *plan, const PlaitComm *comm) {
  char levels[40] = "two levels";
  if (level_of(comm)) snprintf(levels, sizeof levels, "groups of %d", level_of(comm));
  printf("%d ranks, %s (processes), %s; warm, median of %d; chain: of ranks, one after the other; groups: a chain of "
         "%s\n%-25s  %19s  %19s  %19s\n%-14s %10s", plan->ranks, world_name(comm->world),
         dtype_name((Dtype)plan->dtype), plan->repeat,
         process_ranks_of_machine(comm) ? "machines" : "halves of this machine, as if they were two", "", "directly",
         "chain", levels, "collective", "size");
  for (int i = 0; i < 3; i++) printf("  %10s %8s", "us", "GB/s");
  puts("  a run takes");
}

// ---- ranks ----

static char *take(size_t bytes) {
  size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  char *memory = aligned_alloc(HUGE_PAGE, whole);
  CHECK(memory, "out of memory (%zu bytes)", whole);
  madvise(memory, whole, MADV_HUGEPAGE); // as the arenas of a training run
  return memset(memory, 0, whole);
}

static int measure_patterns(const Plan *plan, const BenchKind *kind, const BenchCall *call, double *samples) {
  int groups[] = {-1, 1, level_of(call->comm)}, code = 0;
  size_t bytes = call->count * call->element * (kind->parts ? (size_t)plan->ranks : 1);
  process_set_chain(call->comm->world, 0);
  int chosen = process_pattern(call->comm, kind_with_patterns(kind), plan->dtype, bytes);
  if (!call->rank) {
    printf("%-14s", kind->name);
    print_size(bytes);
  }
  for (int i = 0; i < COUNT(groups) && !code; i++) {
    double seconds = 0;
    process_set_chain(call->comm->world, groups[i]);
    if (groups[i]) code = measure(plan, kind, call, 0, samples, &seconds);
    if (!code && !call->rank) print_time(seconds, bytes, groups[i] != 0);
  }
  process_set_chain(call->comm->world, 0);
  if (code || call->rank) return code;
  if (chosen) printf("  groups of %d\n", chosen);
  else printf("  directly\n");
  fflush(stdout);
  return 0;
}

static int check_patterns(Plan *plan, bool all, Error *error) {
  int count = 0;
  for (int i = 0; i < plan->kind_count; i++) {
    if (kind_with_patterns(plan->kinds[i]) < COMM_KIND_COUNT) plan->kinds[count++] = plan->kinds[i];
    else if (!all)
      return error_set(error, PLAIT_BAD_INPUT, "--patterns: %s has one pattern only; all_reduce, reduce_scatter and "
                       "all_gather have several", plan->kinds[i]->name);
  }
  plan->kind_count = count;
  return PLAIT_OK;
}

static int one(const Plan *plan, const BenchKind *kind, BenchCall *call, size_t size, double *samples) {
  size_t unit = call->element * (kind->parts ? (size_t)plan->ranks : 1);
  int has_size = strcmp(kind->name, "barrier") != 0, code;
  double ours = 0, plain = 0;
  if (kind->halves && plan->ranks == 1) return 0; // nobody to send to
  call->count = !has_size ? 0 : size < unit ? 1 : size / unit;
  for (int r = 0; r < plan->ranks; r++) call->counts[r] = call->count;
  if (plan->patterns) return measure_patterns(plan, kind, call, samples);
  if ((code = measure(plan, kind, call, 0, samples, &ours))) return code;
  int missing = plan->plain ? measure(plan, kind, call, 1, samples, &plain) : 1;
  if (missing < 0 || call->rank) return missing < 0 ? missing : 0;
  printf("%-14s", kind->name);
  if (has_size) print_size(call->count * unit);
  else printf(" %10s", "-");
  print_time(ours, call->count * unit, 1);
  if (plan->plain) print_time(plain, call->count * unit, !missing);
  putchar('\n');
  fflush(stdout);
  return 0;
}

// Bytes of each of a rank's two buffers.
static size_t largest_of(const Plan *plan) {
  size_t largest = dtype_size((Dtype)plan->dtype) * (size_t)plan->ranks;
  for (int i = 0; i < plan->size_count; i++) largest = plan->sizes[i] > largest ? plan->sizes[i] : largest;
  return largest;
}

// All measurements of one rank. The world's first failure, or 0.
static int run_rank(const Plan *plan, PlaitComm *comm) {
  size_t largest = largest_of(plan), element = dtype_size((Dtype)plan->dtype);
  int code = 0;
  BenchCall call = {.comm = comm,
                    .rank = plait_comm_rank(comm),
                    .ranks = plan->ranks,
                    .dtype = plan->dtype,
                    .element = element,
                    .memory = take(largest),
                    .other = take(largest),
                    .counts = xcalloc((size_t)plan->ranks, sizeof(size_t))};
  double *samples = xcalloc((size_t)plan->repeat, sizeof *samples);
  for (int k = 0; k < plan->kind_count && !code; k++)
    for (int i = 0; i < plan->size_count && !code; i++) {
      code = one(plan, plan->kinds[k], &call, plan->sizes[i], samples);
      if (!strcmp(plan->kinds[k]->name, "barrier")) break;
    }
  free(samples);
  free(call.counts);
  free(call.memory);
  free(call.other);
  return code;
}

static int measure_rank(Rank *r, void *plan, Error *error) {
  int code = run_rank(plan, r->world);
  return code ? plait_comm_failure(r->world, error) : PLAIT_OK;
}

// Threads of this process, or with a communicator one rank of its world.
static int run_session(const Plan *plan, PlaitComm *comm, Error *error) {
  Session *session;
  int code = session_open(&(SessionOptions){.ranks = plan->ranks, .comm = comm}, &session, error);
  if (code) return code;
  code = session_run(session, measure_rank, (void *)(uintptr_t)plan, error);
  session_close(session);
  return code;
}

static int run_threads(const Plan *plan, Error *error) {
  double need = 2.0 * plan->ranks * (double)largest_of(plan), have = (double)memory_usage_available();
  if (have >= 0 && need > have)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%d ranks with two buffers of %s each need %s, but %s are available; take fewer --ranks or smaller --sizes",
        plan->ranks, units_bytes((double)largest_of(plan)).s, units_bytes(need).s, units_bytes(have).s);
  print_head(plan, "local (threads of one process)");
  return run_session(plan, NULL, error);
}

static int run_processes(const Plan *plan, PlaitWorld *world, Error *error) {
  PlaitComm *comm = NULL;
  process_set_chain(world, plan->chain);
  int rank = plait_world_rank(world), code = plait_comm_world(world, rank, &comm, error);
  if (!rank && !code && plan->patterns) print_patterns_head(plan, comm);
  else if (!rank)
    print_head(plan, plan->plain ? "mpi (processes), beside the plain MPI call" : "net (processes)");
  if (!code) code = run_session(plan, comm, error);
  plait_comm_destroy(comm);
  return code;
}

// The exit status. The sentence comes before the world is left: a launcher kills the others at the first that fails.
static int end(int code, PlaitWorld *world, const Error *error) {
  int status = 0;
  if (!world || !world_will_end(world)) status = code ? command_fail("bench", error) : 0;
  plait_world_destroy(world); // says itself why a world has failed
  return status;
}

// ---- the command ----

static int check_ranks(const PlaitWorld *world, int64_t ranks, Error *error) {
  if (ranks == plait_world_size(world)) return PLAIT_OK;
  error_set(error, PLAIT_BAD_INPUT, "--ranks %lld, but %d processes were started", (long long)ranks,
            plait_world_size(world));
  if (plait_world_rank(world)) error->message[0] = 0; // all say the same
  return PLAIT_BAD_INPUT;
}

// The caller destroys *world, which is NULL where the ranks are threads.
static int bench(Plan *plan, const char *comm, int64_t ranks, bool ranks_given, PlaitWorld **world, Error *error) {
  Launcher launcher = launcher_find();
  WorldKind kind = !strcmp(comm, "mpi") ? WORLD_MPI : !strcmp(comm, "net") ? WORLD_NET : WORLD_AUTO;
  int code, processes = kind != WORLD_AUTO || (!strcmp(comm, "auto") && launcher.tasks > 1);
  plan->ranks = (int)ranks;
  if (!processes && plan->patterns)
    return error_set(error, PLAIT_BAD_INPUT,
                     "--patterns: threads of one process have one pattern only; start processes, "
                     "as in plait launch --nproc-per-node 4 -- plait bench comm --comm net --patterns");
  if (!processes) return run_threads(plan, error);
  if ((code = world_launched_create(kind, 0, NET_WIRE_AUTO, world, error))) {
    launcher_rank_0_says(&launcher, error);
    return code;
  }
  if (ranks_given && (code = check_ranks(*world, ranks, error))) return code;
  plan->ranks = plait_world_size(*world);
  plan->plain = !plan->patterns && !strcmp(world_name(*world), "mpi");
  return run_processes(plan, *world, error);
}

int cmd_bench(int argc, char **argv) {
  int64_t ranks = 2, repeat = 20, chain = 0;
  bool ranks_given = false, patterns = false;
  const char *comm = "auto", *dtype = "fp32", *kinds = NULL, *sizes = NULL, *most = "64M";
  static const char *const benchmarks[] = {"comm", NULL}, *const comms[] = {"auto", "local", "mpi", "net", NULL};
  const char *dtypes[PLAIT_DTYPE_COUNT + 1] = {NULL};
  for (int i = 0; i < (int)PLAIT_DTYPE_COUNT; i++) dtypes[i] = dtype_name((Dtype)i);
  const Option options[] = {
      {"ranks", OPTION_INTEGER, &ranks, "N", "how many threads communicate; under mpirun, the number of processes",
       .least = 1, .most = 256, .given = &ranks_given},
      {.name = "comm",
       .kind = OPTION_TEXT,
       .value = &comm,
       .argument = "WORD",
       .help = "local: threads; mpi, net: processes; auto: what started processes can use, else local",
       .words = comms},
      {.name = "dtype",
       .kind = OPTION_TEXT,
       .value = &dtype,
       .argument = "DTYPE",
       .help = "the number format: fp64, fp32, bf16, fp16, int64, int32, uint16 or uint8",
       .words = dtypes},
      {.name = "collectives",
       .kind = OPTION_TEXT,
       .value = &kinds,
       .argument = "LIST",
       .help = "measure only these, for example all_reduce,all_gather"},
      {.name = "sizes",
       .kind = OPTION_TEXT,
       .value = &sizes,
       .argument = "LIST",
       .help = "bytes of a rank, for example 8,64K,1M (K, M, G: powers of 1024)"},
      {.name = "to",
       .kind = OPTION_TEXT,
       .value = &most,
       .argument = "SIZE",
       .help = "without --sizes: the largest size; the others are 8 bytes, then 64 and always four times as many"},
      {"chain", OPTION_INTEGER, &chain, "N",
       "between processes, all_reduce and reduce_scatter go by a chain of groups of N ranks, and all_gather by such "
       "groups, where N "
       "divides "
       "the ranks; -1: each rank exchanges with all others; 0: as a run chooses",
       .least = -1, .most = 256},
      {.name = "patterns",
       .value = &patterns,
       .help = "between processes, all_reduce, reduce_scatter and all_gather by each pattern: directly, by a chain of "
               "ranks, and by two levels (a chain of machines); and which of them a run takes"},
      {"repeat", OPTION_INTEGER, &repeat, "N", "samples; their median is printed", .least = 1, .most = 100000},
  };
  const CommandHelp help = {
      "bench", "[options] comm",
      "Measures the collectives of plait/comm.h between threads (local) or processes (mpi, net). With mpi it also "
      "measures the plain MPI call of the same name.\n"
      "It prints one line per collective and size: the bytes of one rank (all its parts), the microseconds of the "
      "slowest rank, and bytes per second. Ranks synchronize between samples; a sample of a short call is the "
      "mean of up to 50 calls in a row. The memory is warm. send_recv sends one message each way and counts the "
      "time of one.",
      "  plait bench comm\n"
      "  plait bench comm --ranks 4 --dtype bf16 --collectives all_reduce,reduce_scatter --sizes 1M,64M\n"
      "  mpirun -n 2 plait bench comm --to 256M\n"
      "  plait launch --nproc-per-node 4 -- plait bench comm --comm net --patterns\n",
      .first = benchmarks};
  Operands operands;
  Error error = {0};
  Plan plan = {0};
  int status = options_parse(&help, options, COUNT(options), 1, 1, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  plan.repeat = (int)repeat;
  plan.chain = (int)chain;
  plan.patterns = patterns;
  int code =
      strcmp(operands.words[0], "comm")
          ? error_set(&error, PLAIT_BAD_INPUT, "unknown benchmark \"%.40s\"; allowed: comm", operands.words[0])
          : choose(&plan, kinds, sizes, most, dtype, &error);
  if (!code && patterns) code = check_patterns(&plan, !kinds, &error);
  PlaitWorld *world = NULL;
  if (!code) code = bench(&plan, comm, ranks, ranks_given, &world, &error);
  return end(code, world, &error);
}
