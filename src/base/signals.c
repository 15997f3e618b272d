// The stop flag and its handler. The flag and the announcement are global because a signal handler gets no context.
#include "base/signals.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static volatile atomic_int stop_signal;
static const char *_Atomic announced, *_Atomic before; // before: what makes room for it on a terminal
static const char *(*_Atomic reworded)(void);

static const struct {
  int number;
  const char *name;
  SignalAction action;
  SignalStatus status;
} signals[] = {
#define SIGNAL(name, action, status, sender) {name, #name, SIGNAL_##action, SIGNAL_##status},
#include "base/signals.def"
#undef SIGNAL
};
enum { SIGNALS = sizeof signals / sizeof *signals };
_Static_assert((int)SIGNALS <= (int)SIGNALS_MOST, "signals_that_stop has no room");

static int find(int number) {
  int i = 0;
  while (i < SIGNALS && signals[i].number != number) i++;
  return i;
}

const char *signals_name(int number) {
  int i = find(number);
  return i < SIGNALS ? signals[i].name : "a signal";
}

// Only what a signal handler may call. One write, so that the line stays whole.
static void announce(int number) {
  const char *(*words)(void) = atomic_load(&reworded), *other = words ? words() : NULL;
  const char *const parts[] = {atomic_load(&before), "plait: ", other ? "" : signals_name(number), other ? "" : ": ",
                               other ? other : atomic_load(&announced), "\n"};
  char line[256];
  size_t n = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    for (const char *c = parts[i]; *c && n < sizeof line; c++) line[n++] = *c;
  ssize_t ignored = write(STDERR_FILENO, line, n);
  (void)ignored;
}

static void on_signal(int number) {
  int none = 0, saved = errno;
  if (atomic_compare_exchange_strong(&stop_signal, &none, number)) {
    if (atomic_load(&announced)) announce(number);
  } else if (signals_second_ends(number)) {
    signal(number, SIG_DFL); // the second one: die of it, so that the shell sees why
    raise(number);
  }
  errno = saved;
}

void signals_install(const char *announcement) {
  atomic_store(&before, isatty(STDERR_FILENO) ? "\n" : "");
  atomic_store(&announced, announcement);
  for (int i = 0; i < SIGNALS; i++) {
    struct sigaction action, old;
    memset(&action, 0, sizeof action);
    sigfillset(&action.sa_mask); // one handler after the other: the first signal is the first to come
    action.sa_handler = signals[i].action == SIGNAL_IGNORE ? SIG_IGN : on_signal;
    action.sa_flags = SA_RESTART; // file writes in progress are not to fail with EINTR
    if (!sigaction(signals[i].number, NULL, &old) && old.sa_handler != SIG_IGN)
      sigaction(signals[i].number, &action, NULL);
  }
}

void signals_reword(const char *(*words)(void)) { atomic_store(&reworded, words); }

bool signals_stop(void) { return atomic_load_explicit(&stop_signal, memory_order_relaxed) != 0; }

int signals_number(void) { return atomic_load(&stop_signal); }

bool signals_take(int number) { return atomic_compare_exchange_strong(&stop_signal, &number, 0); }

int signals_status_of(int number) {
  int i = find(number);
  return i < SIGNALS && signals[i].status == SIGNAL_AGAIN ? EX_TEMPFAIL : 128 + number;
}

bool signals_second_ends(int number) {
  int i = find(number);
  return i < SIGNALS && signals[i].action == SIGNAL_STOP;
}

int signals_that_stop(int numbers[SIGNALS_MOST]) {
  int n = 0;
  for (int i = 0; i < SIGNALS; i++)
    if (signals[i].action != SIGNAL_IGNORE) numbers[n++] = signals[i].number;
  return n;
}

bool signals_is_status(int status) {
  int number[SIGNALS_MOST], n = signals_that_stop(number);
  for (int i = 0; i < n; i++)
    if (status == 128 + number[i] || status == signals_status_of(number[i])) return true;
  return false;
}

int signals_exit_status(void) { return signals_stop() ? signals_status_of(signals_number()) : 0; }

void signals_request_stop(int number) { atomic_store(&stop_signal, number); }

void signals_list(SignalAction action, char *text, size_t size) {
  size_t n = 0;
  *text = 0;
  for (int i = 0; i < SIGNALS; i++)
    if (signals[i].action == action && n < size)
      n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", signals[i].name);
}
