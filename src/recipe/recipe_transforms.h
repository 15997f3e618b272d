// Expands one section of parallel/transforms.def. Define TRANSFORM_OF_<section>(path, kind, field, …) before including
// it. It has no guard: recipe_keys.c includes it once for each section.
#ifndef TRANSFORM_OF_parallel
#define TRANSFORM_OF_parallel(...)
#endif
#ifndef TRANSFORM_OF_moe
#define TRANSFORM_OF_moe(...)
#endif
#ifndef TRANSFORM_OF_optimizer
#define TRANSFORM_OF_optimizer(...)
#endif
#define TRANSFORM(section, type, name, kind, pass, model, with, another, ...)                                          \
  TRANSFORM_OF_##section(#section "." #name, RECIPE_##kind, transform.name, __VA_ARGS__)
#include "parallel/transforms.def"
#undef TRANSFORM_OF_parallel
#undef TRANSFORM_OF_moe
#undef TRANSFORM_OF_optimizer
