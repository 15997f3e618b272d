// tier 2 3; threads numbers
// Ranks of net as processes of this test: sums, ranks that die, leave or belong to another run. Who is silent, and
// when, test_net_watch.c shows with time of its own; tests/net/ has the same as here and more with the programs of
// tests/comm and plait train, and ranks that are stopped.
#include "base/clock.h"
#include "base/error.h"
#include "chains.h"
#include "comm/comm.h"
#include "comm/net.h"
#include "comm/net_shared.h"
#include "net/secret.h"
#include "stranger.h"
#include "tier.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 4, LARGE = 1 << 20 };
static float x[LARGE], y[LARGE];

// What the processes share.
static struct Shared { double died; volatile int told[2]; Meeting meeting; } *shared;

typedef struct Member {
  PlaitWorld *world;
  PlaitComm *comm;
  int rank, ranks, port;
} Member;
typedef int (*Task)(Member *m); // 0: all as expected

// The silence is so long that nothing tells of a rank but what it says, and its end.
static int join(Member *m, const char *id, Error *error) {
  NetOptions options = {m->rank, m->ranks, "127.0.0.1", m->port, id, 600, test_seconds(20)};
  int code = net_world_create(&options, &m->world, error);
  return code ? code : plait_comm_world(m->world, m->rank, &m->comm, error);
}

static void leave(Member *m) {
  plait_comm_destroy(m->comm);
  plait_world_destroy(m->world);
}

static int wrong(const Member *m, const char *what) {
  printf("rank %d of %d: %s; %s\n", m->rank, m->ranks, what, m->comm ? plait_comm_error(m->comm) : "");
  fflush(stdout);
  return 1;
}

static int sum(Member *m) {
  float s = (float)(1 + m->rank);
  if (plait_all_reduce(m->comm, &(PlaitBuffer){&s, &s, 1}, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL))
    return wrong(m, "sum");
  return s == (float)(m->ranks * (m->ranks + 1) / 2) ? 0 : wrong(m, "another sum");
}

static void (*before_joining)(void); // what each process does first; NULL: nothing

// Runs a task on so many processes, each of which has a minute, times PLAIT_PATIENCE. The victim (-1: there is none) is
// not expected to end well. Returns how many went wrong.
static int run(int ranks, Task task, int victim) {
  static int worlds;
  int port = 12000 + (getpid() * 40 + 20 * worlds++) % 8000, failed = 0; // below those of tests/net and tests/elastic
  pid_t child[MOST];
  memset(shared, 0, sizeof *shared);
  fflush(stdout);
  for (int r = 0; r < ranks; r++) {
    if ((child[r] = fork())) continue;
    Member m = {.rank = r, .ranks = ranks, .port = port};
    Error error = {0};
    alarm((unsigned)test_seconds(60));
    if (before_joining) before_joining();
    if (join(&m, "test_net", &error)) _exit(wrong(&m, error.message));
    int status = task(&m);
    fflush(stdout);
    _exit(status);
  }
  for (int r = 0; r < ranks; r++) {
    int status = 0;
    waitpid(child[r], &status, 0);
    if (r != victim) failed += status != 0;
  }
  return failed;
}

static int sum_and_leave(Member *m) {
  int status = sum(m);
  if (plait_comm_failed_rank(m->comm) != -1) return wrong(m, "nobody has failed");
  leave(m);
  return status;
}

static void test_sums(void **state) {
  for (int n = 1; n <= MOST; n++) assert_int_equal(run(n, sum_and_leave, -1), 0);
}

static int chains(Member *m) {
  char text[512] = "";
  int code = chains_check(m->world, m->comm, text, sizeof text);
  if (code) return wrong(m, text);
  leave(m);
  return 0;
}

static void test_chains(void **state) {
  for (int n = 3; n <= MOST; n++) assert_int_equal(run(n, chains, -1), 0);
}

static int victim; // of the next test

static void die(const Member *m) {
  usleep(100000);
  shared->died = clock_seconds();
  raise(SIGKILL);
}

// Every other rank meets an error that names the victim, in time; then the others make a smaller world.
static int survive(Member *m) {
  int code = plait_barrier(m->comm, NULL, NULL);
  if (code && (m->rank == victim || !shared->died)) return wrong(m, "the first call");
  if (m->rank == victim) die(m); // perhaps before a rank that gets no processor has returned from the barrier
  while (!code) code = plait_all_reduce(m->comm, &(PlaitBuffer){x, y, LARGE}, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
  double seconds = clock_seconds() - shared->died;
  if (plait_comm_failed_rank(m->comm) != victim) return wrong(m, "another rank is named");
  if (seconds > test_seconds(10)) return wrong(m, "it took long");
  leave(m);
  Error error = {0};
  Member next = {.rank = m->rank - (m->rank > victim), .ranks = m->ranks - 1, .port = m->port + 2};
  if (join(&next, "the survivors", &error)) return wrong(&next, error.message);
  int status = sum(&next);
  leave(&next);
  return status;
}

static void test_killed(void **state) {
  for (victim = 0; victim < 3; victim++) assert_int_equal(run(3, survive, victim), 0);
}

// Rank 1 dies; rank 2 learns of it and leaves at once; rank 0 and 3 come later, and must not take rank 2 for the cause.
static int come_late(Member *m) {
  int code = plait_barrier(m->comm, NULL, NULL);
  if (code && (m->rank == victim || !shared->died)) return wrong(m, "the first call");
  if (m->rank == victim) die(m); // perhaps before a rank that gets no processor has returned from the barrier
  while (m->rank != 2 && !shared->told[0]) usleep(1000);
  code = plait_barrier(m->comm, NULL, NULL);
  if (!code || plait_comm_failed_rank(m->comm) != victim) return wrong(m, "another rank is named");
  leave(m);
  if (m->rank == 2) shared->told[0] = 1; // that it has left
  return 0;
}

static void test_cause_is_named(void **state) {
  victim = 1;
  assert_int_equal(run(4, come_late, victim), 0);
}

// A rank that gives up with words of its own is named by all, with its words.
static int give_up(Member *m) {
  if (m->rank == 2) plait_world_abort(m->world, "the disk is full");
  int code = plait_barrier(m->comm, NULL, NULL);
  if (!code || plait_comm_failed_rank(m->comm) != 2 || strcmp(plait_comm_error(m->comm), "the disk is full"))
    return wrong(m, "something else is told");
  leave(m);
  return 0;
}

// Where processes may not read each other's memory, long messages on a machine go through shared memory, not by TCP.
static void forbid_reading(void) {
  struct sock_filter calls[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof calls / sizeof *calls, calls};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(1);
}

static int sum_in_sandbox(Member *m) {
  char carriers[256];
  net_carriers(m->world, 1 - m->rank, carriers, sizeof carriers);
  if (!strstr(carriers, "/memory") || strstr(carriers, "tcp")) return wrong(m, carriers);
  for (int i = 0; i < LARGE; i++) x[i] = (float)(i % 1000 + m->rank);
  if (plait_all_reduce(m->comm, &(PlaitBuffer){x, x, LARGE}, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL))
    return wrong(m, "a long sum");
  for (int i = 0; i < LARGE; i++)
    if (x[i] != (float)(2 * (i % 1000) + 1)) return wrong(m, "another long sum");
  leave(m);
  return 0;
}

// Also where other ranks are on other machines, so that UCX has TCP, too.
static void test_sandbox(void **state) {
  if (!net_shared_is_built()) skip();
  before_joining = forbid_reading;
  assert_int_equal(run(2, sum_in_sandbox, -1), 0);
  setenv("PLAIT_WIRE", "ucx", 1);
  setenv("UCX_TLS", "^xpmem", 1);
  assert_int_equal(run(2, sum_in_sandbox, -1), 0);
  unsetenv("UCX_TLS");
  unsetenv("PLAIT_WIRE");
  before_joining = NULL;
}

static void test_words(void **state) { assert_int_equal(run(3, give_up, -1), 0); }

// What was sent to a rank that died before it received is not done, though no carrier has more use for the memory.
static int send_in_vain(Member *m) {
  PlaitEvent sent;
  int code = plait_barrier(m->comm, NULL, NULL);
  if (code && (m->rank == victim || !shared->died)) return wrong(m, "the first call");
  if (m->rank == victim) die(m); // perhaps before a rank that gets no processor has returned from the barrier
  code = plait_send(m->comm, &(PlaitBuffer){x, NULL, LARGE}, 1, PLAIT_FP32, victim, NULL, &sent);
  if (!code) code = plait_event_wait(sent);
  if (!code || plait_comm_failed_rank(m->comm) != victim) return wrong(m, "a send to the dead is done");
  leave(m);
  return 0;
}

static void test_send(void **state) {
  victim = 1;
  setenv("PLAIT_WIRE", "tcp", 1);
  for (int i = 0; i < (test_tier() < 3 ? 2 : 5); i++) assert_int_equal(run(2, send_in_vain, victim), 0);
  unsetenv("PLAIT_WIRE");
}

// Two worlds that begin at the same port do not mix, as their ids differ: the first that comes to the first world's
// rank 0 is of the second one.
static void test_ids(void **state) {
  static const int rank[4] = {0, 1, 0, 1}, number[4] = {0, 1, 1, 0};
  pid_t child[4];
  int port = 29000 + getpid() % 2000, failed = 0;
  for (int i = 0; i < 4; i++) {
    if ((child[i] = fork())) continue;
    Member m = {.rank = rank[i], .ranks = 2, .port = port};
    Error error = {0};
    int64_t run = number[i];
    usleep(100000 * (unsigned)i);
    alarm((unsigned)test_seconds(60));
    if (join(&m, run ? "one" : "other", &error)) _exit(wrong(&m, error.message));
    int64_t sum = run;
    int code = plait_all_reduce(m.comm, &(PlaitBuffer){&sum, &sum, 1}, 1, PLAIT_INT64, PLAIT_SUM, NULL, NULL);
    leave(&m);
    _exit(code || sum != 2 * run);
  }
  for (int i = 0; i < 4; i++) {
    int status = 0;
    waitpid(child[i], &status, 0);
    failed += status != 0;
  }
  assert_int_equal(failed, 0);
}

// Strangers -----------------------------------------------------------------------------------------------------------

// Connections to all ports at which this process listens: one says nothing, one what is not UCX's, one ends at once.
// Returns how many ports there are; -1: one cannot be reached.
static int poke_own_ports(void) {
  static const char rubbish[4096] = "GET / HTTP/1.1\r\n\r\n";
  int ports = 0;
  for (int fd = 3; fd < 256; fd++) {
    int listens = 0;
    socklen_t size = sizeof listens;
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens ||
        getsockname(fd, (struct sockaddr *)&at, &length))
      continue;
    ports++;
    for (int i = 0; i < 3; i++) {
      int c = socket(at.ss_family, SOCK_STREAM, 0);
      if (connect(c, (struct sockaddr *)&at, length)) return -1;
      if (i == 1 && send(c, rubbish, sizeof rubbish, MSG_NOSIGNAL) < 0) return -1;
      if (i == 2) close(c);
    }
  }
  return ports;
}

// Sums are right while a stranger sends to rank 0, which drops and counts these messages, and says so. On one machine
// no port is open unless UCX_TLS asks for TCP, so a stranger (a process of the same user) sends through shared memory.
static int beside_a_stranger(Member *m) {
  char said[64], line[200] = "";
  snprintf(said, sizeof said, "tmp/stranger.%d", getpid());
  if (!m->rank && !freopen(said, "w", stderr)) return wrong(m, "no file for stderr");
  int ports = m->rank ? 0 : poke_own_ports();
  if (ports < 0 || (!m->rank && (ports > 0) != (getenv("UCX_TLS") != NULL))) return wrong(m, "ports of this process");
  if (!m->rank) stranger_invite(&shared->meeting, m->world);
  int32_t more = 1;
  double end = clock_seconds() + test_seconds(50);
  for (int i = 0; more; i++) {
    int n = i % 32 ? 1 : LARGE; // a long one takes a busy machine as long as hundreds of a stranger's messages
    for (int k = 0; k < n; k++) x[k] = (float)(m->rank + k % 7);
    if (plait_all_reduce(m->comm, &(PlaitBuffer){x, y, (size_t)n}, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL))
      return wrong(m, "a sum");
    for (int k = 0; k < n; k++)
      if (y[k] != (float)(m->ranks * (m->ranks - 1) / 2 + m->ranks * (k % 7))) return wrong(m, "another sum");
    more = !m->rank && net_strangers(m->world) < 300;
    if (!m->rank && clock_seconds() > end) return wrong(m, "no stranger has come");
    if (plait_all_reduce(m->comm, &(PlaitBuffer){&more, &more, 1}, 1, PLAIT_INT32, PLAIT_SUM, NULL, NULL))
      return wrong(m, "whether there is more");
  }
  shared->meeting.over = 1;
  if (sum(m)) return 1;
  leave(m);
  if (m->rank) return 0;
  fflush(stderr);
  FILE *file = fopen(said, "r");
  int good = file && fgets(line, sizeof line, file) && strstr(line, "note: rank 0 on ") &&
             strstr(line, " messages of UCX from somebody who is not of this run") && !fgets(line, sizeof line, file);
  if (file) fclose(file);
  unlink(said);
  return good ? 0 : wrong(m, line);
}

static void meet(int ranks) {
  int status = 0;
  memset(shared, 0, sizeof *shared);
  fflush(stdout);
  pid_t stranger = fork();
  if (!stranger) alarm((unsigned)test_seconds(60)), _exit(stranger_sends(&shared->meeting, ranks));
  assert_int_equal(run(ranks, beside_a_stranger, -1), 0);
  waitpid(stranger, &status, 0);
  assert_int_equal(status, 0);
}

static void test_messages_of_strangers(void **state) {
  if (!net_shared_is_built()) skip();
  meet(2);
  setenv("PLAIT_WIRE", "ucx", 1);
  setenv("UCX_TLS", "tcp,self", 1);
  meet(3);
  unsetenv("UCX_TLS");
  unsetenv("PLAIT_WIRE");
}

// With a secret -------------------------------------------------------------------------------------------------------

static char secret_path[64];

// Sets PLAIT_SECRET to a file of this mode, with this many bytes.
static void give_secret(int mode, int bytes) {
  snprintf(secret_path, sizeof secret_path, "tmp/secret.%d", getpid());
  unlink(secret_path);
  Error error = {0};
  assert_int_equal(secret_make(secret_path, &error), PLAIT_OK);
  assert_int_equal(secret_make(secret_path, &error), PLAIT_BAD_INPUT); // it is there
  assert_int_equal(truncate(secret_path, bytes), 0);
  assert_int_equal(chmod(secret_path, (mode_t)mode), 0);
  setenv("PLAIT_SECRET", secret_path, 1);
}

static void take_secret(void) {
  unsetenv("PLAIT_SECRET");
  unlink(secret_path);
}

static void test_secret(void **state) {
  if (!tls_is_built()) return;
  give_secret(0600, SECRET_BYTES);
  for (int n = 1; n <= 3; n++) assert_int_equal(run(n, sum_and_leave, -1), 0);
  assert_int_equal(run(2, chains, -1), 0);
  if (net_shared_is_built()) {
    setenv("PLAIT_WIRE", "ucx", 1);
    setenv("UCX_TLS", "^xpmem", 1); // with a port
    meet(2);
    unsetenv("UCX_TLS");
    unsetenv("PLAIT_WIRE");
  }
  victim = 1;
  assert_int_equal(run(3, survive, victim), 0);
  take_secret();
}

// Rank 0 has the secret. Rank 1 has none, or another: it is not let in, and both say so. Neither knows when the other
// begins, so each tries for 2 s, and again until both have said it.
static void meet_without(int other) {
  int port = 30000 + (getpid() + 50 * other) % 900, status = 0, failed = 0;
  give_secret(0600, SECRET_BYTES);
  memset(shared, 0, sizeof *shared);
  for (int r = 0; r < 2; r++) {
    if (fork()) continue;
    NetOptions options = {.rank = r, .ranks = 2, .host = "127.0.0.1", .port = port, .id = "secret", .patience = 2};
    const char *words = !r ? "without the secret" : other ? "does not have the secret" : "is not plait";
    PlaitWorld *world;
    Error error = {0};
    int code = PLAIT_FAILED;
    alarm((unsigned)test_seconds(60));
    if (r && other) {
      snprintf(secret_path, sizeof secret_path, "tmp/secret.%d.other", getpid());
      if (secret_make(secret_path, &error)) _exit(1);
      setenv("PLAIT_SECRET", secret_path, 1);
    } else if (r) {
      unsetenv("PLAIT_SECRET");
    }
    double end = clock_seconds() + test_seconds(50);
    while (code == PLAIT_FAILED && !(shared->told[0] && shared->told[1]) && clock_seconds() < end) {
      error = (Error){0};
      code = net_world_create(&options, &world, &error);
      if (code == PLAIT_FAILED && strstr(error.message, words)) shared->told[r] = 1;
    }
    if (r && other) unlink(secret_path);
    if (code == PLAIT_FAILED && shared->told[r]) _exit(0);
    printf("rank %d: %s\n", r, error.message);
    fflush(stdout);
    _exit(1);
  }
  for (int r = 0; r < 2; r++) failed += wait(&status) < 0 || status != 0;
  take_secret();
  assert_int_equal(failed, 0);
}

static void test_strangers(void **state) {
  if (!tls_is_built() || (test_tier() < 3 && !getenv("TEST_ONLY"))) skip(); // it takes real time
  meet_without(0);
  meet_without(1);
}

static void refuse(NetOptions options, int code, const char *words) {
  PlaitWorld *world;
  Error error = {0};
  options.id = "";
  assert_int_equal(net_world_create(&options, &world, &error), code);
  if (world || !strstr(error.message, words)) fail_msg("%s: lacks %s", error.message, words);
}

static void test_refused(void **state) {
  refuse((NetOptions){.rank = 2, .ranks = 2, .host = "127.0.0.1"}, PLAIT_BAD_INPUT, "rank 2 of 2");
  refuse((NetOptions){.ranks = 2, .host = "192.0.2.1"}, PLAIT_BAD_INPUT, "neither encrypted nor authenticated");
  NetOptions alone = {.ranks = 3, .host = "127.0.0.1", .port = 31000 + getpid() % 1000, .patience = 0.2};
  refuse(alone, PLAIT_FAILED, "of 3 ranks 2 did not come to 127.0.0.1:");
  refuse(alone, PLAIT_FAILED, "within 0.2 s: ranks 1, 2");
  if (tls_is_built()) {
    NetOptions one = {.ranks = 1, .host = "127.0.0.1"};
    give_secret(0640, SECRET_BYTES);
    refuse(one, PLAIT_BAD_INPUT, "its mode is 640, so others than its owner may use it");
    give_secret(0600, 16);
    refuse(one, PLAIT_BAD_INPUT, "has 16 bytes; it must have 32 random ones");
    take_secret();
    setenv("PLAIT_SECRET", "tmp/not-there", 1);
    refuse(one, PLAIT_BAD_INPUT, "--secret tmp/not-there: No such file");
    unsetenv("PLAIT_SECRET");
  }
  alone.rank = 1;
  refuse(alone, PLAIT_FAILED, "rank 1 waited 0.2 s for rank 0 in vain");
}

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  unsetenv("PLAIT_INSECURE");
  unsetenv("PLAIT_SECRET");
  mkdir("tmp", 0777);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_chains),
      cmocka_unit_test(test_killed),
      cmocka_unit_test(test_cause_is_named),
      cmocka_unit_test(test_words),
      cmocka_unit_test(test_sandbox),
      cmocka_unit_test(test_send),
      cmocka_unit_test(test_ids),
      cmocka_unit_test(test_messages_of_strangers),
      cmocka_unit_test(test_secret),
      cmocka_unit_test(test_strangers),
      cmocka_unit_test(test_refused), // last: a process that has UCX's threads forks no more
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
