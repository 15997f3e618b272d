// A mesh as text for terminals: which rank has which coordinates, and who is in which group.
#pragma once
#include "sharding/mesh.h"
#include <stdio.h>

enum { MESH_PRINT_ALL = 64 }; // up to this many ranks all are shown, and above that the first and last of each list

// The grid of ranks: the last axis that has more than one rank runs to the right, the others down. `remark` (may be
// NULL) says something about a coordinate of the pp axis at the end of its first row.
void mesh_print_grid(const Mesh *mesh, const char *(*remark)(const void *context, int coordinate), const void *context,
                     FILE *out);
// The groups along a set of axes (bits), in one or few lines:
//   "NAME    4 groups of 2   0 4 | 1 5 | 2 6 | 3 7   MEANING"
void mesh_print_groups(const Mesh *mesh, uint32_t axes, const char *name, const char *meaning, FILE *out);
