// Growable arrays: Vec(int) ids = {0}; vec_push(&ids, 3); ids.data[0]; vec_free(&ids).
#pragma once
#include "base/error.h"
#include <stdlib.h>

#define Vec(type) struct { type *data; int count, capacity; }
#define vec_reserve(v, n)                                                                                              \
  do {                                                                                                                 \
    if ((v)->capacity < (n)) {                                                                                         \
      (v)->capacity = (n) > 2 * (v)->capacity ? (n) : 2 * (v)->capacity;                                               \
      (v)->data = xrealloc((v)->data, sizeof *(v)->data * (size_t)(v)->capacity);                                      \
    }                                                                                                                  \
  } while (0)
#define vec_push(v, ...)                                                                                               \
  do {                                                                                                                 \
    vec_reserve((v), (v)->count + 1);                                                                                  \
    (v)->data[(v)->count++] = (__VA_ARGS__);                                                                           \
  } while (0)
#define vec_free(v) (free((v)->data), (v)->data = NULL, (v)->count = (v)->capacity = 0)
