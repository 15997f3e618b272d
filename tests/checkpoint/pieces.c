// A model whose tensors are cut into pieces in every way, and checkpoints of it.
#include "pieces.h"

char folder[] = "/tmp/plait-checkpoint-XXXXXX";

int make_folder(void **state) { return mkdtemp(folder) ? 0 : -1; }
int remove_folder(void **state) { return folder_remove(folder, NULL); }

const ModelTensor model[TENSORS] = {
    {"wte", DTYPE_F32, 2, {37, 12}}, {"bias", DTYPE_F64, 1, {7}},       {"step", DTYPE_F32, 0, {0}},
    {"qkv", DTYPE_BF16, 3, {5, 3, 4}}, {"ids", DTYPE_I64, 1, {9}},      {"conv", DTYPE_U16, 4, {2, 3, 4, 5}},
    {"none", DTYPE_F32, 2, {0, 3}},   {"one", DTYPE_U8, 2, {1, 1}},     {"big", DTYPE_F32, 2, {300, 1000}},
};

char *path_in(const char *a, const char *b) { return xformat("%s/%s", a, b); }

void overwrite(const char *path, const char *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  fclose(f);
}

// What element `index` of tensor i holds: exact in every dtype of the table.
double value_at(int i, int64_t index, int salt) { return (double)((index * 7 + i * 13 + salt) % 251); }

// Row-major when `padded` is 0, else an array with a gap after each row and each matrix.
static void make_piece(Pieces *p, int rank_of, int i, const int64_t *offset, const int64_t *local, int padded,
                       int primary) {
  CheckpointTensor *t = &p->t[p->count];
  int64_t n = 1;
  *t = (CheckpointTensor){.name = model[i].name, .dtype = model[i].dtype, .rank = model[i].rank, .primary = primary};
  for (int d = t->rank - 1; d >= 0; d--) {
    t->global[d] = model[i].global[d];
    t->offset[d] = offset[d];
    t->local[d] = local[d];
    if (padded) t->stride[d] = n;
    n *= local[d] + (padded ? 2 : 0);
  }
  p->bytes[p->count] = (size_t)(n + 4) * dtype_size(t->dtype);
  t->data = xcalloc(p->bytes[p->count], 1);
  memset(t->data, GUARD, p->bytes[p->count]);
  p->rank_of[p->count++] = rank_of;
  assert_true(p->count <= TENSORS * MAX_PIECES);
}

// Part `r` of `n` of `size`: near-even, some parts empty when n is larger; or with very different sizes.
static void cut(int64_t size, int r, int n, int uneven, int64_t *offset, int64_t *local) {
  int64_t a = uneven ? size * r * r / (n * n) : size * r / n,
          b = uneven ? size * (r + 1) * (r + 1) / (n * n) : size * (r + 1) / n;
  *offset = a;
  *local = b - a;
}

void make_pieces(Pieces *p, LayoutKind kind, int ranks) {
  memset(p, 0, sizeof *p);
  for (int r = 0; r < ranks; r++)
    for (int i = 0; i < TENSORS; i++) {
      int rank = model[i].rank, padded = (r + i + (int)kind) % 2, primary = 1;
      int64_t offset[4] = {0}, local[4];
      memcpy(local, model[i].global, sizeof local);
      if (kind == REPLICATED || rank == 0) primary = r == (i % ranks);
      else if (kind == ROWS || kind == UNEVEN) cut(local[0], r, ranks, kind == UNEVEN, &offset[0], &local[0]);
      else if (kind == COLUMNS) cut(local[rank - 1], r, ranks, 0, &offset[rank - 1], &local[rank - 1]);
      else if (kind == GRID && rank >= 2) {
        int columns = ranks % 2 ? 1 : 2;
        cut(model[i].global[0], r / columns, ranks / columns, 0, &offset[0], &local[0]);
        cut(model[i].global[1], r % columns, columns, 0, &offset[1], &local[1]);
      } else if (kind == GRID) { // shards of dim 0, each held twice, once as primary
        int halves = (ranks + 1) / 2;
        cut(model[i].global[0], r % halves, halves, 0, &offset[0], &local[0]);
        primary = r < halves;
      } else { // zigzag: chunks r and 2n-1-r
        cut(model[i].global[0], r, 2 * ranks, 0, &offset[0], &local[0]);
        make_piece(p, r, i, offset, local, padded, 1);
        cut(model[i].global[0], 2 * ranks - 1 - r, 2 * ranks, 0, &offset[0], &local[0]);
      }
      make_piece(p, r, i, offset, local, padded, primary);
    }
}

void free_pieces(Pieces *p) {
  for (int i = 0; i < p->count; i++) free(p->t[i].data);
}

static int tensor_of(const char *name) {
  for (int i = 0; i < TENSORS; i++)
    if (!strcmp(model[i].name, name)) return i;
  return -1;
}

// Visits each element of a piece: writes its value, or compares it. Returns the elements visited.
static int64_t visit(const CheckpointTensor *t, int salt, int compare) {
  int64_t index[4] = {0}, stride[4], n = 1, total = 1, seen = 0;
  int i = tensor_of(t->name);
  for (int d = t->rank - 1; d >= 0; d--) {
    stride[d] = t->stride[d] ? t->stride[d] : n;
    n *= t->local[d];
    total *= t->local[d];
  }
  for (; seen < total; seen++) {
    int64_t global = 0, at = 0;
    for (int d = 0; d < t->rank; d++) {
      global = global * t->global[d] + t->offset[d] + index[d];
      at += index[d] * stride[d];
    }
    if (!compare) dtype_store(t->data, t->dtype, at, value_at(i, global, salt));
    else if (dtype_load(t->data, t->dtype, at) != value_at(i, global, salt))
      fail_msg("%s element %lld", t->name, (long long)global);
    for (int d = t->rank - 1; d >= 0; d--) {
      if (++index[d] < t->local[d]) break;
      index[d] = 0;
    }
  }
  return total;
}

void fill_pieces(Pieces *p, int salt) {
  for (int i = 0; i < p->count; i++) visit(&p->t[i], salt, 0);
}

void check_pieces(const Pieces *p, int salt) {
  for (int i = 0; i < p->count; i++) {
    const uint8_t *bytes = p->t[i].data;
    size_t guards = 0, size = dtype_size(p->t[i].dtype);
    int64_t elements = visit(&p->t[i], salt, 1);
    // What is not the piece's was not touched: at least the bytes outside of it still hold the guard.
    for (size_t b = 0; b < p->bytes[i]; b++) guards += bytes[b] == GUARD;
    assert_true(guards >= p->bytes[i] - (size_t)elements * size);
  }
}

static int write_parts(const char *dir, int64_t step, const Pieces *p, int ranks, Error *error) {
  int code = PLAIT_OK;
  for (int r = 0; r < ranks && !code; r++) {
    CheckpointTensor *mine = xcalloc((size_t)p->count, sizeof *mine);
    int n = 0;
    for (int i = 0; i < p->count; i++)
      if (p->rank_of[i] == r) mine[n++] = p->t[i];
    code = checkpoint_write_part(dir, step, r, mine, n, error);
    free(mine);
  }
  return code;
}

int save(const char *dir, int64_t step, LayoutKind kind, int ranks, int salt, json_t *extra, Error *error) {
  Pieces *p = xcalloc(1, sizeof *p);
  make_pieces(p, kind, ranks);
  fill_pieces(p, salt);
  int code = checkpoint_begin(dir, step, error);
  if (!code) code = write_parts(dir, step, p, ranks, error);
  if (!code) code = checkpoint_finish(dir, step, ranks, extra, error);
  free_pieces(p);
  free(p);
  return code;
}

void load_and_check(Checkpoint *c, LayoutKind kind, int ranks, int salt) {
  Pieces *p = xcalloc(1, sizeof *p);
  Error error = {0};
  make_pieces(p, kind, ranks);
  if (checkpoint_load(c, p->t, p->count, 0, &error)) fail_msg("%s", error.message);
  check_pieces(p, salt);
  free_pieces(p);
  free(p);
}

// A small checkpoint of two parts, for damage.
void save_small(const char *dir, int64_t step, float first) {
  float x[6] = {first, 1, 2, 3, 4, 5};
  CheckpointTensor
      a = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {6}, .local = {3}, .data = x, .primary = 1},
      b = a;
  b.offset[0] = 3;
  b.data = x + 3;
  Error error = {0};
  assert_int_equal(checkpoint_begin(dir, step, &error), PLAIT_OK);
  assert_int_equal(checkpoint_write_part(dir, step, 0, &a, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_write_part(dir, step, 1, &b, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_finish(dir, step, 2, NULL, &error), PLAIT_OK);
}
