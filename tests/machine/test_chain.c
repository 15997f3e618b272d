// The dynamic programme for chains equals all lists, tried one by one; what it says is what a walk measures.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "machine/chain.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 96, MOST = 8 };

static uint64_t state_of_random;
static int below(int n) {
  state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
  return (int)((state_of_random >> 33) % (uint64_t)n);
}

// Options keep less and less, and take longer.
static Chain random_chain(uint64_t seed, int blocks, int options, int slots) {
  static const char *const names[] = {"keep", "selective", "full"};
  Chain c = {.block = xcalloc((size_t)blocks, sizeof *c.block), .blocks = blocks, .held = slots > 0};
  state_of_random = seed;
  for (int i = 0; i < blocks; i++) {
    ChainBlock *b = &c.block[i];
    b->input = 1 + below(4);
    b->forward = 1 + below(9);
    b->forward_peak = below(4);
  }
  c.output = 1 + below(4);
  for (int i = 0; i < blocks; i++) {
    ChainBlock *b = &c.block[i];
    int64_t output = i + 1 < blocks ? c.block[i + 1].input : c.output;
    b->options = options;
    b->slots = slots + (slots > 1 && i % 3 == 2 ? -1 : 0); // of several stages on a rank
    b->begins = slots > 1 && i % 3 == 2;
    for (int o = 0; o < options; o++) {
      ChainOption *p = &b->option[o];
      strcpy(p->name, names[o]);
      p->forward = b->forward;
      p->backward = 2 * b->forward + o * (1 + below(4));
      p->kept = output + (options - 1 - o) * (1 + below(8));
      p->forward_peak = below(3);
      p->backward_peak = 1 + below(6);
    }
  }
  return c;
}

// All lists ---------------------------------------------------------------------------------------------------------

typedef struct All {
  const Chain *chain;
  double best[MEMORY + 1]; // by the bytes that a list needs
  int64_t lists;
} All;

static void measure(All *all, const ChainList *list) {
  ChainList copy = *list;
  chain_measure(all->chain, &copy);
  all->lists++;
  if (copy.bytes <= MEMORY) all->best[copy.bytes] = fmin(all->best[copy.bytes], copy.seconds);
}

typedef struct Task { int first, end; bool open; struct Task *next; } Task; // open: a segment may reach to the end

// Every list of the blocks of a task, and for each of them of all tasks after it.
static void every(All *all, ChainList *list, const Task *task) {
  if (!task) {
    measure(all, list);
    return;
  }
  if (task->first == task->end) {
    every(all, list, task->next);
    return;
  }
  const ChainBlock *b = &all->chain->block[task->first];
  Task rest = {task->first + 1, task->end, task->open, task->next};
  for (int o = 0; o < b->options; o++) {
    list->option[task->first] = o;
    every(all, list, &rest);
  }
  for (int k = task->first + 1; k < task->end + task->open; k++) {
    if (k - 1 > task->first && all->chain->block[k - 1].begins) break;
    Task after = {k, task->end, task->open, task->next}, inside = {task->first, k, false, &after};
    ChainList with = {.option = list->option};
    for (int i = 0; i < list->segment.count; i++) vec_push(&with.segment, list->segment.data[i]);
    chain_list_add_segment(&with, task->first, k);
    every(all, &with, &inside);
    vec_free(&with.segment);
  }
}

static void compare(uint64_t seed, int blocks, int options, int slots) {
  Chain chain = random_chain(seed, blocks, options, slots);
  All all = {.chain = &chain};
  ChainList list = {.option = xcalloc((size_t)blocks, sizeof *list.option)};
  for (int m = 0; m <= MEMORY; m++) all.best[m] = INFINITY;
  every(&all, &list, &(Task){0, blocks, slots > 0, NULL});
  ChainSolver *solver = chain_solver_create(&chain, MEMORY, MEMORY);
  double best = INFINITY;
  for (int m = 0; m <= MEMORY; m++) {
    ChainList found;
    best = fmin(best, all.best[m]);
    bool fits = chain_solve(solver, m, &found);
    if (fits != (best < INFINITY))
      fail_msg("seed %d, %d blocks, memory %d: %s", (int)seed, blocks, m, fits ? "found one too many" : "found none");
    if (!fits) continue;
    char *text = chain_list_text(&chain, &found);
    if (found.bytes > m || fabs(found.seconds - best) > 1e-9)
      fail_msg("seed %d, %d blocks, slots %d, memory %d: %s takes %g in %d, all %d lists at least %g", (int)seed,
               blocks, slots, m, text, found.seconds, (int)found.bytes, (int)all.lists, best);
    free(text);
    chain_list_free(&found);
  }
  chain_solver_free(solver);
  chain_list_free(&list);
  free(chain.block);
}

static void equals_all_lists(void **state) {
  for (int blocks = 1; blocks <= 6; blocks++)
    for (uint64_t seed = 1; seed <= 6; seed++) compare(seed, blocks, 3, 0);
  for (uint64_t seed = 1; seed <= 3; seed++) compare(seed, 7, 2, 0);
  compare(1, MOST, 2, 0);
  compare(2, MOST, 1, 0);
}

static void equals_all_lists_with_slots(void **state) {
  for (int blocks = 1; blocks <= 5; blocks++)
    for (uint64_t seed = 1; seed <= 4; seed++)
      for (int slots = 1; slots <= 3; slots++) compare(seed, blocks, 3, slots);
  compare(5, 7, 2, 2);
  compare(5, MOST, 1, 2);
}

// A chain of alike blocks that keeps only every other input: counted by hand.
static void measures_by_hand(void **state) {
  ChainOption keep = {.name = "keep", .forward = 1, .backward = 2, .kept = 5, .backward_peak = 3};
  ChainBlock block[4];
  for (int i = 0; i < 4; i++) block[i] = (ChainBlock){.input = 1, .forward = 1, .option = {keep}, .options = 1};
  Chain c = {.block = block, .blocks = 4, .output = 1};
  ChainList list = {.option = (int[4]){0}};
  chain_measure(&c, &list);
  assert_true(list.seconds == 12 && list.bytes == 4 * 5 + 3);
  chain_list_add_segment(&list, 0, 2);
  chain_measure(&c, &list); // beside two blocks that keep, the input of the third: 1 + 10 + 3, then 10 + 3
  assert_true(list.seconds == 14 && list.bytes == 14);
  char *text = chain_list_text(&c, &list);
  assert_string_equal(text, "[(keep x 2), keep x 2]");
  free(text);
  chain_list_add_segment(&list, 0, 1);
  chain_measure(&c, &list);
  assert_true(list.seconds == 15 && list.bytes == 14);
  text = chain_list_text(&c, &list);
  assert_string_equal(text, "[((keep), keep), keep x 2]");
  free(text);
  c.held = true;
  for (int i = 0; i < 4; i++)
    block[i].slots = 3; // three microbatches keep an input and two blocks; one of them runs two blocks again
  chain_measure(&c, &list);
  assert_true(list.seconds == 15 && list.bytes == 3 * 11 + 1 + 5 + 3);
  vec_free(&list.segment);
}

// Rounding up never lets through what does not fit, and costs little.
static void rounds_up(void **state) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    Chain chain = random_chain(seed, 24, 3, 0);
    int64_t most = chain_most_bytes(&chain);
    ChainSolver *exact = chain_solver_create(&chain, most, (int)most), *coarse = chain_solver_create(&chain, most, 64);
    int found = 0;
    for (int64_t m = most / 4; m <= most; m += most / 16) {
      ChainList a, b;
      if (!chain_solve(coarse, m, &b)) continue;
      assert_true(b.bytes <= m);
      assert_true(chain_solve(exact, m, &a));
      assert_true(a.seconds <= b.seconds);
      chain_list_free(&a), chain_list_free(&b);
      found++;
    }
    assert_true(found > 3);
    ChainList least, none;
    int64_t bytes = chain_least_bytes(exact);
    assert_true(chain_solve(exact, bytes, &least) && least.bytes <= bytes && !chain_solve(exact, bytes - 1, &none));
    chain_list_free(&least);
    chain_solver_free(exact), chain_solver_free(coarse);
    free(chain.block);
  }
}

static void reads_text(void **state) {
  Chain c;
  int64_t memory;
  Error error = {0};
  static const char good[] =
      "# a comment\nmemory 2GB\nslots 2\nblock 1kB 0.5 3\noption keep 0.5 1 4MB 1 2\n"
      "option full 0.5 1.5 1000\n\nstage\nblock 1000 0.25\noption keep 0.25 0.5 1.5kB # after\noutput 8\n";
  assert_int_equal(chain_read("x", good, &c, &memory, &error), PLAIT_OK);
  assert_true(memory == 2000000000 && c.blocks == 2 && c.held && c.block[1].slots == 2 && c.block[1].begins &&
              c.output == 8);
  assert_true(c.block[0].options == 2 && c.block[0].option[0].kept == 4000000 && c.block[0].forward_peak == 3);
  assert_true(c.block[1].option[0].kept == 1500 && c.block[0].option[0].backward_peak == 2);
  free(c.block);
  static const char *const bad[][2] = {
      {"", "x: there is no block"},
      {"block 1 1\n", "x: block 0 has no option; give it one"},
      {"block 1\n", "x:1: expected block INPUT FORWARD [PEAK]"},
      {"\noption keep 1 1 1\n", "x:2: option before the first block"},
      {"block -1 1\n", "x:1: bytes must be a number from 0 to 1e18 such as 4096, 12kB or 1.5GB, not -1"},
      {"block 1 nan\n", "x:1: seconds must be a number of at least 0, not nan"},
      {"slots 1.5\n", "x:1: slots must be an integer from 0 to 1048576, not 1.5"},
      {"blocks 1\n", "x:1: a line begins with memory, slots, output, stage, block or option, not blocks"},
      {"block 1 1\noption a 1 1 1\noption b 1 1 1\noption c 1 1 1\noption d 1 1 1\noption e 1 1 1\n",
       "x:6: a block has at most 4 options"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    error = (Error){0};
    assert_int_equal(chain_read("x", bad[i][0], &c, &memory, &error), PLAIT_BAD_INPUT);
    assert_string_equal(error.message, bad[i][1]);
    assert_null(c.block);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(measures_by_hand), cmocka_unit_test(equals_all_lists),
                                     cmocka_unit_test(equals_all_lists_with_slots), cmocka_unit_test(rounds_up),
                                     cmocka_unit_test(reads_text)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
