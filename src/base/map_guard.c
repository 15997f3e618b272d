// The table of maps and the handler of SIGBUS. The table is global because a signal handler gets no context.
#include "base/map_guard.h"
#include "base/error.h"
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 1024 };

// A slot is free while `begin` is 0 and reserved while it is 1. All fields that the handler reads are written before
// `begin`.
typedef struct Slot { _Atomic uintptr_t begin; size_t size; char *path; } Slot;
static Slot slots[SLOTS];

void map_guard_add(const char *path, const void *data, size_t size) {
  for (int i = 0; i < SLOTS; i++) {
    uintptr_t none = 0;
    if (!atomic_compare_exchange_strong(&slots[i].begin, &none, 1)) continue;
    slots[i].size = size;
    slots[i].path = xstrdup(path);
    atomic_store(&slots[i].begin, (uintptr_t)data);
    return;
  }
}

void map_guard_remove(const void *data) {
  for (int i = 0; i < SLOTS; i++) {
    uintptr_t begin = (uintptr_t)data;
    if (!atomic_compare_exchange_strong(&slots[i].begin, &begin, 1)) continue;
    free(slots[i].path);
    slots[i].path = NULL;
    atomic_store(&slots[i].begin, 0);
    return;
  }
}

// In one call: other threads print meanwhile.
static void say_unreadable(const char *path) {
  const char *const part[] = {
      "plait: ", path,
      ": cannot be read any more: it has become shorter while it was in use, or its disk is failing\n"};
  char line[PATH_MAX + 200];
  size_t length = 0;
  for (int i = 0; i < 3; i++) {
    size_t n = strnlen(part[i], i == 1 ? PATH_MAX : 120);
    memcpy(line + length, part[i], n);
    length += n;
  }
  ssize_t ignored = write(STDERR_FILENO, line, length);
  (void)ignored;
}

// Only what a signal handler may call. Many threads can come here at once: the first one speaks.
static void on_bus(int number, siginfo_t *info, void *context) {
  static atomic_flag spoken = ATOMIC_FLAG_INIT;
  uintptr_t at = (uintptr_t)info->si_addr;
  for (int i = 0; i < SLOTS; i++) {
    uintptr_t begin = atomic_load(&slots[i].begin);
    if (begin <= 1 || at < begin || at - begin >= slots[i].size) continue;
    if (atomic_flag_test_and_set(&spoken)) pause(); // the first one ends the process
    say_unreadable(slots[i].path);
    _exit(1);
  }
  signal(number, SIG_DFL); // not ours: the instruction is tried again and ends the process
}

void map_guard_install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_bus;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, NULL);
}
