// Threads of a block as fibers. A warp's lanes run one after the other until each of them waits; where all wait in one
// exchange (a shuffle, …), values are exchanged, and the warp runs on; where all threads wait at one barrier, the block
// does.
#include "fibers.h"
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

enum { MOST_THREADS = 1024, WARP = 32, STACK = 64 << 10, MOST_ARRAYS = 512, GUARD = 1 << 16, MOST_SHARED = 48 << 10 };
// From one stack to the next: at a power of two all of them would lie in the same few sets of the caches.
enum { STRIDE = STACK + 13 * 64 };
typedef enum State { FRESH, RUNS, AT_BARRIER, AT_EXCHANGE, DONE } State;
enum { MOST_COPIES = 64 };

// Switching ----------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
typedef void *Context; // its stack, with the registers that a call keeps
void emulated_switch(Context *from, const Context *to);
__asm__(".text\n.globl emulated_switch\n.hidden emulated_switch\n.type emulated_switch, @function\nemulated_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq (%rsi), %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emulated_switch, . - emulated_switch\n");
static void begin_at(Context *context, char *stack, void (*entry)(void)) {
  void **top = (void **)(void *)(stack + STACK) - 2; // a function's first instruction finds the stack at 8 modulo 16
  *top = (void *)(uintptr_t)entry;
  memset(top - 6, 0, 6 * sizeof *top);
  *context = top - 6;
}
#else
typedef ucontext_t Context;
static void emulated_switch(Context *from, const Context *to) { swapcontext(from, to); }
static void begin_at(Context *context, char *stack, void (*entry)(void)) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = STACK;
  context->uc_link = NULL;
  makecontext(context, entry, 0);
}
#endif

typedef struct Fiber {
  Context context;
  State state;
  int place, flag;  // place: where it waits, as in kernel.h
  const char *what; // the exchange in which it waits,
  const void *mine; // and what it gives there
  size_t bytes;
  struct { uint16_t *to; const uint16_t *from; int bytes, group; } copy[MOST_COPIES]; // that are not done, in order
  int copies, group;                                                                  // group: groups that are ended
} Fiber;

typedef struct Here { int thread, threads; int64_t block, blocks; } Here; // as in kernel.h
extern Here emulated_here;
Here emulated_here;

static Fiber fiber[MOST_THREADS];
static Context scheduler;
static char *stacks;
static struct {
  const char *name;
  void (*kernel)(const void *arguments);
  const void *arguments;
  int64_t blocks_done;
} running;

int fibers_where(char *text, size_t size) {
  if (!running.kernel) return 0;
  snprintf(text, size, "kernel %s, block %lld, thread %d", running.name, (long long)emulated_here.block,
           emulated_here.thread);
  return 1;
}

// All of 0 … n - 1 once, from a place and in steps that are drawn: at + step, modulo n, where these have no common divisor.
typedef struct Order { int64_t at, step, n; } Order;
static Order drawn_order(int64_t n) {
  Order order = {(int64_t)draw((uint64_t)n), 1, n};
  for (int tries = 0; tries < 8 && n > 2; tries++) {
    int64_t a = n, b = 1 + (int64_t)draw((uint64_t)n - 1), step = b;
    while (b) { int64_t rest = a % b; a = b, b = rest; }
    if (a == 1) return order.step = step, order;
  }
  return order;
}
static int64_t next_of(Order *order) {
  int64_t at = order->at;
  order->at += order->step;
  if (order->at >= order->n) order->at -= order->n;
  return at;
}

// The lanes of the warp that runs, in the order of this turn. One that waits switches to the next by itself: by way of the
// scheduler there would be twice as many switches, and processors would expect none of them.
static struct { int first, left; Order order; } warp;

static void body(void);

// The next lane of the warp that can run, else the scheduler.
static const Context *next_lane(void) {
  while (warp.left) {
    int thread = warp.first + (int)next_of(&warp.order);
    Fiber *f = &fiber[thread];
    warp.left--;
    if (f->state != FRESH && f->state != RUNS) continue;
    if (f->state == FRESH) begin_at(&f->context, stacks + (size_t)thread * STRIDE, body);
    f->state = RUNS;
    emulated_here.thread = thread;
    return &f->context;
  }
  return &scheduler;
}

static void body(void) {
  running.kernel(running.arguments);
  Fiber *f = &fiber[emulated_here.thread];
  if (f->copies)
    wrong("cuLaunchKernel", "kernel %s: thread %d ends, and does not wait for its copies", running.name,
          emulated_here.thread);
  f->state = DONE;
  emulated_switch(&f->context, next_lane());
}

static void wait_in(State state, int place) {
  Fiber *f = &fiber[emulated_here.thread];
  f->state = state;
  f->place = place;
  emulated_switch(&f->context, next_lane());
}

void emulated_barrier(int place);
int emulated_barrier_or(int flag, int place);
double emulated_shuffle(double value, int mask, int place);
void emulated_copy(uint16_t *to, const uint16_t *from, int bytes, int line);
void emulated_copies_end(void);
void emulated_copies_wait(int newest);
void *emulated_shared(const void *site, size_t bytes);

void emulated_barrier(int place) { wait_in(AT_BARRIER, place); }

int emulated_barrier_or(int flag, int place) {
  fiber[emulated_here.thread].flag = flag != 0;
  wait_in(AT_BARRIER, place);
  return fiber[emulated_here.thread].flag;
}

static _Alignas(16) char exchanged[WARP][FIBERS_EXCHANGED]; // of the warp that runs

const char (*fibers_exchange(const void *mine, size_t bytes, const char *what, int place))[FIBERS_EXCHANGED] {
  Fiber *f = &fiber[emulated_here.thread];
  f->what = what;
  f->mine = mine;
  f->bytes = bytes;
  wait_in(AT_EXCHANGE, place);
  return exchanged;
}

double emulated_shuffle(double value, int mask, int place) {
  double other;
  memcpy(&other, fibers_exchange(&value, sizeof value, "shuffle", place)[emulated_here.thread % WARP ^ mask], sizeof other);
  return other;
}

// Copies to shared memory --------------------------------------------------------------------------------------------

static void copy_now(uint16_t *to, const uint16_t *from, int bytes) {
  memset(to, 0, 16);
  if (bytes) memcpy(to, from, (size_t)bytes);
}

// By lot it is done at once, or when the thread waits for it: a card may do either.
void emulated_copy(uint16_t *to, const uint16_t *from, int bytes, int line) {
  Fiber *f = &fiber[emulated_here.thread];
  if ((uintptr_t)to % 16 || (bytes && (uintptr_t)from % 16) || bytes < 0 || bytes > 16)
    wrong("cuLaunchKernel", "kernel %s, line %d: %d bytes are copied from %p to %p: at most 16, and to and from addresses "
          "that 16 divides", running.name, line, bytes, (const void *)from, (void *)to);
  if (draw(2)) return copy_now(to, from, bytes);
  if (f->copies == MOST_COPIES)
    wrong("cuLaunchKernel", "kernel %s, line %d: the emulator has no room for more copies", running.name, line);
  f->copy[f->copies].to = to;
  f->copy[f->copies].from = from;
  f->copy[f->copies].bytes = bytes;
  f->copy[f->copies++].group = f->group;
}

void emulated_copies_end(void) { fiber[emulated_here.thread].group++; }

void emulated_copies_wait(int newest) {
  Fiber *f = &fiber[emulated_here.thread];
  int done = 0;
  while (done < f->copies && f->copy[done].group < f->group - newest) {
    copy_now(f->copy[done].to, f->copy[done].from, f->copy[done].bytes);
    done++;
  }
  f->copies -= done;
  memmove(f->copy, f->copy + done, (size_t)f->copies * sizeof *f->copy);
}

// Shared memory ------------------------------------------------------------------------------------------------------

// Each array ends before a page that nobody may touch. Its place in the table follows from its site: each thread asks for it.
static struct { const void *site; size_t bytes; char *own; int64_t block; } array[MOST_ARRAYS];
static int arrays;
static size_t shared_bytes;

size_t fibers_shared(void) { return shared_bytes; }

void *emulated_shared(const void *site, size_t bytes) {
  int i = (int)((uintptr_t)site % MOST_ARRAYS);
  while (array[i].site && array[i].site != site) i = (i + 1) % MOST_ARRAYS;
  if (!array[i].site) {
    size_t mapped = (bytes + GUARD - 1) / GUARD * GUARD;
    if (++arrays == MOST_ARRAYS)
      wrong("cuLaunchKernel", "kernel %s: the emulator has no room for more shared arrays", running.name);
    char *at = mmap(NULL, mapped + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at, mapped, PROT_READ | PROT_WRITE)) wrong("cuLaunchKernel", "the host has no memory left");
    array[i].site = site;
    array[i].bytes = bytes;
    array[i].own = at + mapped - (bytes + 15) / 16 * 16;
    array[i].block = -1;
  }
  if (array[i].block != running.blocks_done) {
    array[i].block = running.blocks_done;
    memset(array[i].own, 0xff, bytes); // NaN
    shared_bytes += (bytes + 15) / 16 * 16;
    if (shared_bytes > MOST_SHARED)
      wrong("cuLaunchKernel", "kernel %s has more than %d bytes of shared memory", running.name, MOST_SHARED);
  }
  return array[i].own;
}

// Scheduling ---------------------------------------------------------------------------------------------------------

static int line_of(const Fiber *f) { return f->place & 0xffff; }

static _Noreturn void apart(int first, int other) {
  char text[2][64];
  const int thread[2] = {first, other};
  for (int k = 0; k < 2; k++) {
    const Fiber *f = &fiber[thread[k]];
    if (f->state == DONE) snprintf(text[k], sizeof text[k], "has ended");
    else snprintf(text[k], sizeof text[k], "waits at the %s of line %d", f->state == AT_BARRIER ? "barrier" : f->what,
                  line_of(f));
  }
  wrong("cuLaunchKernel", "kernel %s: in block %lld thread %d %s, and thread %d %s", running.name,
        (long long)emulated_here.block, first, text[0], other, text[1]);
}

static int same_place(const Fiber *a, const Fiber *b) {
  return a->state == b->state && a->place == b->place && !strcmp(a->what, b->what);
}

// What each lane gives, as it is when the last one has come.
static void exchange(int first, int lanes) {
  for (int i = 1; i < lanes; i++)
    if (!same_place(&fiber[first], &fiber[first + i])) apart(first, first + i);
  if (lanes < WARP)
    wrong("cuLaunchKernel", "kernel %s: a warp of %d lanes comes to the %s of line %d", running.name, lanes,
          fiber[first].what, line_of(&fiber[first]));
  for (int i = 0; i < lanes; i++) {
    emulated_here.thread = first + i;
    memcpy(exchanged[i], fiber[first + i].mine, fiber[first + i].bytes);
    fiber[first + i].state = RUNS;
  }
}

// The lanes of a warp until they wait at a barrier, or have ended.
static void run_warp(int first, int lanes) {
  for (;;) {
    warp.first = first;
    warp.left = lanes;
    warp.order = (Order){(int64_t)draw((uint64_t)lanes), lanes == WARP ? 1 + 2 * (int64_t)draw(WARP / 2) : 1, lanes};
    const Context *lane = next_lane();
    if (lane != &scheduler) emulated_switch(&scheduler, lane);
    int waiting = 0;
    for (int i = 0; i < lanes; i++) waiting += fiber[first + i].state == AT_EXCHANGE;
    if (!waiting) return;
    exchange(first, lanes);
  }
}

// 0: all have ended.
static int pass_barrier(int threads) {
  int flag = 0;
  for (int t = 1; t < threads; t++)
    if (fiber[t].state != fiber[0].state || (fiber[0].state != DONE && fiber[t].place != fiber[0].place)) apart(0, t);
  if (fiber[0].state == DONE) return 0;
  for (int t = 0; t < threads; t++) flag |= fiber[t].flag;
  for (int t = 0; t < threads; t++) {
    fiber[t].flag = flag;
    fiber[t].state = RUNS;
  }
  return 1;
}

static void run_block(int64_t block, int threads) {
  emulated_here.block = block;
  for (int t = 0; t < threads; t++) {
    fiber[t].state = FRESH;
    fiber[t].flag = fiber[t].copies = fiber[t].group = 0;
    fiber[t].what = "";
  }
  shared_bytes = 0;
  int warps = (threads + WARP - 1) / WARP;
  do {
    Order order = drawn_order(warps);
    for (int i = 0; i < warps; i++) {
      int first = (int)next_of(&order) * WARP;
      run_warp(first, threads - first < WARP ? threads - first : WARP);
    }
  } while (pass_barrier(threads));
  running.blocks_done++;
}

void fibers_run(const char *name, void (*kernel)(const void *arguments), const void *arguments, int64_t blocks,
                int threads) {
  if (!stacks) {
    stacks = mmap(NULL, (size_t)MOST_THREADS * STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    if (stacks == MAP_FAILED) wrong("cuLaunchKernel", "the host has no memory left");
  }
  running.name = name;
  running.kernel = kernel;
  running.arguments = arguments;
  emulated_here = (Here){.threads = threads, .blocks = blocks};
  Order order = drawn_order(blocks);
  for (int64_t i = 0; i < blocks; i++) run_block(next_of(&order), threads);
  running.kernel = NULL;
}
