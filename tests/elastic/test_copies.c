// tier 2; rooms comm checkpoint
// Memory of workers on the next machine (checkpoint.copies): what is sent arrives, and what comes in part, damaged, or
// from a stranger is not used. The machines are of one process here.
#include "base/clock.h"
#include "checkpoint/checksum.h"
#include "checkpoint/memory_image.h"
#include "net/socket.h"
#include "net/secret.h"
#include "elastic/copies.h"
#include "elastic/copies_protocol.h"
#include "elastic/port.h"
#include "tier.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { LENGTH = 3 << 18, SHORT = 4000 }; // elements of fp32: of several pieces; of less than one

static Workers make_workers(int first, int count) {
  Workers w = {.worker = xcalloc((size_t)count, sizeof(Worker)), .count = count, .run = "job.token.3"};
  for (int i = 0; i < count; i++) {
    w.worker[i] = (Worker){.rank = first + i};
    for (int k = 0; k < WORKER_MEMORIES; k++) {
      assert_true((w.worker[i].memory[k] = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING)) >= 0);
      fcntl(w.worker[i].memory[k], F_ADD_SEALS, F_SEAL_SHRINK);
    }
  }
  return w;
}

static void free_workers(Workers *w) {
  for (int i = 0; i < w->count; i++)
    for (int k = 0; k < WORKER_MEMORIES; k++) close(w->worker[i].memory[k]);
  free(w->worker);
}

// A rank's image, which it writes as often as it likes.
static MemoryImage *create(const Workers *w, int i, int memory, int64_t length) {
  CheckpointTensor t = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {length}, .local = {length},
                        .primary = 1};
  MemoryImage *m;
  Error error = {0};
  assert_int_equal(memory_image_create(w->worker[i].memory[memory], &t, 1, &m, &error), 0);
  return m;
}

// All elements are the step.
static void fill(const Workers *w, int i, MemoryImage *m, int64_t step, int alone) {
  MemoryImageLabel label = {.run = w->run, .step = step, .rank = w->worker[i].rank, .ranks = 4, .alone = alone,
                            .dir = "/nowhere", .extra = "{}"};
  Error error = {0};
  int count;
  memory_image_begin(m);
  const CheckpointTensor *t = memory_image_pieces(m, &count);
  for (int64_t k = 0; k < t->local[0]; k++) ((float *)t->data)[k] = (float)step;
  assert_int_equal(memory_image_complete(m, &label, &error), 0);
}

static void keep(const Workers *w, int i, int memory, int64_t length, int64_t step) {
  MemoryImage *m = create(w, i, memory, length);
  fill(w, i, m, step, 0);
  memory_image_close(m);
}

// The newest whole copy of a rank, all of whose elements must be its step; -1: there is none.
static int64_t newest(const Copies *c, int rank, int *images) {
  const int *fd;
  int64_t step = -1;
  int files = copies_files(c, &fd);
  *images = 0;
  for (int i = 0; i < files; i++) {
    MemoryImage *m;
    int count;
    if (!memory_image_open(fd[i], "job.token.3", &m)) continue;
    const MemoryImageLabel *label = memory_image_label(m);
    const CheckpointTensor *t = memory_image_pieces(m, &count);
    if (label->rank == rank) {
      ++*images;
      for (int64_t k = 0; k < t->local[0]; k++) assert_true(((const float *)t->data)[k] == (float)label->step);
      if (label->step > step) step = label->step;
    }
    memory_image_close(m);
  }
  return step;
}

static int64_t most; // bytes that copies may take; 0: no limit of the test's

static const char *drawn = ""; // the job's secret, where it is not the user's

static Copies *start(const Workers *w, int port, int next_port, bool expected) {
  Copies *c = NULL;
  Error error = {0};
  CopiesPlace place = {"127.0.0.1", port, "127.0.0.1", next_port, "next", 4, most, false, drawn};
  int code = copies_start(w, &place, &c, &error);
  assert_int_equal(code == 0, expected);
  return c;
}

static void rest(double seconds) {
  nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}

// Until a file of the machine has a complete image of that step: the taker still works on the others.
static void await(int64_t step, int rank) {
  char path[64], target[64];
  for (double until = clock_seconds() + test_seconds(20); clock_seconds() < until; rest(0.01))
    for (int fd = 3; fd < 200; fd++) {
      MemoryImageHead head;
      char name[48];
      snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
      ssize_t n = readlink(path, target, sizeof target - 1);
      snprintf(name, sizeof name, "/memfd:plait copy of rank %d,", rank);
      if (n <= 0 || (target[n] = 0, strncmp(target, name, strlen(name)))) continue;
      if (memory_image_peek(fd, "job.token.3", &head) && head.step == step) return;
    }
  fail_msg("no copy of step %lld of rank %d", (long long)step, rank);
}

// Two machines with two ranks each, around which steps come.
static void around(void **state) {
  int port[2] = {port_free("127.0.0.1", "3a1c"), 0}, images;
  port[1] = port_after("127.0.0.1", port[0]);
  Workers w[2] = {make_workers(0, 2), make_workers(2, 2)};
  Copies *c[2];
  for (int i = 0; i < 2; i++) c[i] = start(&w[i], port[i], port[!i], true);
  for (int step = 3; step <= 12; step += 3) {
    for (int rank = 0; rank < 4; rank++) keep(&w[rank / 2], rank % 2, step % 2, LENGTH, step);
    for (int rank = 0; rank < 4; rank++) await(step, rank);
  }
  keep(&w[0], 0, 1, LENGTH, 15); // rank 1 lacks this step, so it is not sent
  rest(0.2);
  for (int i = 0; i < 2; i++) copies_stop(c[i]);
  for (int rank = 0; rank < 4; rank++) {
    assert_int_equal(newest(c[rank < 2], rank, &images), 12);
    assert_int_equal(images, 2); // and the one before
    assert_int_equal(newest(c[rank >= 2], rank, &images), -1);
  }
  for (int i = 0; i < 2; i++) copies_end(c[i]), free_workers(&w[i]);
}

// Ranks of each machine that have all of the state need no copies.
static void not_where_each_has_all(void **state) {
  int a = port_free("127.0.0.1", "77aa"), b = port_after("127.0.0.1", a), images;
  Workers w = make_workers(0, 1), none = make_workers(1, 1);
  Copies *from = start(&w, a, b, true), *to = start(&none, b, a, true);
  MemoryImage *m = create(&w, 0, 0, SHORT);
  fill(&w, 0, m, 3, 1);
  memory_image_close(m);
  rest(0.3);
  copies_stop(from);
  copies_stop(to);
  assert_int_equal(newest(to, 0, &images), -1);
  copies_end(from);
  copies_end(to);
  free_workers(&w);
  free_workers(&none);
}

// A worker replaces its image while it is sent: the next machine, which is by hand here and reads slowly, is told so.
// So large an image does not fit into what the system holds for a connection.
static void replaced_meanwhile(void **state) {
  enum { LARGE = 16 << 20, FEW = 1 << 16 };
  NetAddress at;
  Error error = {0};
  CopyGreeting greeting;
  CopyFrame frame;
  CopyPiece piece;
  int a = port_free("127.0.0.1", "5b20"), few = FEW;
  double until = clock_seconds() + test_seconds(60);
  assert_int_equal(net_resolve("127.0.0.1", 0, &at, &error), 0);
  int listener = net_listen(&at);
  assert_true(listener >= 0);
  assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof few), 0);
  Workers w = make_workers(0, 1);
  MemoryImage *m = create(&w, 0, 0, LARGE);
  fill(&w, 0, m, 3, 0);
  Copies *from = start(&w, a, net_port(&at), true);
  int fd = net_accept(listener, until);
  assert_true(fd >= 0);
  assert_true(net_read(fd, &greeting, sizeof greeting, until));
  char *data = xcalloc(COPY_PIECE, 1);
  for (int64_t step = 3; step <= 6; step += 3) {
    bool replaces = step == 3;
    assert_true(net_read(fd, &frame, sizeof frame, until));
    assert_int_equal(frame.step, step);
    for (int n = 0;; n++) {
      assert_true(net_read(fd, &piece, sizeof piece, until));
      if (piece.end != COPY_GOES_ON) break;
      assert_true(net_read(fd, data, piece.bytes, until));
      if (n == 0 && replaces) fill(&w, 0, m, 6, 0);
    }
    assert_int_equal(piece.end, replaces ? COPY_IS_OVERTAKEN : COPY_IS_WHOLE);
    assert_true(net_write(fd, &(CopyReply){step, 0, !replaces}, sizeof(CopyReply), until));
  }
  copies_end(from);
  memory_image_close(m);
  free_workers(&w);
  free(data);
  close(fd);
  close(listener);
}

// Copies that are sent by hand ----------------------------------------------------------------------------------------

typedef enum Harm { NONE, ENDS_EARLY, DAMAGED, OVERTAKEN, SAYS_WHOLE_TOO_EARLY, WRONG_FRAME, WRONG_STEP, OTHER_RUN,
                    TOO_LONG, PAST_THE_END, EMPTY_PIECE, UNKNOWN_END, HARMS } Harm;

static int greet(int port, const char *run) {
  NetAddress at;
  Error error = {0};
  CopyGreeting g = {.magic = COPY_MAGIC, .version = COPY_VERSION};
  snprintf(g.run, sizeof g.run, "%s", run);
  assert_int_equal(net_resolve("127.0.0.1", port, &at, &error), 0);
  int fd = net_connect(&at, clock_seconds() + test_seconds(5));
  assert_true(fd >= 0);
  assert_true(net_write(fd, &g, sizeof g, clock_seconds() + test_seconds(5)));
  return fd;
}

// Whether the machine says that it keeps it; else it says nothing, or that it does not.
static bool offer(int port, int image, Harm harm) {
  MemoryImageHead head;
  CopyReply reply = {0};
  double until = clock_seconds() + test_seconds(5);
  assert_true(memory_image_peek(image, "job.token.3", &head));
  char *data = xcalloc((size_t)head.bytes, 1);
  assert_int_equal(pread(image, data, (size_t)head.bytes, 0), head.bytes);
  int fd = greet(port, harm == OTHER_RUN ? "job.other.3" : "job.token.3");
  CopyFrame f = {.step = head.step + (harm == WRONG_STEP), .bytes = head.bytes, .rank = head.rank, .ranks = head.ranks,
                 .made = head.made};
  f.checksum = checksum_of(&f, offsetof(CopyFrame, checksum)) + (harm == WRONG_FRAME);
  bool good = net_write(fd, &f, sizeof f, until);
  int64_t send = harm == ENDS_EARLY || harm == OVERTAKEN || harm == SAYS_WHOLE_TOO_EARLY ? head.bytes / 2 : head.bytes;
  for (int64_t at = 0; at < send && good; at += 1000) {
    size_t bytes = send - at < 1000 ? (size_t)(send - at) : 1000;
    CopyPiece piece = {(uint32_t)bytes, COPY_GOES_ON, checksum_of(data + at, bytes)};
    if (harm == DAMAGED && at == 9000) data[at + 5] ^= 1;
    if (harm == TOO_LONG && at == 9000) piece.bytes = COPY_PIECE + 1;
    if (harm == PAST_THE_END && at == 9000) piece.bytes = (uint32_t)(head.bytes - at) + 1;
    if (harm == EMPTY_PIECE && at == 9000) piece.bytes = 0;
    good = net_write(fd, &piece, sizeof piece, until) && net_write(fd, data + at, bytes, until);
  }
  CopyPiece end = {.end = harm == OVERTAKEN     ? COPY_IS_OVERTAKEN
                          : harm == UNKNOWN_END ? COPY_IS_OVERTAKEN + 1
                                                : COPY_IS_WHOLE};
  if (harm != ENDS_EARLY && good) good = net_write(fd, &end, sizeof end, until);
  if (harm == ENDS_EARLY) shutdown(fd, SHUT_WR);
  good = net_read(fd, &reply, sizeof reply, until) && reply.kept; // or the end of the connection
  close(fd);
  free(data);
  return good;
}

static void harm(void **state) {
  for (int kind = 0; kind < HARMS; kind++) {
    int a = port_free("127.0.0.1", "61f3"), images;
    Workers w = make_workers(0, 1), none = make_workers(1, 1);
    Copies *to = start(&none, a, port_after("127.0.0.1", a), true);
    keep(&w, 0, 0, SHORT, 6);
    assert_true(offer(a, w.worker->memory[0], NONE));
    keep(&w, 0, 0, SHORT, 9);
    assert_true(offer(a, w.worker->memory[0], NONE));
    keep(&w, 0, 0, SHORT, 12); // which takes the place of step 6
    assert_int_equal(offer(a, w.worker->memory[0], (Harm)kind), kind == NONE);
    copies_stop(to);
    assert_int_equal(newest(to, 0, &images), kind == NONE ? 12 : 9);
    copies_end(to);
    free_workers(&w);
    free_workers(&none);
  }
}

// A copy that does not fit beside the other copies is not kept, whoever announces it; those that are here stay.
static void too_large(void **state) {
  int a = port_free("127.0.0.1", "b16b"), images;
  Workers w = make_workers(0, 2), none = make_workers(2, 1);
  most = 1 << 20;
  Copies *to = start(&none, a, port_after("127.0.0.1", a), true);
  most = 0;
  keep(&w, 0, 0, SHORT, 6);
  assert_true(offer(a, w.worker[0].memory[0], NONE));
  keep(&w, 0, 1, LENGTH, 9); // 3 MiB
  assert_false(offer(a, w.worker[0].memory[1], NONE));
  keep(&w, 1, 0, LENGTH, 9);
  assert_false(offer(a, w.worker[1].memory[0], NONE));
  keep(&w, 1, 1, SHORT, 9);
  assert_true(offer(a, w.worker[1].memory[1], NONE));
  copies_stop(to);
  assert_int_equal(newest(to, 0, &images), 6);
  assert_int_equal(newest(to, 1, &images), 9);
  copies_end(to);
  free_workers(&w);
  free_workers(&none);
}

// A machine that comes again after its connection was lost is heard; one that says nothing is not in its way.
static void again(void **state) {
  int a = port_free("127.0.0.1", "8e44"), images;
  Workers w = make_workers(0, 1), none = make_workers(1, 1);
  Copies *to = start(&none, a, port_after("127.0.0.1", a), true);
  int idle = greet(a, "job.token.3"), stranger = greet(a, "x");
  keep(&w, 0, 0, SHORT, 6);
  assert_true(offer(a, w.worker->memory[0], NONE));
  keep(&w, 0, 1, SHORT, 9);
  assert_true(offer(a, w.worker->memory[1], NONE));
  assert_null(start(&w, a, a, false)); // the port is taken
  copies_stop(to);
  assert_int_equal(newest(to, 0, &images), 9);
  close(idle);
  close(stranger);
  copies_end(to);
  free_workers(&w);
  free_workers(&none);
}

// Connections that say nothing, more than there may be, are not in the way of who comes after them.
static void strangers_delay_nobody(void **state) {
  enum { STRANGERS = 80 };
  int a = port_free("127.0.0.1", "57a6"), images, stranger[STRANGERS];
  Workers w = make_workers(0, 1), none = make_workers(1, 1);
  Copies *to = start(&none, a, port_after("127.0.0.1", a), true);
  NetAddress at;
  Error error = {0};
  assert_int_equal(net_resolve("127.0.0.1", a, &at, &error), 0);
  for (int i = 0; i < STRANGERS; i++)
    assert_true((stranger[i] = net_connect(&at, clock_seconds() + test_seconds(5))) >= 0);
  keep(&w, 0, 0, LENGTH, 6);
  assert_true(offer(a, w.worker->memory[0], NONE));
  copies_stop(to);
  assert_int_equal(newest(to, 0, &images), 6);
  for (int i = 0; i < STRANGERS; i++) close(stranger[i]);
  copies_end(to);
  free_workers(&w);
  free_workers(&none);
}

// Who does not have it is not heard.
static void strangers_are_not_heard(void) {
  int a = port_free("127.0.0.1", "c0de"), b = port_after("127.0.0.1", a), images;
  Workers w = make_workers(0, 1), none = make_workers(1, 1);
  Copies *from = start(&w, a, b, true), *to = start(&none, b, a, true);
  keep(&w, 0, 0, LENGTH, 6);
  await(6, 0);
  keep(&w, 0, 1, SHORT, 9);
  assert_false(offer(a, w.worker->memory[1], NONE));
  await(9, 0);
  copies_stop(from);
  copies_stop(to);
  assert_int_equal(newest(to, 0, &images), 9);
  assert_int_equal(newest(from, 0, &images), -1);
  copies_end(from);
  copies_end(to);
  free_workers(&w);
  free_workers(&none);
}

static void with_a_drawn_secret(void **state) {
  char text[SECRET_TEXT];
  secret_draw(text);
  drawn = text;
  strangers_are_not_heard();
  drawn = "";
}

static void with_a_secret(void **state) {
  char folder[] = "/tmp/test_copies_XXXXXX";
  if (!tls_is_built()) skip();
  assert_non_null(mkdtemp(folder));
  char *path = xformat("%s/secret", folder);
  Error error = {0};
  assert_int_equal(secret_make(path, &error), 0);
  setenv("PLAIT_SECRET", path, 1);
  drawn = "not asked for";
  strangers_are_not_heard();
  drawn = "";
  unsetenv("PLAIT_SECRET");
  unlink(path);
  rmdir(folder);
  free(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(around),
                                     cmocka_unit_test(not_where_each_has_all),
                                     cmocka_unit_test(replaced_meanwhile),
                                     cmocka_unit_test(harm),
                                     cmocka_unit_test(too_large),
                                     cmocka_unit_test(again),
                                     cmocka_unit_test(with_a_drawn_secret),
                                     cmocka_unit_test(strangers_delay_nobody),
                                     cmocka_unit_test(with_a_secret)};
  unsetenv("PLAIT_SECRET");
  cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
