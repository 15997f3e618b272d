// tier 2; rooms checkpoint
// Checkpoints of what dead workers have left in memory: which step, by whom, and when not.
#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/memory_image.h"
#include "base/run_lock.h"
#include "elastic/rescue.h"
#include "elastic/rescue_folder.h"
#include "tier.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { LENGTH = 6 };

static char folder[] = "/tmp/test_rescue_XXXXXX", *run_folder, *checkpoints;

static int begin(void **state) {
  if (!mkdtemp(folder)) return -1;
  run_folder = xformat("%s/run", folder);
  checkpoints = xformat("%s/checkpoints", run_folder);
  return 0;
}
static int end(void **state) {
  free(run_folder);
  free(checkpoints);
  return folder_remove(folder, NULL);
}

// A run's folder that the round of the job has locked, and that has a checkpoint of step 2.
static void make_run(const char *holder) {
  char *lock = xformat("%s/lock", run_folder);
  Error error = {0};
  folder_remove(run_folder, NULL);
  assert_int_equal(folder_create(run_folder, &error), 0);
  FILE *f = fopen(lock, "w");
  assert_non_null(f);
  fputs(holder, f);
  fclose(f);
  free(lock);
  double x = 1;
  CheckpointTensor t = {.name = "x", .dtype = DTYPE_F64, .data = &x, .primary = 1};
  assert_int_equal(checkpoint_begin(checkpoints, 2, &error), 0);
  assert_int_equal(checkpoint_write_part(checkpoints, 2, 0, &t, 1, &error), 0);
  assert_int_equal(checkpoint_finish(checkpoints, 2, 1, NULL, &error), 0);
}

// The workers of a machine, of that number of ranks in all.
static Workers make_workers(int first, int count) {
  Workers w = {.worker = xcalloc((size_t)count, sizeof(Worker)), .count = count, .run = "job.token.3"};
  for (int i = 0; i < count; i++) {
    w.worker[i] = (Worker){.rank = first + i, .ended = true};
    for (int k = 0; k < WORKER_MEMORIES; k++)
      assert_true((w.worker[i].memory[k] = memfd_create("memory", MFD_CLOEXEC)) >= 0);
  }
  return w;
}

static void free_workers(Workers *w) {
  for (int i = 0; i < w->count; i++)
    for (int k = 0; k < WORKER_MEMORIES; k++) close(w->worker[i].memory[k]);
  free(w->worker);
}

// The part that the worker keeps of that step in one of its memories: its share of the numbers step, step + 1 …
static void keep(const Workers *w, int rank, int ranks, int memory, int64_t step) {
  const Worker *worker = &w->worker[rank - w->worker[0].rank];
  float x[LENGTH];
  int count;
  CheckpointTensor t = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {LENGTH}, .primary = 1};
  MemoryImageLabel label = {.run = w->run, .step = step, .rank = rank, .ranks = ranks, .dir = checkpoints, .keep = 2,
                            .extra = rank ? NULL : "{\"tokens\": 5.0}"};
  MemoryImage *m;
  Error error = {0};
  t.offset[0] = LENGTH * rank / ranks;
  t.local[0] = LENGTH * (rank + 1) / ranks - t.offset[0];
  for (int i = 0; i < LENGTH; i++) x[i] = (float)(step + t.offset[0] + i);
  assert_int_equal(memory_image_create(worker->memory[memory], &t, 1, &m, &error), 0);
  memory_image_begin(m);
  memcpy(memory_image_pieces(m, &count)[0].data, x, (size_t)t.local[0] * sizeof *x);
  assert_int_equal(memory_image_complete(m, &label, &error), 0);
  memory_image_close(m);
}

// The newest checkpoint, which holds what its step says.
static int64_t newest(void) {
  int64_t step = -1;
  float x[LENGTH];
  Checkpoint *c;
  Error error = {0};
  if (checkpoint_latest_valid(checkpoints, &step, &c, NULL, &error) <= 0) return -1;
  if (step != 2) {
    const int64_t offset[1] = {0}, local[1] = {LENGTH};
    assert_int_equal(checkpoint_read_box(c, "x", offset, local, DTYPE_F32, x, &error), 0);
    for (int i = 0; i < LENGTH; i++) assert_true(x[i] == (float)(step + i));
    assert_true(json_number_value(json_object_get(checkpoint_extra(c), "tokens")) == 5);
  }
  checkpoint_close(c);
  return step;
}

static RescuePlace place(int ranks) { return (RescuePlace){"token", 3, ranks, run_folder}; }

static void one_machine(void **state) {
  make_run("1 token 3\n");
  Workers w = make_workers(0, 2);
  RescuePlace here = place(2);
  assert_null(rescue_begin(&w, &here)); // there is nothing
  keep(&w, 0, 2, 0, 4);
  keep(&w, 1, 2, 0, 4);
  keep(&w, 0, 2, 1, 7); // rank 1 died before it had that step
  rescue_end(rescue_begin(&w, &here));
  assert_int_equal(newest(), 4);
  keep(&w, 1, 2, 1, 7);
  rescue_end(rescue_begin(&w, &here));
  assert_int_equal(newest(), 7);
  assert_null(rescue_begin(&w, &here)); // it lies there
  free_workers(&w);
}

// One process of three ranks has no place in the mesh.
static void idle_ranks(void **state) {
  make_run("1 token 3\n");
  Workers w = make_workers(0, 3);
  RescuePlace here = place(3);
  keep(&w, 0, 2, 0, 4);
  keep(&w, 1, 2, 1, 4);
  rescue_end(rescue_begin(&w, &here));
  assert_int_equal(newest(), 4);
  free_workers(&w);
}

static void who_may_write(void **state) {
  static const char *const others[] = {"1 token 4\n", "1 other 3\n", "1\n", ""};
  Workers w = make_workers(0, 1);
  RescuePlace here = place(1);
  keep(&w, 0, 1, 0, 4);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    make_run(others[i]);
    rescue_end(rescue_begin(&w, &here));
    assert_int_equal(newest(), 2);
  }
  // Who has the lock may be saving the same step: what it has written stays.
  make_run("1 token 3\n");
  char *lock = xformat("%s/lock", run_folder), *theirs = xformat("%s/checkpoints/step-4.tmp", run_folder);
  int held = file_open(lock, O_RDWR);
  assert_int_equal(run_lock_take(held), 0);
  assert_int_equal(folder_create(theirs, NULL), PLAIT_OK);
  rescue_end(rescue_begin(&w, &here));
  assert_true(file_exists(theirs));
  close(held);
  free(lock);
  free(theirs);

  make_run("1 token 3\n");
  snprintf(w.run, sizeof w.run, "job.token.4"); // they are of another round
  assert_null(rescue_begin(&w, &here));
  free_workers(&w);
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static void wait_for(Rescue *r) {
  while (!rescue_is_done(r)) nap();
}

// Supervisors of two machines, which are two threads here.
static void two_machines(void **state) {
  make_run("1 token 3\n");
  Workers a = make_workers(0, 2), b = make_workers(2, 1);
  RescuePlace here = place(3);
  for (int rank = 0; rank < 3; rank++) {
    keep(rank < 2 ? &a : &b, rank, 3, 0, 6);
    if (rank) keep(rank < 2 ? &a : &b, rank, 3, 1, 9);
  }
  Rescue *second = rescue_begin(&b, &here), *first = rescue_begin(&a, &here);
  assert_non_null(first);
  assert_non_null(second);
  wait_for(first);
  rescue_end(second);
  rescue_end(first);
  assert_int_equal(newest(), 6);
  char *left = xformat("%s/memory-token-3", run_folder);
  assert_false(file_exists(left));
  free(left);
  free_workers(&a);
  free_workers(&b);
}

// All of x on each of two machines, which the first writes where both are there.
static void keep_all(const Workers *w, int rank, int64_t step) {
  float x[LENGTH];
  int count;
  CheckpointTensor t = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {LENGTH}, .local = {LENGTH},
                        .primary = !rank, .spare = rank};
  MemoryImageLabel label = {.run = w->run, .step = step, .rank = rank, .ranks = 2, .alone = 1, .dir = checkpoints,
                            .keep = 2, .extra = "{\"tokens\": 5.0}"};
  MemoryImage *m;
  Error error = {0};
  for (int i = 0; i < LENGTH; i++) x[i] = (float)(step + i);
  assert_int_equal(memory_image_create(w->worker->memory[step % 2], &t, 1, &m, &error), 0);
  memory_image_begin(m);
  memcpy(memory_image_pieces(m, &count)[0].data, x, sizeof x);
  assert_int_equal(memory_image_complete(m, &label, &error), 0);
  memory_image_close(m);
}

static void all_on_each(void **state) {
  for (int lost = -1; lost < 2; lost++) {
    make_run("1 token 3\n");
    Workers w[2] = {make_workers(0, 1), make_workers(1, 1)};
    RescuePlace here = place(2);
    Rescue *r[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) keep_all(&w[i], i, 6);
    keep_all(&w[1], 1, 9); // rank 0 died before
    for (int i = 0; i < 2; i++)
      if (i != lost) assert_non_null(r[i] = rescue_begin(&w[i], &here));
    for (int i = 0; i < 2; i++)
      if (lost >= 0 && i != lost) rescue_lose(r[i], &(RescueLoss){1, 1, i});
    for (int i = 0; i < 2; i++) rescue_end(r[i]);
    assert_int_equal(newest(), lost ? 6 : 9);
    for (int i = 0; i < 2; i++) free_workers(&w[i]);
  }
}

// One of two machines saves what it can of step 6 when something is said of the other: nothing is saved, and it does
// not wait.
static void of_two(int other, void (*tell)(Rescue *r, int other)) {
  make_run("1 token 3\n");
  Workers w = make_workers(!other, 1);
  RescuePlace here = place(2);
  keep(&w, !other, 2, 0, 6);
  double began = clock_seconds();
  Rescue *r = rescue_begin(&w, &here);
  assert_non_null(r);
  tell(r, other);
  wait_for(r);
  assert_true(clock_seconds() - began < test_seconds(10));
  rescue_end(r);
  assert_int_equal(newest(), 2);
  char *left = xformat("%s/memory-token-3", run_folder);
  assert_false(file_exists(left));
  free(left);
  free_workers(&w);
}

static void lose(Rescue *r, int other) { rescue_lose(r, &(RescueLoss){1, 1, !other}); }

static void a_machine_is_lost(void **state) {
  for (int lost = 0; lost < 2; lost++) of_two(lost, lose);
}

static void tell_end(Rescue *r, int other) {
  rescue_ended(r, other);
  rescue_ended(r, other); // it may be said again
}

// It was cut off, and has said that its workers have ended, without having saved anything.
static void a_machine_has_ended(void **state) {
  for (int ended = 0; ended < 2; ended++) of_two(ended, tell_end);
}

// It has said what it has, but was cut off before it wrote its part.
static void a_part_does_not_come(void **state) {
  make_run("1 token 3\n");
  Workers w = make_workers(0, 1);
  RescuePlace here = place(2);
  RescueFolder meeting = {run_folder, "token", 3, 0};
  RescueNote note = {.first = 1, .count = 1, .mesh = 2};
  Error error = {0};
  keep(&w, 0, 2, 0, 6);
  vec_push(&note.kept, (RescueKept){1, 6});
  assert_int_equal(rescue_folder_write(&meeting, &note, &error), 0);
  rescue_note_free(&note);
  Rescue *r = rescue_begin(&w, &here);
  assert_non_null(r);
  int64_t step;
  double began = clock_seconds();
  while (rescue_folder_decision(&meeting, &step) <= 0 && clock_seconds() - began < test_seconds(10)) nap();
  assert_int_equal(step, 6);
  assert_false(rescue_is_done(r)); // it may still come
  rescue_ended(r, 1);
  while (!rescue_is_done(r) && clock_seconds() - began < test_seconds(20)) nap();
  assert_true(rescue_is_done(r));
  rescue_end(r);
  assert_int_equal(newest(), 2);
  free_workers(&w);
}

// Of three machines with a rank each, where each has copies of the one before. Whichever is lost, the newest step of
// which all ranks are there is saved; of two that are lost, one may have had the copies of the other.
static void copies_count(void **state) {
  enum { MACHINES = 3 };
  for (int lost = 0; lost < 2 * MACHINES; lost++) {
    make_run("1 token 3\n");
    Workers w[MACHINES], copy[MACHINES];
    Rescue *r[MACHINES] = {NULL};
    RescuePlace here[MACHINES];
    bool two = lost >= MACHINES; // and the machine behind it
    int first = lost % MACHINES, second = two ? (first + 1) % MACHINES : first, left = MACHINES - 1 - two;
    for (int i = 0; i < MACHINES; i++) {
      w[i] = make_workers(i, 1);
      copy[i] = make_workers((i + MACHINES - 1) % MACHINES, 1);
      for (int k = 0; k < 2; k++) {
        keep(&w[i], i, MACHINES, k, k ? 9 : 6);
        keep(&copy[i], copy[i].worker->rank, MACHINES, k, k ? 9 : 6);
      }
      here[i] = place(MACHINES);
      here[i].copied = true;
      here[i].copy = copy[i].worker->memory;
      here[i].copies = WORKER_MEMORIES;
    }
    int leader = -1;
    for (int i = 0; i < MACHINES; i++)
      if (i != first && i != second) assert_non_null(r[i] = rescue_begin(&w[i], &here[i]));
    for (int i = 0; i < MACHINES; i++)
      if (r[i]) {
        if (leader < 0) leader = i;
        if (two) rescue_lose(r[i], &(RescueLoss){1, left + 1, second}); // which is lost later
        rescue_lose(r[i], &(RescueLoss){1 + two, left, leader});
      }
    for (int i = 0; i < MACHINES; i++) rescue_end(r[i]);
    assert_int_equal(newest(), two ? 2 : 9);
    char *left_over = xformat("%s/memory-token-3", run_folder);
    assert_false(file_exists(left_over));
    free(left_over);
    for (int i = 0; i < MACHINES; i++) free_workers(&w[i]), free_workers(&copy[i]);
  }
}

// A copy of the step that the rank itself has is not written twice, and one that the rank lacks is of use.
static void home_comes_first(void **state) {
  make_run("1 token 3\n");
  Workers a = make_workers(0, 1), b = make_workers(1, 1), of_b = make_workers(1, 1);
  RescuePlace at_a = place(2), at_b = place(2);
  keep(&a, 0, 2, 0, 6);
  keep(&a, 0, 2, 1, 9);
  keep(&b, 1, 2, 0, 6);
  keep(&of_b, 1, 2, 0, 6);
  keep(&of_b, 1, 2, 1, 9);
  at_a.copied = at_b.copied = true;
  at_a.copy = of_b.worker->memory;
  at_a.copies = WORKER_MEMORIES;
  Rescue *second = rescue_begin(&b, &at_b), *first = rescue_begin(&a, &at_a);
  rescue_end(second);
  rescue_end(first);
  assert_int_equal(newest(), 9);
  free_workers(&a);
  free_workers(&b);
  free_workers(&of_b);
}

// Notes of rounds that have ended go, and nothing else.
static void what_a_leader_leaves(void **state) {
  static const char *const others[] = {"memory-notes", "memory-token-3.txt", "memory-token-3-without-", "lock"};
  Error error = {0};
  make_run("1 token 3");
  for (int lost = 0; lost < 2; lost++) {
    RescueNote note = {.first = 1, .count = 1, .mesh = 2};
    assert_int_equal(rescue_folder_write(&(RescueFolder){run_folder, "token", 3, lost}, &note, &error), 0);
  }
  for (int i = 0; i < 3; i++) {
    char *path = xformat("%s/%s", run_folder, others[i]);
    assert_int_equal(folder_create(path, &error), 0);
    free(path);
  }
  rescue_folder_remove_left(run_folder);
  rescue_folder_remove_left(NULL);
  for (int i = 0; i < 6; i++) {
    char *path = xformat("%s/%s", run_folder,
                         i < 4    ? others[i]
                         : i == 4 ? "memory-token-3"
                                  : "memory-token-3-without-1");
    assert_int_equal(file_exists(path), i < 4);
    free(path);
  }
}

static void newest_of_all(void **state) {
  RescueNotes notes = {0};
  RescueNote a = {.first = 0, .count = 2, .mesh = 3}, b = {.first = 2, .count = 2, .mesh = 3};
  assert_int_equal(rescue_newest(&notes), -1);
  vec_push(&a.kept, (RescueKept){0, 10});
  vec_push(&a.kept, (RescueKept){1, 10});
  vec_push(&a.kept, (RescueKept){0, 15});
  vec_push(&b.kept, (RescueKept){2, 15});
  vec_push(&notes, a);
  vec_push(&notes, b);
  assert_int_equal(rescue_ranks(&notes), 4);
  assert_int_equal(rescue_newest(&notes), -1);
  vec_push(&notes.data[1].kept, (RescueKept){2, 10});
  assert_int_equal(rescue_newest(&notes), 10);
  vec_push(&notes.data[0].kept, (RescueKept){1, 15});
  assert_int_equal(rescue_newest(&notes), 15);
  rescue_notes_free(&notes);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(newest_of_all),        cmocka_unit_test(one_machine),
                                     cmocka_unit_test(idle_ranks),           cmocka_unit_test(who_may_write),
                                     cmocka_unit_test(two_machines),         cmocka_unit_test(a_machine_has_ended),
                                     cmocka_unit_test(a_part_does_not_come), cmocka_unit_test(a_machine_is_lost),
                                     cmocka_unit_test(all_on_each),          cmocka_unit_test(copies_count),
                                     cmocka_unit_test(home_comes_first),     cmocka_unit_test(what_a_leader_leaves)};
  cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, begin, end);
}
