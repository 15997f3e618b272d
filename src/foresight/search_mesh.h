// The meshes of a search: all ways to divide a number of ranks over some axes.
#pragma once

enum { SEARCH_AXES = 4 };
typedef struct SearchAxis { int fixed, most; } SearchAxis; // fixed: its size, 0: open; most: the largest, 0: any

typedef void SearchMeshSee(void *context, const int *size);
// Calls `see` with the sizes of `axes` axes, whose product is `ranks`, in increasing order of the first, then the
// second, …: the last axis has what the others leave.
void search_meshes(int ranks, int axes, const SearchAxis *axis, SearchMeshSee *see, void *context);
