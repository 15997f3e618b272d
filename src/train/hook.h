// What is done at each step of a run beside training: the loop (trainer.c) knows none of it, and calls the hooks of
// hooks.def at the events below. A new one is a file that defines a Hook, and a line there.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Trainer Trainer;   // train/trainer.h
typedef struct Training Training;

typedef enum HookEvent {
  HOOK_OPEN,    // the rank is ready for its first step
  HOOK_BEFORE,  // a step is about to begin
  HOOK_LOG,     // rank 0 alone: a step is over, and its line of metrics.jsonl comes next. Lines that come before it
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
  // Whether HOOK_BETWEEN will do something after this step, so that no later one may have begun then. NULL: it never
  // will.
  bool (*pauses)(const Trainer *trainer, int64_t step);
  void (*close)(Training *training); // after HOOK_OPEN, also if that has failed; may be NULL
} Hook;

#define HOOK(id, name) extern const Hook hook_##name;
#include "train/hooks.def"
#undef HOOK

// Makes room for all hooks, and calls HOOK_OPEN.
int hooks_open(Training *training, Error *error);
void hooks_close(Training *training);
// Until one fails.
int hooks_call(Training *training, HookEvent event, Error *error);
bool hooks_pause(const Trainer *trainer, int64_t step);
