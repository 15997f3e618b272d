// The meshes of a search.
#include "foresight/search_mesh.h"
#include "base/error.h"

typedef struct Meshes {
  int axes;
  const SearchAxis *axis;
  SearchMeshSee *see;
  void *context;
  int size[SEARCH_AXES];
} Meshes;

static void each(Meshes *m, int axis, int left) {
  const SearchAxis *a = &m->axis[axis];
  if (axis == m->axes) {
    if (left == 1) m->see(m->context, m->size);
    return;
  }
  CHECK(axis < SEARCH_AXES);
  for (int n = axis == m->axes - 1 ? left : 1; n <= left && (!a->most || n <= a->most); n++) {
    if (left % n || (a->fixed && n != a->fixed)) continue;
    m->size[axis] = n;
    each(m, axis + 1, left / n);
  }
}

void search_meshes(int ranks, int axes, const SearchAxis *axis, SearchMeshSee *see, void *context) {
  Meshes m = {.axes = axes, .axis = axis, .see = see, .context = context};
  each(&m, 0, ranks);
}
