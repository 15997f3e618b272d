// A set of virtual pipeline stages, or of coordinates on the pipeline axis; and which of these coordinates runs a
// stage.
#pragma once
#include <stdint.h>

enum { MAX_STAGES = 1024 };

typedef struct StageSet { uint64_t word[MAX_STAGES / 64]; } StageSet; // zero-initialise: empty

// Where a stage runs, and, the other way round, which of `stages` stages run on a coordinate. Nobody else says it.
static inline int stage_coordinate(int stage, int coordinates) { return stage % coordinates; }
#define EACH_STAGE_ON(stage, coordinate, coordinates, stages)                                                          \
  (int stage = (coordinate); stage < (stages); stage += (coordinates))

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
StageSet stages_coordinates(const StageSet *stages, int coordinates); // that run any of them

// for (int s = stages_next(&set, 0); …) in one word.
#define EACH_STAGE(stage, set) (int stage = stages_next((set), 0); stage >= 0; stage = stages_next((set), stage + 1))
