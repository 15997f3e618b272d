// PipeDream (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", 2019): 1F1B over steps
// of one microbatch, so that no rank waits but for the first. A stage updates its weights right after its backward of a
// step. By then it has begun one later step for each stage after it, so the weights of its gradients are that many
// steps old (optimizer.delay).
//
// Example: two ranks; the number is that of the step. SUMS has the update; END waits only for the norm and the loss of
// step 0, which are reported.
//   pp 0  prologue  F0          body  F1 B0 SUMS0 END0
//   pp 1  prologue  F0 B0 SUMS0 body  F1 B1 SUMS1 END0
#include "schedule/schedule.h"

void schedule_pipedream(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  int ahead = map.coordinates - 1, warm = ahead - coordinate;
  CHECK(stages == map.coordinates && microbatches == 1,
        "pipedream runs one stage a pipeline rank, one microbatch a step");
  for (int step = 0; step <= ahead; step++) {
    Action a = {
        .kind = ACTION_BEGIN, .stage = coordinate, .part = step < ahead ? LIST_PROLOGUE : LIST_BODY, .step = step};
    vec_push(list, a);
    a.kind = ACTION_FORWARD;
    vec_push(list, a);
    a.step = step - warm;
    if (a.step < 0) continue;
    a.kind = ACTION_BACKWARD;
    vec_push(list, a);
    a.kind = ACTION_SUMS;
    vec_push(list, a);
  }
  vec_push(list, (Action){.kind = ACTION_END, .stage = coordinate});
}
