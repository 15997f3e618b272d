// tier 1; numbers
// Sharded checkpoints: every layout loads under every other, by name, shape and dtype, from threads too.
#include "pieces.h"
#include <dirent.h>
#include <pthread.h>

static void test_every_layout_under_every_other(void **state) {
  static const int ranks[] = {1, 2, 3, 4, 8};
  char *dir = path_in(folder, "layouts");
  for (int from = 0; from < LAYOUTS; from++) {
    int n = ranks[(from + 3) % 5];
    Error error = {0};
    if (save(dir, from, (LayoutKind)from, n, from, NULL, &error))
      fail_msg("layout %d, %d ranks: %s", from, n, error.message);
    char *path = xformat("%s/step-%d", dir, from);
    Checkpoint *c;
    assert_int_equal(checkpoint_open(&c, path, &error), PLAIT_OK);
    assert_int_equal(checkpoint_count(c), TENSORS);
    for (int to = 0; to < LAYOUTS; to++)
      for (int k = to % 2; k < 5; k += 2) load_and_check(c, (LayoutKind)to, ranks[k], from);
    checkpoint_close(c);
    free(path);
  }
  free(dir);
}

static void test_extra_entries_and_replacing(void **state) {
  char *dir = path_in(folder, "replace"), *path = path_in(dir, "step-5");
  json_t *extra = json_pack("{s:I, s:f, s:s}", "tokens", (json_int_t)1 << 60, "lr", 0.1, "recipe", "model: \"é\"\n");
  Checkpoint *c;
  Error error = {0};
  assert_int_equal(save(dir, 5, ROWS, 2, 1, NULL, &error), PLAIT_OK);
  assert_int_equal(save(dir, 5, COLUMNS, 4, 2, extra, &error), PLAIT_OK); // takes the place of the first
  assert_int_equal(checkpoint_open(&c, path, &error), PLAIT_OK);
  assert_true(json_equal(checkpoint_extra(c), extra));
  assert_int_equal(checkpoint_step(c), 5);
  assert_string_equal(checkpoint_path(c), path);
  load_and_check(c, GRID, 4, 2);
  assert_string_equal(checkpoint_entry(c, 0)->name, "bias");
  assert_int_equal(checkpoint_find(c, "qkv")->dtype, DTYPE_BF16);
  assert_int_equal(checkpoint_find(c, "qkv")->global[2], 4);
  assert_null(checkpoint_find(c, "qk"));
  checkpoint_close(c);
  char *left = path_in(dir, "step-5.tmp");
  assert_false(file_exists(left));
  free(left);
  json_decref(extra);
  free(path);
  free(dir);
}

static int no_ids(const char *name, void *context) { return strcmp(name, "ids") != 0; }

static void test_names_shapes_dtypes(void **state) {
  char *dir = path_in(folder, "names"), *path = path_in(dir, "step-0");
  const char *names[TENSORS + 1];
  Checkpoint *c;
  Error error = {0};
  assert_int_equal(save(dir, 0, ROWS, 3, 0, NULL, &error), PLAIT_OK);
  assert_int_equal(checkpoint_open(&c, path, &error), PLAIT_OK);
  int n = 0;
  for (int i = 0; i < TENSORS; i++)
    if (i != 4) names[n++] = model[i].name; // without ids
  assert_int_equal(checkpoint_compare_names(c, names, n, no_ids, NULL, &error), PLAIT_OK);
  assert_int_equal(checkpoint_compare_names(c, names, n, NULL, NULL, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "has 1 unexpected tensor(s): ids"));
  names[0] = "wpe";
  error = (Error){0};
  assert_int_equal(checkpoint_compare_names(c, names, n, no_ids, NULL, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "lacks 1 tensor(s): wpe and has 1 unexpected tensor(s): wte"));

  float x[12] = {0};
  double y[12];
  CheckpointTensor w = {.name = "wpe", .dtype = DTYPE_F32, .rank = 2, .global = {37, 12}, .local = {1, 12}, .data = x};
  error = (Error){0};
  assert_int_equal(checkpoint_load(c, &w, 1, 0, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "lacks 1 tensor(s): wpe"));
  w.name = "wte";
  w.global[0] = 38;
  error = (Error){0};
  assert_int_equal(checkpoint_load(c, &w, 1, 0, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "wte is [37, 12] in the checkpoint but [38, 12] here"));
  w.global[0] = 37;
  w.dtype = DTYPE_F64;
  w.data = y;
  error = (Error){0};
  assert_int_equal(checkpoint_load(c, &w, 1, 0, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "is fp32 in the checkpoint but fp64 here"));
  assert_int_equal(checkpoint_load(c, &w, 1, 1, NULL), PLAIT_OK);
  for (int i = 0; i < 12; i++) assert_true(y[i] == value_at(0, i, 0));
  w.dtype = DTYPE_I64;
  assert_int_equal(checkpoint_load(c, &w, 1, 1, NULL), PLAIT_BAD_INPUT); // no float
  w.dtype = DTYPE_F32;
  w.offset[0] = 37;
  assert_true(checkpoint_load(c, &w, 1, 0, NULL) < 0); // outside
  int64_t offset[] = {3, 1, 0}, local[] = {1, 2, 4};
  assert_int_equal(checkpoint_read_box(c, "qkv", offset, local, DTYPE_F32, x, NULL), PLAIT_OK);
  for (int i = 0; i < 8; i++) assert_true(x[i] == (float)value_at(3, (3 * 3 + 1) * 4 + i, 0));
  assert_int_equal(checkpoint_read_box(c, "step", NULL, NULL, DTYPE_F32, x, NULL), PLAIT_OK);
  assert_true(x[0] == (float)value_at(2, 0, 0));
  assert_int_equal(checkpoint_read_box(c, "gone", offset, local, DTYPE_F32, x, NULL), PLAIT_BAD_INPUT);
  checkpoint_close(c);
  free(path);
  free(dir);
}

static int is_empty_folder(const char *path) {
  DIR *d = opendir(path);
  int n = 0;
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n == 2;
}

static void finish_fails(const char *dir, const CheckpointTensor *tensors, int count, int parts, const char *word) {
  Error error = {0};
  assert_int_equal(checkpoint_begin(dir, 1, &error), PLAIT_OK);
  assert_int_equal(checkpoint_write_part(dir, 1, 0, tensors, count, &error), PLAIT_OK);
  assert_true(checkpoint_finish(dir, 1, parts, NULL, &error) < 0);
  if (!strstr(error.message, word)) fail_msg("no '%s' in: %s", word, error.message);
  checkpoint_abandon(dir, 1);
  assert_true(is_empty_folder(dir));
}

static void test_coverage(void **state) {
  char *dir = path_in(folder, "coverage");
  float x[12] = {0};
  CheckpointTensor a = {
      .name = "x", .dtype = DTYPE_F32, .rank = 2, .global = {4, 3}, .local = {2, 3}, .data = x, .primary = 1};
  CheckpointTensor two[2] = {a, a};
  finish_fails(dir, two, 1, 1, "hold 6 of 12 elements");
  two[1].offset[0] = 1;
  finish_fails(dir, two, 2, 1, "two pieces hold the elements at [1, 0]");
  two[1].offset[0] = 2;
  two[1].primary = 0;
  finish_fails(dir, two, 2, 1, "hold 6 of 12 elements");
  two[1].primary = 1;
  finish_fails(dir, two, 2, 2, "part-00001");
  two[1].global[0] = 5;
  finish_fails(dir, two, 2, 1, "another dtype or global shape");
  two[1] = a;
  assert_int_equal(checkpoint_begin(dir, 1, NULL), PLAIT_OK);
  assert_true(checkpoint_write_part(dir, 1, 0, two, 2, NULL) < 0); // the same piece twice
  two[1].offset[0] = 3;
  Error error = {0};
  assert_true(checkpoint_write_part(dir, 1, 0, two, 2, &error) < 0);
  assert_non_null(strstr(error.message, "does not lie inside its shape [4, 3]"));
  checkpoint_abandon(dir, 1);
  free(dir);
}

static void test_gathered(void **state) {
  char *path = path_in(folder, "gathered.safetensors");
  for (int kind = 0; kind < LAYOUTS; kind++) {
    Pieces *p = xcalloc(1, sizeof *p);
    Error error = {0};
    Safetensors t;
    make_pieces(p, (LayoutKind)kind, 1 + kind);
    fill_pieces(p, kind);
    if (safetensors_write_gathered(path, p->t, p->count, &error)) fail_msg("%s", error.message);
    assert_int_equal(safetensors_open(&t, path, &error), PLAIT_OK);
    assert_int_equal(t.count, TENSORS);
    assert_string_equal(safetensors_metadata(&t, "format"), "pt");
    for (int i = 0; i < TENSORS; i++) {
      const SafetensorsEntry *e = safetensors_find(&t, model[i].name);
      assert_non_null(e);
      assert_int_equal(e->dtype, model[i].dtype);
      assert_int_equal(e->rank, model[i].rank);
      assert_memory_equal(e->dims, model[i].global, sizeof(int64_t) * (size_t)e->rank);
      for (int64_t k = 0; k < safetensors_elements(e); k++)
        assert_true(dtype_load(e->data, model[i].dtype, k) == value_at(i, k, kind));
    }
    safetensors_close(&t);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < p->count; i++)
      if (!strcmp(p->t[i].name, "wte") && p->t[i].primary && p->t[i].local[0]) {
        p->t[i].primary = 0;
        break;
      }
    assert_true(safetensors_write_gathered(path, p->t, p->count, &error) < 0);
    assert_non_null(strstr(error.message, "tensor wte"));
    assert_false(file_exists(path));
    free_pieces(p);
    free(p);
  }
  free(path);
}

typedef struct Worker { const char *dir; Checkpoint *c; Pieces *p; int rank, code; } Worker;


static void *write_one(void *argument) {
  Worker *w = argument;
  CheckpointTensor *mine = xcalloc((size_t)w->p->count, sizeof *mine);
  int n = 0;
  for (int i = 0; i < w->p->count; i++)
    if (w->p->rank_of[i] == w->rank) mine[n++] = w->p->t[i];
  w->code = w->c ? checkpoint_load(w->c, mine, n, 0, NULL) : checkpoint_write_part(w->dir, 1, w->rank, mine, n, NULL);
  free(mine);
  return NULL;
}

static void on_threads(const char *dir, Checkpoint *c, Pieces *p, int ranks) {
  pthread_t threads[8];
  Worker workers[8];
  for (int r = 0; r < ranks; r++) {
    workers[r] = (Worker){dir, c, p, r, PLAIT_FAILED};
    assert_int_equal(pthread_create(&threads[r], NULL, write_one, &workers[r]), 0);
  }
  for (int r = 0; r < ranks; r++) {
    pthread_join(threads[r], NULL);
    assert_int_equal(workers[r].code, PLAIT_OK);
  }
}

static void test_threads(void **state) {
  char *dir = path_in(folder, "threads"), *path = path_in(dir, "step-1");
  Pieces *p = xcalloc(1, sizeof *p);
  Checkpoint *c;
  make_pieces(p, ROWS, 8);
  fill_pieces(p, 3);
  assert_int_equal(checkpoint_begin(dir, 1, NULL), PLAIT_OK);
  on_threads(dir, NULL, p, 8);
  assert_int_equal(checkpoint_finish(dir, 1, 8, NULL, NULL), PLAIT_OK);
  free_pieces(p);
  make_pieces(p, COLUMNS, 6);
  assert_int_equal(checkpoint_open(&c, path, NULL), PLAIT_OK);
  on_threads(dir, c, p, 6);
  check_pieces(p, 3);
  checkpoint_close(c);
  free_pieces(p);
  free(p);
  free(path);
  free(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_layout_under_every_other),
      cmocka_unit_test(test_extra_entries_and_replacing),
      cmocka_unit_test(test_names_shapes_dtypes),
      cmocka_unit_test(test_coverage),
      cmocka_unit_test(test_gathered),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
