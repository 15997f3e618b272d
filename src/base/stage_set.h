// A set of virtual pipeline stages, or of coordinates on the pipeline axis; and which of these coordinates runs a
// stage.
#pragma once
#include <stdint.h>

enum { MAX_STAGES = 1024 };

typedef struct StageSet { uint64_t word[MAX_STAGES / 64]; } StageSet; // zero-initialise: empty

// Where stages run: over the coordinates in turn, 0 1 2 0 1 2, or folded, there and back, 0 1 2 2 1 0 (a V).
typedef struct StageMap { int coordinates, folded; } StageMap;
// Where a stage runs, and, the other way round, which of `stages` stages run on a coordinate. Nobody else says it.
static inline int stage_coordinate(int stage, StageMap map) {
  int at = stage % map.coordinates;
  return map.folded && stage / map.coordinates % 2 ? map.coordinates - 1 - at : at;
}
// The next stage of the coordinate that runs this one.
static inline int stage_next(int stage, StageMap map) {
  int turn = stage / map.coordinates + 1, at = stage_coordinate(stage, map);
  return turn * map.coordinates + (map.folded && turn % 2 ? map.coordinates - 1 - at : at);
}
#define EACH_STAGE_ON(stage, coordinate, map, stages)                                                                  \
  (int stage = (coordinate); stage < (stages); stage = stage_next(stage, map))

static inline int stages_have(const StageSet *s, int stage) { return s->word[stage / 64] >> stage % 64 & 1; }
static inline void stages_add(StageSet *s, int stage) { s->word[stage / 64] |= (uint64_t)1 << stage % 64; }
StageSet stages_one(int stage);
StageSet stages_below(int end); // 0 … end - 1
void stages_unite(StageSet *s, const StageSet *other);
void stages_intersect(StageSet *s, const StageSet *other);
int stages_equal(const StageSet *a, const StageSet *b);
int stages_include(const StageSet *s, const StageSet *part); // all of `part`
int stages_count(const StageSet *s);
int stages_next(const StageSet *s, int from);     // the smallest that is at least `from`, or -1
int stages_previous(const StageSet *s, int from); // the largest that is at most `from`, or -1
StageSet stages_coordinates(const StageSet *stages, StageMap map); // that run any of them

// for (int s = stages_next(&set, 0); …) in one word.
#define EACH_STAGE(stage, set) (int stage = stages_next((set), 0); stage >= 0; stage = stages_next((set), stage + 1))
