// Shards as boxes against every element by its IndexMaps: one and two runs a dim, padding, empty runs and empty dims.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "sharding/shard.h"

enum { GLOBAL = 12, DIMS = 3, ALL = GLOBAL * GLOBAL * GLOBAL };

static int next_random(uint64_t *seed, int below) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((*seed >> 33) % (uint64_t)below);
}

// One run, or two as a zigzag split makes them; the memory may be longer than what is valid, or hold nothing.
static IndexMap random_map(uint64_t *seed) {
  int runs = 1 + next_random(seed, 2), first = next_random(seed, 4), second = runs == 2 ? next_random(seed, 4) : 0;
  IndexMap m = {.valid = first + second, .global = GLOBAL, .runs = runs};
  m.local = m.valid + next_random(seed, 3);
  m.run[0].global = next_random(seed, 3);
  m.run[1].local = first;
  m.run[1].global = 6 + next_random(seed, 3);
  return m;
}

static int64_t global_of(const int64_t *index) { return (index[0] * GLOBAL + index[1]) * GLOBAL + index[2]; }

// For each global element 1 + where it lies in the rank's memory, 0 where the rank does not have it.
static void by_element(const Shard *s, int64_t *where) {
  int64_t at = 0, index[DIMS];
  memset(where, 0, ALL * sizeof *where);
  for (int64_t i = 0; i < s->map[0].local; i++)
    for (int64_t j = 0; j < s->map[1].local; j++)
      for (int64_t k = 0; k < s->map[2].local; k++) {
        const int64_t local[DIMS] = {i, j, k};
        at++;
        int valid = 1;
        for (int d = 0; d < DIMS; d++) {
          valid &= local[d] < s->map[d].valid;
          index[d] = index_map(&s->map[d], local[d]);
        }
        if (valid) where[global_of(index)] = at;
      }
}

static void check_box(const ShardBoxes *b, const int64_t *where, char *met) {
  int64_t stride[DIMS], index[DIMS];
  const Box *x = &b->box;
  shard_strides(&b->shard, stride);
  assert_true(box_elements(x) > 0);
  for (index[0] = x->offset[0]; index[0] < x->offset[0] + x->local[0]; index[0]++)
    for (index[1] = x->offset[1]; index[1] < x->offset[1] + x->local[1]; index[1]++)
      for (index[2] = x->offset[2]; index[2] < x->offset[2] + x->local[2]; index[2]++) {
        int64_t at = 0;
        for (int d = 0; d < DIMS; d++) at += (b->at[d] + index[d] - x->offset[d]) * stride[d];
        assert_int_equal(at + 1, where[global_of(index)]);
        assert_int_equal(met[global_of(index)]++, 0);
      }
}

static void boxes_hold_each_element_once(void **state) {
  static int64_t where[ALL];
  static char met[ALL];
  uint64_t seed = 1;
  int several = 0, none = 0;
  for (int round = 0; round < 2000; round++) {
    ShardBoxes b = {.shard = {.rank = DIMS}};
    for (int d = 0; d < DIMS; d++) b.shard.map[d] = random_map(&seed);
    by_element(&b.shard, where);
    memset(met, 0, sizeof met);
    int boxes = 0;
    for (ShardBoxes all = b; shard_next(&all); boxes++) {
      check_box(&all, where, met);
      ShardBoxes found = b;
      assert_true(shard_find(&found, &all.box));
      assert_memory_equal(&found.box, &all.box, sizeof found.box);
    }
    for (int i = 0; i < ALL; i++) assert_int_equal(met[i], where[i] > 0);
    several += boxes == 8;
    none += !boxes;
    assert_false(shard_find(&b, &(Box){.rank = DIMS, .offset = {GLOBAL}, .local = {1, 1, 1}}));
  }
  assert_true(several > 10 && none > 10);
}

// The boxes of all ranks of a tensor that is cut in zigzag, and then again, hold it once.
static void zigzag_shards_hold_a_tensor_once(void **state) {
  Mesh m = mesh_create(3, (const char *[]){"pp", "cp", "tp"}, (int[]){1, 2, 3});
  const Placement p = {.rank = DIMS, .dim = {{0}, {2, {1, 2}, 1}, {0}}};
  const Shape shape = shape_of(DIMS, (int64_t[]){2, GLOBAL, 3}, (DimName[]){DIM_BATCH, DIM_SEQ, DIM_EMBED});
  char met[2][GLOBAL][3] = {{{0}}};
  int boxes = 0;
  for (int r = 0; r < m.ranks; r++)
    for (ShardBoxes b = {.shard = shard_of(&m, &p, &shape, r)}; shard_next(&b); boxes++)
      for (int64_t i = 0; i < box_elements(&b.box); i++)
        met[b.box.offset[0] + i / b.box.local[2] / b.box.local[1]]
           [b.box.offset[1] + i / b.box.local[2] % b.box.local[1]][b.box.offset[2] + i % b.box.local[2]]++;
  for (size_t i = 0; i < sizeof met; i++) assert_int_equal(((char *)met)[i], 1);
  assert_int_equal(boxes, 8); // of each three of cp's ranks the middle one has two runs
}

// Rows of merged dims: the boxes of all ranks hold a tensor once, where a range of its elements lies in memory.
static void rows_hold_a_tensor_once(void **state) {
  uint64_t seed = 7;
  int several = 0, within = 0;
  for (int round = 0; round < 3000; round++) {
    const int tp = 1 + next_random(&seed, 3), dp = 1 + next_random(&seed, 9), merged = 2 + next_random(&seed, 2);
    Mesh m = mesh_create(3, (const char *[]){"pp", "dp", "tp"}, (int[]){1, dp, tp});
    Shape shape = shape_of(DIMS, (int64_t[]){tp * (1 + next_random(&seed, GLOBAL / tp)), 1 + next_random(&seed, GLOBAL),
                                             1 + next_random(&seed, GLOBAL)},
                           (DimName[]){DIM_KV_HEADS, DIM_HEAD_DIM, DIM_EMBED});
    Placement p = {.rank = DIMS, .dim = {{1, {2}, 0}}, .rows = {1, {1}, 0}, .merged = (int16_t)merged};
    if (merged == DIMS) p.parts = shape.size[2] % 2 ? 1 : 2;
    assert_true(placement_merges(&m, &p, &shape, merged));
    int64_t local[DIMS], all = shape.size[0] * shape.size[1] * shape.size[2], found = 0;
    char met[ALL] = {0};
    placement_local(&m, &p, &shape, local);
    for (int r = 0; r < m.ranks; r++) {
      int boxes = 0;
      int64_t first = mesh_coordinate(&m, r, 2) * (all / tp) + mesh_coordinate(&m, r, 1) * local[0] * local[2],
              stride[DIMS];
      for (ShardBoxes b = {.shard = shard_of(&m, &p, &shape, r)}; shard_next(&b); boxes++) {
        shard_strides(&b.shard, stride);
        for (int64_t i = 0; i < box_elements(&b.box); i++, found++) {
          int64_t index[DIMS] = {i / b.box.local[2] / b.box.local[1], i / b.box.local[2] % b.box.local[1],
                                 i % b.box.local[2]},
                  at = 0, global = 0;
          for (int d = 0; d < DIMS; d++) {
            at += (b.at[d] + index[d]) * stride[d];
            global = global * shape.size[d] + b.box.offset[d] + index[d];
          }
          assert_int_equal(at, global - first);
          assert_int_equal(met[global]++, 0);
        }
        within += b.box.offset[1] > 0;
      }
      several += boxes > 2;
    }
    assert_int_equal(found, all);
  }
  assert_true(several > 100 && within > 100);
}

static void scalars_and_what_lives_elsewhere(void **state) {
  ShardBoxes scalar = {.shard = {.rank = 0}}, nothing = {.shard = shard_nowhere()};
  assert_true(shard_next(&scalar) && scalar.box.rank == 0 && box_elements(&scalar.box) == 1);
  assert_false(shard_next(&scalar));
  assert_false(shard_next(&nothing));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(boxes_hold_each_element_once),
                                     cmocka_unit_test(zigzag_shards_hold_a_tensor_once),
                                     cmocka_unit_test(rows_hold_a_tensor_once),
                                     cmocka_unit_test(scalars_and_what_lives_elsewhere)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
