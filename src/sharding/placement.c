// Shards, boxes and text of placements.
#include "sharding/placement.h"
#include "base/fault.h"
#include <string.h>

int axis_list_equal(const AxisList *a, const AxisList *b) {
  return a->n == b->n && axis_list_prefix(a, b) == a->n;
}

static int in_zigzag(const AxisList *list, int i) { return list->zigzag == i + 1; }

int axis_list_prefix(const AxisList *a, const AxisList *b) {
  int n = 0;
  while (n < a->n && n < b->n && a->axis[n] == b->axis[n] &&
         (in_zigzag(a, n) == in_zigzag(b, n) || FAULT(zigzag_is_contiguous_to_prefixes, 0, 1)))
    n++;
  return n;
}

void axis_list_push(AxisList *list, int axis) {
  CHECK(list->n < MAX_AXES_PER_DIM);
  list->axis[list->n++] = (int8_t)axis;
}

void axis_list_take(AxisList *list, const AxisList *from, int i) {
  axis_list_push(list, from->axis[i]);
  if (in_zigzag(from, i)) list->zigzag = list->n;
}

int axis_list_pop(AxisList *list) {
  int axis = list->axis[--list->n];
  list->axis[list->n] = 0;
  if (in_zigzag(list, list->n)) list->zigzag = 0;
  return axis;
}

int axis_list_zigzag_axis(const AxisList *list) { return list->zigzag ? list->axis[list->zigzag - 1] : -1; }

int placement_same_owner(const Placement *a, const Placement *b) {
  return a->owner_axes == b->owner_axes && (!a->owner_axes || a->owner == b->owner);
}

int placement_equal(const Placement *a, const Placement *b) {
  if (a == b) return 1;
  if (a->rank != b->rank || a->partial != b->partial || !placement_same_owner(a, b)) return 0;
  if (a->shift != b->shift || a->shift_axis != b->shift_axis) return 0;
  if (a->fixed_axes != b->fixed_axes || a->fixed != b->fixed) return 0;
  if (a->merged != b->merged || a->parts != b->parts || !axis_list_equal(&a->rows, &b->rows)) return 0;
  for (int d = 0; d < a->rank; d++)
    if (!axis_list_equal(&a->dim[d], &b->dim[d])) return 0;
  return 1;
}

uint32_t axis_list_axes(const AxisList *list) {
  uint32_t axes = 0;
  for (int i = 0; i < list->n; i++) axes |= 1u << list->axis[i];
  return axes;
}

uint32_t placement_axes(const Placement *p) {
  uint32_t axes = axis_list_axes(&p->rows);
  for (int d = 0; d < p->rank; d++) axes |= axis_list_axes(&p->dim[d]);
  return axes;
}

Shape placement_flat_shape(const Placement *like, const Shape *shape) {
  Shape s = *shape;
  if (!like->merged) return s;
  int last = s.rank - 1, parts = like->merged == s.rank ? like->parts : 1;
  int64_t rows = parts, inner = s.size[last] / parts;
  CHECK(like->merged <= s.rank && last > 0 && s.size[last] % parts == 0, "rows of a placement that has none");
  for (int d = 0; d < like->merged && d < last; d++) {
    rows *= s.size[d];
    s.size[d] = 1;
  }
  s.size[last] = inner;
  s.size[0] = rows;
  return s;
}

Placement placement_flat(const Placement *p, const Placement *like) {
  Placement flat = *p;
  if (!like->merged) return flat;
  CHECK(!p->merged || (p->merged == like->merged && p->parts == like->parts), "rows of two kinds");
  for (int d = 1; d < like->merged; d++) {
    for (int i = 0; i < p->dim[d].n; i++) axis_list_take(&flat.dim[0], &p->dim[d], i);
    flat.dim[d] = (AxisList){0};
  }
  for (int i = 0; i < p->rows.n; i++) axis_list_take(&flat.dim[0], &p->rows, i);
  flat.rows = (AxisList){0};
  flat.merged = 0;
  flat.parts = 0;
  return flat;
}

int placement_merges(const Mesh *mesh, const Placement *p, const Shape *shape, int merged) {
  int64_t before = 1; // elements of a rank in the dims before
  int axes = 0;
  for (int d = 0; d < merged; d++) {
    int64_t local = axis_list_local(mesh, &p->dim[d], shape->size[d]);
    int shards = axis_list_shards(mesh, &p->dim[d]);
    if (p->dim[d].zigzag || local * shards != shape->size[d] || (shards > 1 && before > 1)) return 0;
    before *= local;
    axes += p->dim[d].n;
  }
  return axes < MAX_AXES_PER_DIM;
}

int placement_here(const Mesh *mesh, const Placement *p, int rank) {
  return !p->owner_axes || mesh_index(mesh, rank, p->owner_axes) == p->owner;
}

const Placement *node_owner(const Graph *g, const Node *n) {
  if (node_comm(n)->rooted) {
    const Placement *in = graph_tensor(g, n->input[0])->placement, *out = graph_tensor(g, n->output[0])->placement,
                    *less = in && out && in->owner_axes & ~out->owner_axes ? out : in;
    return less && less->owner_axes ? less : NULL;
  }
  for (int k = 0; k < n->ninput + n->noutput; k++) {
    int t = k < n->ninput ? n->input[k] : n->output[k - n->ninput];
    const Placement *p = t < 0 ? NULL : graph_tensor(g, t)->placement;
    if (p && p->owner_axes) return p;
  }
  return NULL;
}

int axis_list_shards(const Mesh *mesh, const AxisList *list) {
  int n = 1;
  for (int i = 0; i < list->n; i++) n *= mesh->axis[list->axis[i]].size;
  return n;
}

int axis_list_parts(const Mesh *mesh, const AxisList *list) {
  return axis_list_shards(mesh, list) * (list->zigzag ? 2 : 1);
}

int64_t axis_list_local(const Mesh *mesh, const AxisList *list, int64_t size) {
  for (int i = 0; i < list->n; i++) {
    int64_t n = mesh->axis[list->axis[i]].size;
    size = (size + n - 1) / n;
  }
  return size;
}

// Part c of those of `length` into which a map is cut; the last may be shorter, or empty.
static void take_part(IndexMap *m, int64_t c, int64_t length) {
  int64_t from = c * length, second = m->runs > 1 ? m->run[1].local - from : length;
  m->local = length;
  m->valid -= from;
  m->valid = m->valid < 0 ? 0 : m->valid > length ? length : m->valid;
  if (second <= 0) m->run[0].global = m->run[1].global - second; // it begins within the second run
  else m->run[0].global = FAULT(address_of_nested_shard, m->run[0].global, 0) + from;
  m->runs = second > 0 && second < length ? 2 : 1;
  m->run[1].local = m->runs > 1 ? second : 0;
  if (m->runs == 1) m->run[1].global = 0;
}

// Rank c's two chunks of the 2n of a map of one run.
static void take_zigzag(IndexMap *m, int64_t c, int64_t n) {
  int64_t chunk = m->local / (2 * n), first = m->run[0].global;
  CHECK(m->runs == 1 && m->valid == m->local && m->local % (2 * n) == 0,
        "%lld positions cannot be cut in zigzag over %lld ranks", (long long)m->local, (long long)n);
  m->local = m->valid = 2 * chunk;
  m->runs = 2;
  m->run[0].global = first + c * chunk;
  m->run[1].local = chunk;
  m->run[1].global = first + FAULT(zigzag_lacks_its_second_chunk, 2 * n - 1 - c, 2 * c + 1) * chunk;
}

// A shard of a shard: 5 rows over tp 2 are 3 and 2 (+1 of padding); the second, over dp 2, is cut into 2 and 2, of
// which 2 and 0 are valid.
IndexMap axis_list_map(const Mesh *mesh, const AxisList *list, int64_t size, int rank) {
  IndexMap m = index_whole(size);
  for (int i = 0; i < list->n; i++) {
    int64_t n = mesh->axis[list->axis[i]].size, c = mesh_coordinate(mesh, rank, list->axis[i]);
    if (n > 1 && in_zigzag(list, i)) take_zigzag(&m, c, n);
    else take_part(&m, c, (m.local + n - 1) / n);
  }
  m.run[0].global = FAULT(address_of_shard, m.run[0].global, 0);
  return m;
}

Placement placement_shifted(const Mesh *mesh, const Placement *p, int axis, int distance) {
  Placement q = *p;
  int n = mesh->axis[axis].size;
  CHECK(!p->shift || p->shift_axis == axis, "a block goes around two rings");
  q.shift = ((p->shift + distance) % n + n) % n;
  q.shift_axis = q.shift ? axis : 0;
  return q;
}

// The rank that has the number `index` of those that differ from `rank` only in these axes.
static int rank_at(const Mesh *mesh, int rank, uint32_t axes, int index) {
  int step = 1;
  for (int a = mesh->naxis - 1; a >= 0; step *= mesh->axis[a--].size) {
    if (!(axes >> a & 1)) continue;
    rank += (index % mesh->axis[a].size - mesh_coordinate(mesh, rank, a)) * step;
    index /= mesh->axis[a].size;
  }
  return rank;
}

int placement_source(const Mesh *mesh, const Placement *p, int rank) {
  if (p->fixed_axes) rank = rank_at(mesh, rank, p->fixed_axes, FAULT(fixed_block_is_the_first, p->fixed, 0));
  if (!p->shift) return rank;
  int n = mesh->axis[p->shift_axis].size, step = 1, c = mesh_coordinate(mesh, rank, p->shift_axis);
  for (int a = p->shift_axis + 1; a < mesh->naxis; a++) step *= mesh->axis[a].size;
  return rank + ((c - FAULT(shift_of_positions, p->shift, p->shift + 1) + 2 * n) % n - c) * step;
}

IndexMap placement_map(const Mesh *mesh, const Placement *p, int d, int64_t size, int rank) {
  CHECK(!p->merged, "a dim of a placement with rows");
  IndexMap map = axis_list_map(mesh, &p->dim[d], size, placement_source(mesh, p, rank));
  if (!placement_here(mesh, p, rank)) map.valid = 0;
  return map;
}

void placement_local(const Mesh *mesh, const Placement *p, const Shape *shape, int64_t *local) {
  Placement flat = placement_flat(p, p);
  Shape s = placement_flat_shape(p, shape);
  for (int d = 0; d < s.rank; d++) local[d] = axis_list_local(mesh, &flat.dim[d], s.size[d]);
}

int placement_primary(const Mesh *mesh, const Placement *p, int rank, const StageSet *coordinates) {
  uint32_t axes = placement_axes(p) | p->owner_axes;
  int pp = mesh_pipeline(mesh);
  if (!placement_here(mesh, p, rank)) return 0;
  for (int a = 0; a < mesh->naxis; a++) {
    int first = a == pp && coordinates ? stages_next(coordinates, 0) : 0;
    if (!(axes >> a & 1) && mesh_coordinate(mesh, rank, a) != first) return 0;
  }
  return 1;
}

static size_t append(char *text, size_t size, size_t used, const char *a, const char *b) {
  int n = snprintf(text + used, size - used, "%s%s", a, b);
  return n < 0 || (size_t)n >= size - used ? size - 1 : used + (size_t)n;
}

static size_t append_axes(const Mesh *mesh, uint32_t axes, char *text, size_t size, size_t used, const char *what) {
  used = append(text, size, used, used ? " " : "", what);
  for (int a = 0, first = 1; a < mesh->naxis; a++)
    if (axes >> a & 1) used = append(text, size, used, first ? ":" : ",", mesh->axis[a].name), first = 0;
  return used;
}

void placement_text(const Mesh *mesh, const Placement *p, const Shape *shape, char *text, size_t size) {
  size_t used = 0;
  text[0] = 0;
  for (int d = 0; d < p->rank; d++) {
    if (!p->dim[d].n) continue;
    char number[16];
    snprintf(number, sizeof number, "%d", d);
    used = append(text, size, used, used ? " " : "", shape ? dim_name(shape->dim[d]) : number);
    for (int i = 0; i < p->dim[d].n; i++) {
      used = append(text, size, used, i ? "," : ":", mesh->axis[p->dim[d].axis[i]].name);
      if (in_zigzag(&p->dim[d], i)) used = append(text, size, used, "~", "");
    }
  }
  if (p->rows.n) {
    used = append(text, size, used, used ? " " : "", "rows");
    for (int i = 0; i < p->rows.n; i++)
      used = append(text, size, used, i ? "," : ":", mesh->axis[p->rows.axis[i]].name);
  }
  if (p->partial) used = append_axes(mesh, p->partial, text, size, used, "partial");
  if (p->shift) {
    char shift[16];
    snprintf(shift, sizeof shift, "+%d", p->shift);
    used = append_axes(mesh, 1u << p->shift_axis, text, size, used, "shift");
    used = append(text, size, used, shift, "");
  }
  if (p->fixed_axes) {
    char fixed[16];
    snprintf(fixed, sizeof fixed, "=%d", p->fixed);
    used = append_axes(mesh, p->fixed_axes, text, size, used, "fixed");
    used = append(text, size, used, fixed, "");
  }
  if (!p->owner_axes) return;
  char owner[16];
  snprintf(owner, sizeof owner, "%d", p->owner);
  used = append_axes(mesh, p->owner_axes, text, size, used, "owner");
  append(text, size, used, "=", owner);
}

void placement_printer(const void *mesh, const Placement *p, const Shape *shape, char *text, size_t size) {
  placement_text(mesh, p, shape, text, size);
}
