// tier 1; rooms base
// Progress: plain lines off a terminal, one rewritten line on a pseudo-terminal that fits the width. Units. Run folder.
#include "base/file.h"
#include "base/memory_usage.h"
#include "base/nearest.h"
#include "base/signals.h"
#include "base/units.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static ProgressStep step_of(int64_t step) {
  return (ProgressStep){.step = step,
                        .tokens = 1024,
                        .loss = 2.5,
                        .grad_norm = 0.75,
                        .lr = 1e-3,
                        .flops_per_token = 1e6,
                        .peak_flops = NAN,
                        .memory = 312000000};
}

static void test_plain_lines(void **state) {
  char *text;
  size_t size;
  FILE *out = tmpfile();
  Progress p;
  progress_start(&p, out, 0, 25, 10);
  for (int i = 1; i <= 25; i++) {
    ProgressStep s = step_of(i);
    progress_step(&p, &s);
    if (i == 10) progress_eval(&p, 10, 2.25, 4321, 2.125, "40 of 275 sequences of 16");
    if (i == 20) progress_note(&p, "saved %d", 20);
  }
  progress_finish(&p);
  rewind(out);
  text = xcalloc(1, 8192);
  size = fread(text, 1, 8191, out);
  assert_true(size > 0);
  int lines = 0;
  for (char *c = text; *c; c++) lines += *c == '\n';
  assert_int_equal(lines, 4 + 2); // steps 1, 10, 20, 25; two more lines
  assert_null(strchr(text, '\r'));
  assert_null(strchr(text, '\033'));
  assert_non_null(strstr(text, "step  1/25  loss 2.5000  grad 0.75   lr 1.00e-03"));
  assert_non_null(strstr(text, "  mem 312 MB  ETA "));
  assert_null(strstr(text, "MFU")); // not measured: left out
  assert_non_null(strstr(
      text, "held-out at step 10: loss 2.2500  2.1250 bits per byte  (4321 tokens in 40 of 275 sequences of 16)\n"));
  assert_non_null(strstr(text, "\nsaved 20\n"));
  assert_non_null(strstr(text, "step 25/25"));
  assert_true(progress_tokens_per_second(&p) > 0);
  ProgressStep s = step_of(25);
  assert_true(isnan(progress_mfu(&p, &s)));
  s.peak_flops = 1e12;
  assert_float_equal(progress_mfu(&p, &s), progress_tokens_per_second(&p) * 1e6 / 1e12, 1e-9);
  free(text);
  fclose(out);
}

// Columns between the last carriage return and the end, escapes not counted.
static int columns(const char *text) {
  const char *line = text, *r = text;
  int n = 0;
  for (; (r = strchr(r, '\r')) && r[1] != '\n'; r++) line = r;
  for (line += *line == '\r'; *line && *line != '\r'; line++) {
    if (*line == '\033') line += strcspn(line, "mK");
    else n += (*line & 0xc0) != 0x80;
  }
  return n;
}

// What the terminal shows up to `end`: it may hand it out in parts, and later than it was written.
static void read_until(int master, const char *end, char *text, size_t size) {
  enum { SOON = 20000 }; // ms
  size_t n = 0, length = strlen(end);
  do {
    struct pollfd ready = {.fd = master, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, SOON), 1);
    ssize_t more = read(master, text + n, size - 1 - n);
    assert_true(more > 0);
    text[n += (size_t)more] = 0;
  } while (n < length || strcmp(text + n - length, end));
}

// A line, and whether it is rewritten in place.
static bool is_live(int master, FILE *out) {
  Progress p;
  char text[4096];
  progress_start(&p, out, 0, 100, 10);
  ProgressStep s = step_of(10);
  progress_step(&p, &s);
  progress_finish(&p);
  read_until(master, "\n", text, sizeof text); // what follows begins on a line of its own
  assert_non_null(strstr(text, "10/100"));
  for (char *c = text; (c = strstr(c, "\r\n")); c++) memmove(c, c + 1, strlen(c)); // the terminal's own
  assert_true((strchr(text, '\r') != NULL) == p.terminal);
  assert_true((strchr(text, '\033') != NULL) == p.terminal);
  return p.terminal;
}

static void test_terminal(void **state) {
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) || unlockpt(master)) skip();
  int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  if (slave < 0) skip();
  setenv("TERM", "xterm", 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  fcntl(master, F_SETFL, O_NONBLOCK);
  FILE *out = fdopen(slave, "w");
  // As mpirun makes one for each process, wherever its own output goes: it is not the user's.
  assert_false(is_live(master, out));
  assert_int_equal(ioctl(slave, TIOCSCTTY, 0), 0);
  assert_true(is_live(master, out));
  // Among processes it is not live anywhere: the others do not know that a line is open.
  const char *const variables[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                      {"PMI_SIZE", "PMI_RANK"},
                                      {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  for (int i = 0; i < 3; i++)
    for (int tasks = 1; tasks <= 2; tasks++) {
      setenv(variables[i][0], tasks == 1 ? "1" : "2", 1);
      setenv(variables[i][1], "0", 1);
      assert_int_equal(is_live(master, out), i == 2 && tasks == 1); // srun --pty: it is
      unsetenv(variables[i][0]);
      unsetenv(variables[i][1]);
    }
  for (int width = 20; width <= 200; width += 12) {
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)width};
    assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
    Progress p;
    progress_start(&p, out, 0, 100, 10);
    assert_true(p.terminal);
    char text[4096];
    for (int step = 49; step <= 51; step++) { // the line of step 50 stays, the others are rewritten
      ProgressStep s = step_of(step);
      p.last_draw = 0; // as if the last one were long ago
      progress_step(&p, &s);
      read_until(master, step == 50 ? "\033[K\r\n" : "\033[K", text, sizeof text);
      assert_true(columns(text) < width);
      assert_true((strchr(text, '\n') != NULL) == (step == 50));
      char shown[16];
      snprintf(shown, sizeof shown, "%d/100", step);
      assert_non_null(strstr(text, shown));
      if (width >= 150) assert_true((strstr(text, "████████░░░░░░░░") != NULL) == (step != 50));
    }
    progress_note(&p, "note");
    progress_finish(&p);
    read_until(master, "\n", text, sizeof text);
    assert_non_null(strstr(text, "\r\033[Knote")); // over the live line
  }
  Progress p;
  char text[4096];
  for (int plain = 0; plain < 2; plain++) {
    setenv("NO_COLOR", plain ? "1" : "", 1);
    progress_start(&p, out, 0, 100, 10);
    ProgressStep s = step_of(10);
    progress_step(&p, &s);
    read_until(master, "\n", text, sizeof text);
    assert_true((strstr(text, "\033[2m") != NULL) == !plain);
  }
  unsetenv("NO_COLOR");
  fclose(out);
  close(master);
}

static void test_units(void **state) {
  assert_string_equal(units_bytes(312).s, "312 B");
  assert_string_equal(units_bytes(1500).s, "1.50 kB");
  assert_string_equal(units_bytes(999999).s, "1.00 MB");
  assert_string_equal(units_bytes(2.25e9).s, "2.25 GB");
  assert_string_equal(units_bytes(-12.34e6).s, "-12.3 MB");
  assert_string_equal(units_count(17).s, "17");
  assert_string_equal(units_count(18234).s, "18.2k");
  assert_string_equal(units_count(6.9e9).s, "6.90B");
  assert_string_equal(units_duration(0.85).s, "850 ms");
  assert_string_equal(units_duration(12.34).s, "12.3 s");
  assert_string_equal(units_duration(59.97).s, "1m 00s");
  assert_string_equal(units_duration(245).s, "4m 05s");
  assert_string_equal(units_duration(7620).s, "2h 07m");
  assert_string_equal(units_duration(3 * 86400 + 4 * 3600).s, "3d 04h");
  assert_string_equal(units_duration(NAN).s, "?");
}

static void test_nearest(void **state) {
  static const char *const words[] = {"train", "tokenize", "eval"};
  assert_int_equal(nearest_distance("kitten", "sitting"), 3);
  assert_int_equal(nearest_distance("ab", "ba"), 1);
  assert_int_equal(nearest_distance("", "abc"), 3);
  assert_string_equal(nearest_word("trian", words, 3), "train");
  assert_string_equal(nearest_word("tokenise", words, 3), "tokenize");
  assert_null(nearest_word("banana", words, 3));
  assert_null(nearest_word("x", words, 0));
}

static void test_memory(void **state) {
  int64_t before = memory_usage_anonymous();
  assert_true(before > 0);
  size_t size = 32 << 20;
  volatile char *block = malloc(size); // volatile: or the compiler leaves both out
  assert_non_null(block);
  for (size_t i = 0; i < size; i += 1024) block[i] = 1;
  int64_t growth = memory_usage_anonymous() - before;
  assert_true(growth > (int64_t)size * 9 / 10 && growth < (int64_t)size * 3);
  free((void *)block);
  assert_true(memory_usage_available() > 0);
}

static void test_signals(void **state) {
  pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL); // a script's background jobs have inherited that it is ignored
    signals_install(NULL);
    if (signals_stop()) _exit(1);
    raise(SIGTERM);
    if (!signals_stop() || signals_number() != SIGTERM) _exit(2);
    raise(SIGTERM); // a second one changes nothing: Slurm's comes from the supervisor too
    if (signals_number() != SIGTERM) _exit(3);
    raise(SIGINT); // a second Ctrl-C, of somebody who does not want to wait, kills
    _exit(4);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static void test_run_folder(void **state) {
  char base[] = "/tmp/plait-run-XXXXXX";
  assert_non_null(mkdtemp(base));
  const char *text = "model: {config: m}\ndata: {train: t}\nrun: {dir: a/b}\n";
  Recipe recipe, again;
  Error error = {0};
  assert_int_equal(recipe_parse("x", text, strlen(text), base, 0, NULL, &recipe, &error), PLAIT_OK);
  RunFolder first, second;
  assert_int_equal(run_folder_open(&first, &recipe, &error), PLAIT_OK);
  assert_int_equal(run_folder_write_recipe(&first, &recipe, &error), PLAIT_OK);
  char *written = run_folder_file(&first, "recipe.yaml");
  assert_int_equal(recipe_load(written, 0, NULL, &again, &error), PLAIT_OK);
  assert_true(recipe_equal(&recipe, &again));
  recipe_free(&again);
  assert_int_equal(run_folder_open(&second, &recipe, &error), PLAIT_BAD_INPUT);
  char *pid = xformat("is in use by process %ld;", (long)getpid());
  assert_non_null(strstr(error.message, pid));
  assert_non_null(strstr(error.message, recipe.run.dir));
  run_folder_close(&first);
  run_folder_close(&first);
  run_folder_close(&second);
  error = (Error){0};
  assert_int_equal(run_folder_open(&second, &recipe, &error), PLAIT_OK); // free again
  run_folder_close(&second);
  recipe_free(&recipe);
  folder_remove(base, NULL);
  free(written);
  free(pid);
}

// In a session of its own, to have a controlling terminal of its own.
int main(void) {
  pid_t child = fork();
  if (child > 0) {
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  setsid();
  signal(SIGHUP, SIG_IGN); // when it goes
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain_lines), cmocka_unit_test(test_terminal), cmocka_unit_test(test_units),
      cmocka_unit_test(test_nearest),     cmocka_unit_test(test_memory),   cmocka_unit_test(test_signals),
      cmocka_unit_test(test_run_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
