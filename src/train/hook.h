// Work at each step of a run beside training: the loop (trainer.c) calls the hooks of hooks.def at the events below. It
// knows none by name, but that it saves checkpoints and prepares the balance itself. A new hook is a file that defines
// a Hook, and a line there.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Trainer Trainer;   // train/trainer.h
typedef struct Training Training;

typedef enum HookEvent {
  HOOK_OPEN,    // the rank is ready for its first step
  HOOK_BEFORE,  // the loop is about to run or collect a step; where steps overlap, it may have begun already
  HOOK_LOG,     // rank 0 alone: a step is over, and its line of metrics.jsonl comes next. May write lines before it
  HOOK_LINE,    // rank 0 alone: keys of this line, which has been begun
  HOOK_AFTER,   // the step has been logged
  HOOK_BETWEEN, // it has been evaluated and saved, where that was due, and another step follows
  HOOK_END,     // all steps of the run are over, and none has failed
  HOOK_EVENTS
} HookEvent;

typedef enum HookKind {
#define HOOK(id, name) HOOK_##id,
#include "train/hooks.def"
#undef HOOK
  HOOK_COUNT
} HookKind;

typedef struct Hook {
  size_t size; // bytes that a rank keeps for it: training->own[HOOK_X], zeroed before HOOK_OPEN, freed after `close`
  int (*on[HOOK_EVENTS])(Training *training, Error *error); // NULL: it does nothing then
  // Whether HOOK_BETWEEN reads or changes Variables after this step, so that no later step may begin before it. NULL:
  // never.
  bool (*pauses)(const Trainer *trainer, int64_t step);
  void (*close)(Training *training); // called also if HOOK_OPEN failed or was not called; may be NULL
} Hook;

#define HOOK(id, name) extern const Hook hook_##name;
#include "train/hooks.def"
#undef HOOK

// Makes room for all hooks, and calls HOOK_OPEN.
int hooks_open(Training *training, Error *error);
void hooks_close(Training *training);
// In order; stops at the first error.
int hooks_call(Training *training, HookEvent event, Error *error);
bool hooks_pause(const Trainer *trainer, int64_t step);
