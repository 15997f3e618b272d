// The features of parallel layouts, and which can be combined: one table (layouts.def) for the validator of recipes,
// the parity matrix and docs/parity.md.
#pragma once
#include "recipe/recipe.h"

typedef enum LayoutFeature {
#define LAYOUT_FEATURE(id, ...) LAYOUT_##id,
#define LAYOUT_REFUSED(...)
#include "recipe/layouts.def"
#undef LAYOUT_FEATURE
#undef LAYOUT_REFUSED
  LAYOUT_FEATURES
} LayoutFeature;

typedef struct LayoutTraits {
  const char *name;
  const char *kind;            // the matrix takes at most one feature of a kind
  const char *key, *condition; // "parallel.zero", "= 1"
  const char *axis;            // of the mesh, that must have more than one rank; "": any mesh
  const char *settings;        // "key=value key=value"
  const char *sizes, *needs;   // for the matrix: "2 3 4", "zero parallel.zero=3"
} LayoutTraits;
extern const LayoutTraits layout_traits[LAYOUT_FEATURES];

// The features of a recipe, as a set of bits.
uint64_t layouts_features(const Recipe *recipe);
// Does the key table have what switches the feature on?
bool layouts_built(LayoutFeature feature);
// Why two features do not go together; NULL when they do. In either order.
const char *layouts_refused(LayoutFeature a, LayoutFeature b);
