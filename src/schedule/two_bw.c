// PipeDream-2BW (Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", 2021): 1F1B over the microbatches
// of all steps, so that no rank waits for the first of a step. Gradients are those of the weights of one step ago
// (optimizer.delay 1), since forwards of a step begin before the update of the step before is made.
//
// Example: two ranks, two microbatches; f b are of the next step. The body is repeated, one for each step, for the last
// without the next.
//   pp 0  prologue  F0 F1 B0     body  f0 B1 SUMS f1 b0 END
//   pp 1  prologue  F0 B0 F1 B1  body  SUMS f0 b0 f1 b1 END
#include "schedule/schedule.h"

typedef struct Writer { ActionList *list; int stage, warm, microbatches; } Writer;

static void push(const Writer *s, ListPart part, ActionKind kind, int step, int microbatch) {
  vec_push(s->list, (Action){.kind = kind, .stage = s->stage, .microbatch = microbatch, .part = part, .step = step});
}

// All forwards of a step, and the backwards that take turns with them.
static void forwards(const Writer *s, ListPart part, int step) {
  int late = s->microbatches - s->warm;
  push(s, part, ACTION_BEGIN, step, 0);
  for (int k = 0; k < s->microbatches; k++) {
    push(s, part, ACTION_FORWARD, step, k);
    if (k >= s->warm) push(s, part, ACTION_BACKWARD, step, k - s->warm);
    else if (step) push(s, part, ACTION_BACKWARD, 0, late + k);
    if (step && k == s->warm - 1) push(s, part, ACTION_SUMS, 0, 0);
  }
}

void schedule_2bw(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  CHECK(stages == map.coordinates && microbatches >= stages, "2bw runs one stage a pipeline rank");
  Writer s = {list, coordinate, map.coordinates - 1 - coordinate, microbatches};
  forwards(&s, LIST_PROLOGUE, 0);
  if (!s.warm) push(&s, LIST_BODY, ACTION_SUMS, 0, 0);
  forwards(&s, LIST_BODY, 1);
  push(&s, LIST_BODY, ACTION_END, 0, 0);
}
