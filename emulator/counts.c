// How often what was called, and how long this driver has taken for it: lines "12 adamw_f32" in the file that
// PLAIT_EMULATED_COUNTS names, when the program ends.
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 512 };
static struct { const char *kind; long long calls; } kinds[MOST_KINDS];
static int count;

// Appends, for processes of one run share the file.
static void write_counts(void) {
  FILE *f = fopen(getenv("PLAIT_EMULATED_COUNTS"), "a");
  for (int i = 0; f && i < count; i++) fprintf(f, "%lld %s\n", kinds[i].calls, kinds[i].kind);
  if (f) fclose(f);
}

void count_call(const char *kind) {
  int i = 0;
  if (!getenv("PLAIT_EMULATED_COUNTS")) return;
  while (i < count && strcmp(kinds[i].kind, kind)) i++;
  if (i == MOST_KINDS) wrong(__func__, "more than %d kinds of calls", MOST_KINDS);
  if (i == count) {
    if (!count) atexit(write_counts);
    kinds[count++].kind = kind;
  }
  kinds[i].calls++;
}

int skips_kernels(void) { return getenv("PLAIT_EMULATED_SKIPS") != NULL; }
