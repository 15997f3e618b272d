// When everything in a rank's working memory is needed, as one packing problem (pack.h).
//
// Its time is that of the whole list of actions: one tick an instruction, one after each body, where everything in
// flight until its end has been waited for, and one for each message that arrives or is waited for. An instance of a
// tensor (TensorPlace) is needed from where it is made or received to where it is read last, a message that is sent
// until its buffer's next microbatch has waited for it, a kernel's scratch for its instruction. Calls of a body during
// which the same instances are needed are one: long lists become short again.
//
// Each microbatch has its own instances where there are not too many, else those of a slot or buffer are shared by the
// microbatches that take turns in it: then an item has several times, and no packing may reach the bound.
//
// Where a list has no end (a schedule that never drains), a pipeline has many ranks, or there are too many instances
// or instructions (lives_make), the time is that of the bodies, one after the other, each once: a slot or staging
// buffer is one item, for as long as microbatches may be in it, and what lives within bodies has one instance.
#pragma once
#include "program/pack/pack.h"
#include "program/program.h"

// A stretch of time in which an instance holds something, [lower, upper).
typedef struct LiveSpan { int instance, lower, upper; } LiveSpan;
typedef struct Timeline {
  Vec(LiveSpan) span; // of each instance rising
  int *start;         // (actions of the list) tick of an action's first instruction, or of what it receives
  int end;
} Timeline;
// Along the whole list; of a Program whose instances have been numbered, and not by body. Released by timeline_free.
void timeline_make(const Program *p, const int *root, Timeline *timeline);
void timeline_free(Timeline *timeline);

// Numbers instances (TensorPlace, Instruction) and makes the problem. Which mode it is follows from how many there are.
typedef struct Lives {
  PackProblem problem;
  int *item;        // (instances) its item, or -1: never needed; of a slot as one: that of the slot
  int64_t *within;  // (instances) offset in its item
  int *tensor;      // (items) one that lies there; -1: scratch, or a slot or staging buffer
  Area *area;       // (items) AREA_NONE: scratch
  const Program *p;
} Lives;
void lives_make(Program *p, Lives *lives);
void lives_free(Lives *lives);
