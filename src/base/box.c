// Box arithmetic, exact-cover check and strided copies.
#include "base/box.h"
#include "base/convert.h"
#include "base/fault.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dims_elements(int rank, const int64_t *dims, int64_t *elements) {
  int64_t n = 1;
  int zero = 0;
  for (int d = 0; d < rank; d++) {
    if (dims[d] < 0) return -1;
    if (dims[d] == 0) zero = 1;
    else if (__builtin_mul_overflow(n, dims[d], &n)) return -1;
  }
  *elements = zero ? 0 : n;
  return 0;
}

int dims_equal(int rank, const int64_t *a, const int64_t *b) {
  for (int d = 0; d < rank; d++)
    if (a[d] != b[d]) return 0;
  return 1;
}

const char *dims_text(int rank, const int64_t *dims, char text[200]) {
  size_t n = (size_t)snprintf(text, 200, "[");
  for (int d = 0; d < rank; d++) n += (size_t)snprintf(text + n, 200 - n, d ? ", %lld" : "%lld", (long long)dims[d]);
  snprintf(text + n, 200 - n, "]");
  return text;
}

int64_t box_elements(const Box *box) {
  int64_t n = 0;
  return dims_elements(box->rank, box->local, &n) ? 0 : n;
}

int box_inside(const Box *box, const int64_t *global) {
  for (int d = 0; d < box->rank; d++)
    if (box->offset[d] < 0 || box->local[d] < 0 || box->offset[d] > global[d] ||
        box->local[d] > global[d] - box->offset[d])
      return 0;
  return 1;
}

int box_intersect(const Box *a, const Box *b, Box *both) {
  both->rank = a->rank;
  for (int d = 0; d < a->rank; d++) {
    int64_t from = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
    int64_t end_a = a->offset[d] + a->local[d], end_b = b->offset[d] + b->local[d];
    int64_t end = end_a < end_b ? end_a : end_b;
    if (end <= from) return 0;
    both->offset[d] = from;
    both->local[d] = end - from;
  }
  return 1;
}

void box_strides(const Box *box, int64_t *stride) {
  uint64_t n = 1; // wraps harmlessly for empty boxes with absurd dims: nothing is addressed with those
  for (int d = box->rank - 1; d >= 0; d--) {
    stride[d] = (int64_t)n;
    n *= (uint64_t)box->local[d];
  }
}

static void begin_pieces(BoxPieces *p) {
  int64_t inner = 1; // elements of a row of dim p->dim
  p->begun = 1;
  p->piece = p->whole;
  p->dim = p->whole.rank - 1;
  while (p->dim > 0 && inner * p->whole.local[p->dim] <= p->most) inner *= p->whole.local[p->dim--];
  p->step = inner < p->most ? p->most / inner : 1;
  for (int d = 0; d <= p->dim; d++) {
    int64_t rows = d == p->dim ? p->step : 1;
    if (rows < p->piece.local[d]) p->piece.local[d] = rows;
  }
}

int box_next_piece(BoxPieces *p) {
  if (!box_elements(&p->whole)) return 0;
  if (!p->begun) {
    begin_pieces(p);
    return 1;
  }
  for (int d = p->dim; d >= 0; d--) {
    int64_t rows = d == p->dim ? p->step : 1, end = p->whole.offset[d] + p->whole.local[d];
    p->piece.offset[d] += rows;
    if (p->piece.offset[d] >= end) p->piece.offset[d] = p->whole.offset[d];
    p->piece.local[d] = rows < end - p->piece.offset[d] ? rows : end - p->piece.offset[d];
    if (p->piece.offset[d] != p->whole.offset[d]) return 1;
  }
  return 0;
}

static int by_offset(const void *a, const void *b) {
  const Box *x = a, *y = b;
  for (int d = 0; d < x->rank; d++)
    if (x->offset[d] != y->offset[d]) return x->offset[d] < y->offset[d] ? -1 : 1;
  return 0;
}

int boxes_cover(const char *name, Box *boxes, int count, int rank, const int64_t *global, Error *error) {
  char text[200], other[200];
  int64_t total = 0, sum = 0;
  if (dims_elements(rank, global, &total))
    return error_set(error, PLAIT_FAILED, "tensor %s: impossible shape %s", name, dims_text(rank, global, text));
  if (count) qsort(boxes, (size_t)count, sizeof *boxes, by_offset);
  for (int i = 0; i < count; i++) {
    if (boxes[i].rank != rank || !box_inside(&boxes[i], global))
      return error_set(error, PLAIT_FAILED, "tensor %s: a piece of shape %s does not lie inside the global shape %s",
                       name, dims_text(boxes[i].rank, boxes[i].local, other), dims_text(rank, global, text));
    if (!box_elements(&boxes[i])) continue;
    // Sorted by offset: once a box starts after this one in dim 0, so do all that follow.
    for (int j = i + 1; j < count; j++) {
      Box both;
      if (rank && boxes[j].offset[0] >= boxes[i].offset[0] + boxes[i].local[0]) break;
      if (boxes[j].rank == rank && box_inside(&boxes[j], global) && box_intersect(&boxes[i], &boxes[j], &both))
        return error_set(error, PLAIT_FAILED, "tensor %s %s: two pieces hold the elements at %s", name,
                         dims_text(rank, global, text), dims_text(rank, both.offset, other));
    }
    sum += box_elements(&boxes[i]); // disjoint so far, so it cannot pass total
  }
  if (sum != total)
    return error_set(error, PLAIT_FAILED, "tensor %s %s: the pieces hold %lld of %lld elements", name,
                     dims_text(rank, global, text), (long long)sum, (long long)total);
  return PLAIT_OK;
}

// n elements of `bytes`, `to_stride` and `from_stride` elements apart, wherever they lie.
static void copy_strided(char *to, int64_t to_stride, const char *from, int64_t from_stride, size_t bytes, int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    memcpy(to, from, (size_t)n * bytes);
    return;
  }
#define EACH(size)                                                                                                     \
  case size:                                                                                                           \
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_stride * size, from + i * from_stride * size, size);            \
    break;
  switch (bytes) {
    EACH(1)
    EACH(2)
    EACH(4)
    EACH(8)
  }
#undef EACH
}

// A run of `n` elements. Other dtypes go through blocks, because neither side need be aligned.
static void copy_run(char *target, int64_t target_stride, Dtype target_dtype, const char *source, int64_t source_stride,
                     Dtype source_dtype, int64_t n) {
  enum { BLOCK = 1024 };
  size_t to = dtype_size(target_dtype), from = dtype_size(source_dtype);
  uint64_t in[BLOCK], out[BLOCK];
  if (target_dtype == source_dtype) {
    copy_strided(target, target_stride, source, source_stride, to, n);
    return;
  }
  for (int64_t k = 0; k < n; k += BLOCK) {
    int64_t count = n - k < BLOCK ? n - k : BLOCK;
    copy_strided((char *)in, 1, source + k * source_stride * (int64_t)from, source_stride, from, count);
    dtype_convert(out, target_dtype, in, source_dtype, FAULT(blocks_lose_an_element, count, count - 1));
    copy_strided(target + k * target_stride * (int64_t)to, target_stride, (const char *)out, 1, to, count);
  }
}

void box_copy(const Box *part, void *target, const Box *target_box, const int64_t *target_stride, Dtype target_dtype,
              const void *source, const Box *source_box, const int64_t *source_stride, Dtype source_dtype) {
  int64_t dims[BOX_MAX_RANK], ts[BOX_MAX_RANK], ss[BOX_MAX_RANK], index[BOX_MAX_RANK] = {0};
  int64_t to = (int64_t)dtype_size(target_dtype), from = (int64_t)dtype_size(source_dtype);
  char *t = target;
  const char *s = source;
  int rank = 0;
  if (!box_elements(part)) return;
  for (int d = 0; d < part->rank; d++) {
    t += (part->offset[d] - target_box->offset[d]) * target_stride[d] * to;
    s += (part->offset[d] - FAULT(checkpoint_reads_another_box, source_box->offset[d], part->offset[d])) *
         source_stride[d] * from;
    if (part->local[d] == 1) continue;
    // Dims that follow each other without a gap on both sides are one longer run.
    if (rank && ts[rank - 1] == target_stride[d] * part->local[d] &&
        ss[rank - 1] == source_stride[d] * part->local[d]) {
      rank--;
      dims[rank] *= part->local[d];
    } else {
      dims[rank] = part->local[d];
    }
    ts[rank] = target_stride[d];
    ss[rank] = source_stride[d];
    rank++;
  }
  if (!rank) dims[0] = ts[0] = ss[0] = 1, rank = 1;
  for (;;) {
    int last = rank - 1, d = last - 1;
    copy_run(t, ts[last], target_dtype, s, ss[last], source_dtype, dims[last]);
    for (; d >= 0; d--) {
      t += ts[d] * to;
      s += ss[d] * from;
      if (++index[d] < dims[d]) break;
      t -= ts[d] * dims[d] * to;
      s -= ss[d] * dims[d] * from;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}
