// The plans that a search goes through: all that the features of recipe/layouts.def and a few numbers make of a recipe,
// as far as the user left them open and the judge (parallel_check) allows them.
//
// A feature belongs to the space if its settings change only `parallel.` and `layout.`, which never change what is
// learned. A key that the recipe gives stays as it is. A new row of the table needs nothing else.
#pragma once
#include "base/arena.h"
#include "machine/facts.h"
#include "recipe/layouts.h"
#include "recipe/recipe_keys.h"

enum { SPACE_KINDS = 24, SPACE_ROWS = 16, SPACE_SETTINGS = 6, SPACE_MESH = 4 };

// "parallel.zero=3", read.
typedef struct SpaceSetting { const RecipeKey *key; int value; LayoutWords axes; } SpaceSetting;

typedef struct SpaceFeature {
  const LayoutTraits *traits;
  SpaceSetting setting[SPACE_SETTINGS];
  int settings;
  int number;    // the setting whose value is free: any divisor of the axis ("parallel.shard_group > 1"); -1: none
  bool divides_ranks; // … of dp · cp · tp, and not of the axis
} SpaceFeature;

// Features of which a plan has at most one. first: every plan is tried with each of them; else only the best plans are.
typedef struct SpaceKind {
  const char *name;
  bool first;
  SpaceFeature feature[SPACE_ROWS];
  int features;
} SpaceKind;

// A plan: what differs from the recipe that the search starts from.
typedef struct Candidate {
  int mesh[SPACE_MESH];             // pp, dp, cp, tp
  signed char feature[SPACE_KINDS]; // by kind; -1: none
  int number[SPACE_KINDS];          // of those with a free number
  int micro, stages, bucket;        // batch.micro, parallel.stages_per_rank (0: auto), parallel.bucket_mb
  int overlap, recomputed;          // parallel.overlap, parallel.recompute_layers
} Candidate;

typedef struct Space {
  const Recipe *asked;       // as the user wrote it
  const ModelConfig *config;
  StepModel model; // of config
  Recipe base;               // the variant of `asked` that plans start from
  SpaceKind kind[SPACE_KINDS];
  int kinds, ranks;
  bool fixed_mesh[SPACE_MESH], fixed_micro, fixed_stages, fixed_bucket, fixed_overlap, fixed_recomputed;
  Arena arena;
} Space;

// PLAIT_BAD_INPUT: the mesh that the recipe gives does not divide `ranks`. `cluster`: for the device and precision.
int space_create(const Recipe *asked, const ModelConfig *config, const Cluster *cluster, int ranks, Space *space,
                 Error *error);
void space_free(Space *space);

typedef void SpaceSee(void *context, const Candidate *candidate, const Recipe *recipe);
// Calls `see` with every plan that the judge allows, with features of the kinds that are `first`. Returns how many
// were judged.
int64_t space_each(const Space *space, SpaceSee *see, void *context);
// The plans beside one: with another feature of one of the other kinds, another bucket, the other value of overlap,
// fewer recomputed layers, or a microbatch that is not a power of two. Returns how many were judged.
int64_t space_beside(const Space *space, const Candidate *candidate, SpaceSee *see, void *context);

// The recipe of a plan: a copy of the base with its settings; borrows from it.
void space_recipe(const Space *space, const Candidate *candidate, Recipe *out);
// Whether the judge allows it.
bool space_allows(const Space *space, const Recipe *recipe);
// Of a plan's kind by name; NULL: none.
const SpaceFeature *space_feature(const Space *space, const Candidate *candidate, const char *kind, int *number);
