// plait check-device: a device's kernels against the reference kernels, op by op and dtype by dtype.
#include "base/nearest.h"
#include "base/signals.h"
#include "check/kernel_bench.h"
#include "device/cuda/facts.h"
#include "cli/options.h"
#include "cmd/cmd.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = DTYPE_F64, LAST = DTYPE_F16, DTYPES = LAST - FIRST + 1 };

typedef struct Wish {
  const char *backend, *dtypes, *op;
  int64_t number, seed;
  bool quick;
  unsigned set; // of dtypes
  int only;     // the op; -1: all
} Wish;

// Of an op in a dtype.
// on_host: calls without a kernel; refused: calls with operands that the kernel does not take. Both run on the host.
typedef struct Cell { int calls, on_host, refused; double share; char text[320]; } Cell;
typedef Cell Table[OP_COUNT][DTYPES];

static int read_wish(Wish *wish, Error *error) {
  const char *names[OP_COUNT];
  wish->only = -1;
  for (int op = 0; op < OP_COUNT; op++) {
    names[op] = op_name((Op)op);
    if (wish->op && !strcmp(names[op], wish->op)) wish->only = op;
  }
  if (wish->op && wish->only < 0) {
    const char *near = nearest_word(wish->op, names, OP_COUNT);
    return error_set(error, PLAIT_BAD_INPUT, "--op %.60s: there is no such op%s%s%s", wish->op,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
  }
  for (const char *at = wish->dtypes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    char name[16] = "";
    size_t bytes = strcspn(at, ",");
    if (bytes < sizeof name) memcpy(name, at, bytes);
    int dtype = dtype_from_name(name);
    if (dtype < FIRST || dtype > LAST)
      return error_set(error, PLAIT_BAD_INPUT,
                       "--dtypes %.60s: must be some of fp64, fp32, bf16, fp16, with commas between", wish->dtypes);
    wish->set |= 1u << dtype;
  }
  return PLAIT_OK;
}

static int64_t seconds_since(const struct timespec *from) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec - from->tv_sec;
}

static int64_t host_calls(const KernelBench *b) {
  return b->device->kind == DEVICE_CUDA ? cuda_host_calls(b->queue) : 0;
}

static int check_case(KernelBench *b, const OpCase *whole, Cell *cell, Error *error) {
  DeviceKernel kernel;
  if (!kernel_bench_has(b, whole, &kernel)) return cell->on_host = 1, PLAIT_OK;
  for (int variant = 0; variant < VARIANTS; variant++) {
    KernelVerdict verdict;
    const int64_t before = host_calls(b);
    int done = kernel_bench_case(b, whole, (Variant)variant, &verdict, error);
    if (done < 0) {
      cell->share = INFINITY;
      snprintf(cell->text, sizeof cell->text, "%.100s%s: %.180s", whole->name, op_variant_name[variant],
               error->message);
      return done;
    }
    if (host_calls(b) > before) cell->refused += done;
    else cell->calls += done;
    if (verdict.share > 1 && !(cell->share > 1)) memcpy(cell->text, verdict.text, sizeof cell->text);
    cell->share = fmax(cell->share, verdict.share);
  }
  return PLAIT_OK;
}

static int check_all(KernelBench *b, const Wish *wish, Table table, Error *error) {
  int count = wish->quick ? op_cases_count() : op_cases_with_large(), code = PLAIT_OK, shows = isatty(2);
  for (int i = 0; i < count && !code; i++) {
    if (shows) fprintf(stderr, "\r%d of %d  %-50.50s", i + 1, count, op_case_name(i));
    for (int dtype = FIRST; dtype <= LAST && !code; dtype++) {
      if (signals_stop()) code = error_set(error, PLAIT_INTERRUPTED, "interrupted: what follows was not checked");
      OpCase whole;
      if (code || !(wish->set >> dtype & 1) || (wish->only >= 0 && !op_case_may_be(i, (Op)wish->only))) continue;
      op_case_seeded(i, (Dtype)dtype, (uint64_t)wish->seed, &whole);
      if (wish->only < 0 || whole.op == (Op)wish->only)
        code = check_case(b, &whole, &table[whole.op][dtype - FIRST], error);
      op_case_free(&whole);
    }
  }
  if (shows) fprintf(stderr, "\r%70s\r", "");
  return code;
}

static void print_cell(const Cell *cell) {
  if (cell->share > 1) printf(" %8s", "WRONG");
  else if (cell->calls) printf(" %8.3f", cell->share);
  else printf(" %8s", cell->on_host || cell->refused ? "-" : "");
}

// The command that repeats the check of one cell.
static void print_command(const Wish *wish, int op, int dtype) {
  printf("plait check-device --backend %s", wish->backend);
  if (wish->number) printf(" --device %lld", (long long)wish->number);
  if (wish->seed != 1) printf(" --seed %lld", (long long)wish->seed);
  printf("%s --op %s --dtypes %s", wish->quick ? " --quick" : "", op_name((Op)op), dtype_name((Dtype)dtype));
}

// The number of cells that are wrong; *checked: of calls that were compared.
static int print_table(const Wish *wish, const KernelBench *b, Table table, int64_t seconds,
                       int *checked) {
  int ops = 0, calls = 0, refused = 0, wrong = 0, none = 0;
  printf("%-26s", "largest error / bound");
  for (int dtype = FIRST; dtype <= LAST; dtype++)
    if (wish->set >> dtype & 1) printf(" %8s", dtype_name((Dtype)dtype));
  printf("\n");
  for (int op = 0; op < OP_COUNT; op++) {
    int any = 0, own = 0;
    for (int d = 0; d < DTYPES; d++) {
      any |= table[op][d].calls || table[op][d].on_host || table[op][d].share > 1;
      own |= table[op][d].calls || table[op][d].refused || table[op][d].share > 1;
      calls += table[op][d].calls;
      refused += table[op][d].refused;
    }
    ops += own;
    none += any && !own;
    if (!own) continue;
    printf("%-26s", op_name((Op)op));
    for (int d = 0; d < DTYPES; d++)
      if (wish->set >> (d + FIRST) & 1) print_cell(&table[op][d]);
    printf("\n");
  }
  if (none) {
    const char *before = "no kernel of its own:";
    for (int op = 0; op < OP_COUNT; op++) {
      int any = 0, own = 0;
      for (int d = 0; d < DTYPES; d++)
        any |= table[op][d].on_host, own |= table[op][d].calls || table[op][d].refused || table[op][d].share > 1;
      if (any && !own) printf("%s %s", before, op_name((Op)op)), before = ",";
    }
    printf("\n");
  }
  for (int op = 0; op < OP_COUNT; op++)
    for (int d = 0; d < DTYPES; d++)
      if (table[op][d].share > 1) {
        wrong++;
        printf("WRONG %s %s: %s\n  again: ", op_name((Op)op), dtype_name((Dtype)(d + FIRST)), table[op][d].text);
        print_command(wish, op, d + FIRST);
        printf("\n");
      }
  if (refused)
    printf("%d more call%s ran on the host, for no kernel takes operands like these\n", refused,
           refused == 1 ? "" : "s");
  printf("%d op%s with kernels of %s, %d calls, %d wrong, %lld s\n", ops, ops == 1 ? "" : "s", b->device->name, calls,
         wrong, (long long)seconds);
  *checked = calls;
  return wrong;
}

int cmd_check_device(int argc, char **argv) {
  static const char *const backends[] = {"cuda", "cpu", NULL};
  Wish wish = {.backend = "cuda", .dtypes = "fp64,fp32,bf16,fp16", .seed = 1};
  const Option options[] = {
      {.name = "backend",
       .kind = OPTION_TEXT,
       .value = &wish.backend,
       .argument = "NAME",
       .words = backends,
       .help = "whose kernels"},
      {.name = "device",
       .kind = OPTION_INTEGER,
       .value = &wish.number,
       .argument = "N",
       .most = DEVICE_MOST_NUMBERS - 1,
       .help = "the device, by its number"},
      {.name = "dtypes", .kind = OPTION_TEXT, .value = &wish.dtypes, .argument = "LIST", .help = "some of these"},
      {.name = "op", .kind = OPTION_TEXT, .value = &wish.op, .argument = "NAME", .help = "this op only"},
      {.name = "seed",
       .kind = OPTION_INTEGER,
       .value = &wish.seed,
       .argument = "N",
       .most = 1e9,
       .help = "what the random operands follow from"},
      {.name = "quick",
       .value = &wish.quick,
       .help = "small operands only: for an emulated driver, which takes minutes"}};
  const CommandHelp help = {
      "check-device", "[--op NAME] [--dtypes LIST] [--device N]",
      "Runs every kernel of a device, in each dtype, on operands of odd shapes: whole, as a shard, without the tensor "
      "that "
      "it would add to, in place. Compares what it gives with the reference kernels, plain loops in double on the "
      "CPU.\n"
      "The table has, for each op, the largest error as a share of its bound, which follows from the dtype and from "
      "the "
      "terms of a sum. At most 1 is right. The exit status is 1 where a kernel is wrong or fails; the lines below the "
      "table then say where, and give the command that repeats it.",
      "  plait check-device\n"
      "  plait check-device --device 2 --dtypes bf16,fp32\n"
      "  plait check-device --op matmul --seed 7\n"
      "  plait check-device --backend cpu\n"};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 0, 0, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  static Table table;
  KernelBench bench = {0};
  struct timespec begin;
  int code = read_wish(&wish, &error);
  if (code) return command_fail("check-device", &error);
  signals_install("stopping after this op");
  clock_gettime(CLOCK_MONOTONIC, &begin);
  const Device *device = strcmp(wish.backend, "cpu") ? device_cuda() : device_cpu();
  const DeviceNumbers numbers = {1, {(int)wish.number}};
  code = device_ready(device, &numbers, &error);
  if (!code && device == device_cpu() && wish.number)
    code = error_set(&error, PLAIT_BAD_INPUT, "--device %lld: the CPU is one device, number 0", (long long)wish.number);
  if (!code) code = kernel_bench_open(&bench, device, (int)wish.number, &error);
  if (!code && device == device_cuda() && !cuda_has_kernels(bench.device) && !getenv("PLAIT_CUDA_HOST"))
    code = error_set(&error, PLAIT_INFEASIBLE, "this build has no kernels for cards: it was made without nvcc");
  if (code) return kernel_bench_close(&bench), command_fail("check-device", &error);
  code = check_all(&bench, &wish, table, &error);
  int calls, wrong = print_table(&wish, &bench, table, seconds_since(&begin), &calls);
  kernel_bench_close(&bench);
  if (code) return printf("not all was reached\n"), command_fail("check-device", &error);
  if (calls) return wrong ? 1 : 0;
  error_set(&error, PLAIT_FAILED, "nothing was checked: the device has no kernel of its own for %s%s",
            wish.op ? wish.op : "any op", getenv("PLAIT_CUDA_HOST") ? " that PLAIT_CUDA_HOST leaves to it" : "");
  return command_fail("check-device", &error);
}
