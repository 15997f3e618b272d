// Boxes: rectangular pieces of a tensor's global index space, their intersections, coverage, and strided copies.
// One meaning for checkpoints, gathers and exports, whatever layout wrote a piece and whatever layout wants it.
#pragma once
#include "base/dtype.h"
#include "base/error.h"

enum { BOX_MAX_RANK = 8 };

// Indices [offset, offset + local) per dim. Rank 0 is a scalar and holds one element.
typedef struct Box { int rank; int64_t offset[BOX_MAX_RANK], local[BOX_MAX_RANK]; } Box;

int64_t box_elements(const Box *box);                          // 0 for an empty box
int box_inside(const Box *box, const int64_t *global); // 1 when 0 <= offset, 0 <= local, offset + local <= global
int box_intersect(const Box *a, const Box *b, Box *both);      // 1 and *both when they share an element, else 0
void box_strides(const Box *box, int64_t *stride);             // row-major strides over local, in elements
int dims_elements(int rank, const int64_t *dims, int64_t *elements); // 0, or -1 when negative or over 2^63-1
int dims_equal(int rank, const int64_t *a, const int64_t *b);
const char *dims_text(int rank, const int64_t *dims, char text[200]); // "[3, 4]"; returns text

// A box in pieces of at most `most` elements, in row-major order: the rows of its first dims one by one, the last dims
// whole. Set `whole` and `most`; each call moves on to the next `piece`; 0: that was the last one.
typedef struct BoxPieces {
  Box whole, piece;
  int64_t most, step;
  int dim, begun;
} BoxPieces; // step: rows of a piece in the dim that is cut, `dim`
int box_next_piece(BoxPieces *pieces);

// Do the boxes hold each element of `global` exactly once? If not, PLAIT_FAILED with a sentence on tensor `name`.
// Sorts the boxes by offset. Empty boxes are ignored.
int boxes_cover(const char *name, Box *boxes, int count, int rank, const int64_t *global, Error *error);

// Copies the elements `part` (which lies inside both boxes) of an array that holds box `source` to one that holds box
// `target`. Strides are in elements. Dtypes may differ only between floats; pointers need not be aligned.
void box_copy(const Box *part, void *target, const Box *target_box, const int64_t *target_stride, Dtype target_dtype,
              const void *source, const Box *source_box, const int64_t *source_stride, Dtype source_dtype);
