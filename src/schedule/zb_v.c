// ZB-V (Qi et al., "Zero Bubble Pipeline Parallelism", 2023, and "Pipeline Parallelism with Controllable Memory",
// 2024): backward in two segments as in zb_h1.c, and two stages a rank, which lie there and back: rank i has stages i
// and 2p − 1 − i. A microbatch goes down the V and up again, so that the first rank has its loss as well, and all ranks
// hold as much: 2p halves of a rank's layers. Where F, B and W take the same time, no rank waits between its first
// segment and its last.
//
// Example: two ranks, four microbatches; f b w are of the second stage, on the way up.
//   pp 0  F0 F1 F2 f0 b0 w0 f1 b1 w1 F3 B0 W0 f2 b2 w2 B1 W1 f3 b3 w3 B2 W2 B3 W3
//   pp 1     F0 f0 F1 f1 b0 w0 F2 B0 W0 f2 b1 w1 F3 B1 W1 f3 b2 w2 B2 b3 B3 W2 w3 W3
#include "schedule/schedule.h"

typedef struct Rank {
  StageMap map;
  int coordinate, microbatches;
  int next[PHASE_COUNT][2]; // of a phase, down and up: the microbatch that it runs next
  ActionList *list;
} Rank;
typedef enum Way { DOWN, UP } Way;

_Static_assert((int)ACTION_WEIGHT - (int)ACTION_FORWARD == (int)PHASE_WEIGHT,
               "actions of phases are in the phases' order");

// The next microbatch's; a pipeline that is not filled has turns without one.
static void run(Rank *r, Phase phase, Way way) {
  int m = r->next[phase][way]++, up = 2 * r->map.coordinates - 1 - r->coordinate;
  if (m < r->microbatches)
    vec_push(r->list, (Action){.kind = (ActionKind)(ACTION_FORWARD + (int)phase),
                               .stage = way == UP ? up : r->coordinate,
                               .microbatch = m});
}

static void run_backward(Rank *r, Way way) {
  run(r, PHASE_BACKWARD, way);
  run(r, PHASE_WEIGHT, way);
}

// Until the first microbatch is back for its last B here, and B, W of it are done.
static void fill(Rank *r) {
  int i = r->coordinate, after = r->map.coordinates - i;
  for (int k = 0; k < 2 * after - 1; k++) run(r, PHASE_FORWARD, DOWN);
  for (int k = 0; k < i; k++) run(r, PHASE_FORWARD, UP), run(r, PHASE_FORWARD, DOWN);
  for (int k = 0; k < after; k++) run(r, PHASE_FORWARD, UP), run_backward(r, UP);
}

// The rest, when the last microbatch has turned: B at once, W where the next B is not there yet.
static void drain(Rank *r) {
  int i = r->coordinate;
  for (int k = 0; k < i; k++) run(r, PHASE_BACKWARD, DOWN), run(r, PHASE_BACKWARD, UP);
  for (int k = i; k < r->map.coordinates; k++) run_backward(r, DOWN);
  while (r->next[PHASE_WEIGHT][UP] < r->next[PHASE_BACKWARD][UP]) run(r, PHASE_WEIGHT, UP);
  while (r->next[PHASE_WEIGHT][DOWN] < r->next[PHASE_BACKWARD][DOWN]) run(r, PHASE_WEIGHT, DOWN);
}

void schedule_zb_v(StageMap map, int stages, int microbatches, int coordinate, ActionList *list) {
  CHECK(stages == 2 * map.coordinates && map.folded, "zb-v runs two stages a pipeline rank, there and back");
  int least = 2 * map.coordinates - 1, turns = microbatches > least ? microbatches : least;
  Rank r = {.map = map, .coordinate = coordinate, .microbatches = microbatches, .list = list};
  fill(&r);
  while (r.next[PHASE_FORWARD][UP] < turns) {
    if (r.next[PHASE_FORWARD][DOWN] < turns) run(&r, PHASE_FORWARD, DOWN);
    run_backward(&r, DOWN);
    run(&r, PHASE_FORWARD, UP);
    run_backward(&r, UP);
  }
  drain(&r);
}
