// Sets of stages.
#include "base/stage_set.h"
#include "base/error.h"
#include <string.h>

enum { WORDS = MAX_STAGES / 64 };

StageSet stages_one(int stage) {
  StageSet s = {{0}};
  CHECK(stage >= 0 && stage < MAX_STAGES, "stage %d", stage);
  stages_add(&s, stage);
  return s;
}

StageSet stages_below(int end) {
  StageSet s = {{0}};
  CHECK(end >= 0 && end <= MAX_STAGES, "%d stages", end);
  for (int w = 0; w < end / 64; w++) s.word[w] = ~(uint64_t)0;
  if (end % 64) s.word[end / 64] = ((uint64_t)1 << end % 64) - 1;
  return s;
}

void stages_unite(StageSet *s, const StageSet *other) {
  for (int w = 0; w < WORDS; w++) s->word[w] |= other->word[w];
}

void stages_intersect(StageSet *s, const StageSet *other) {
  for (int w = 0; w < WORDS; w++) s->word[w] &= other->word[w];
}

int stages_equal(const StageSet *a, const StageSet *b) { return !memcmp(a, b, sizeof *a); }

int stages_include(const StageSet *s, const StageSet *part) {
  for (int w = 0; w < WORDS; w++)
    if (part->word[w] & ~s->word[w]) return 0;
  return 1;
}

int stages_count(const StageSet *s) {
  int n = 0;
  for (int w = 0; w < WORDS; w++) n += __builtin_popcountll(s->word[w]);
  return n;
}

int stages_next(const StageSet *s, int from) {
  if (from >= MAX_STAGES) return -1;
  uint64_t word = s->word[from / 64] >> from % 64 << from % 64;
  for (int w = from / 64;; word = s->word[w]) {
    if (word) return w * 64 + __builtin_ctzll(word);
    if (++w == WORDS) return -1;
  }
}

int stages_previous(const StageSet *s, int from) {
  if (from < 0) return -1;
  uint64_t word = s->word[from / 64] << (63 - from % 64) >> (63 - from % 64);
  for (int w = from / 64;; word = s->word[w]) {
    if (word) return w * 64 + 63 - __builtin_clzll(word);
    if (--w < 0) return -1;
  }
}

StageSet stages_coordinates(const StageSet *stages, StageMap map) {
  StageSet s = {{0}};
  for EACH_STAGE(stage, stages) stages_add(&s, stage_coordinate(stage, map));
  return s;
}
