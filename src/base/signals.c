// The stop flag and its handler. The flag is the one thing here that a signal handler forces to be global.
#include "base/signals.h"
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static volatile atomic_int stop_signal;

static void on_signal(int number) {
  int none = 0;
  if (atomic_compare_exchange_strong(&stop_signal, &none, number)) return;
  signal(number, SIG_DFL); // the second one: die of it, so that the shell sees why
  raise(number);
}

void signals_install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART; // file writes in progress are not to fail with EINTR
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, NULL);
  sigaction(SIGXFSZ, &action, NULL);
}

bool signals_stop(void) { return atomic_load_explicit(&stop_signal, memory_order_relaxed) != 0; }

int signals_number(void) { return atomic_load(&stop_signal); }

void signals_request_stop(int number) { atomic_store(&stop_signal, number); }
