// tier 1
// Images of a rank's part of a checkpoint in memory: what is found of them when the rank is dead, and what is not.
#include "checkpoint/memory_image.h"
#include "base/fault.h"
#include "image_text.h"
#include "pieces.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const char run[] = "job.1234.0";

static int memory(void) {
  int fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_true(fd >= 0);
  assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return fd;
}

static MemoryImageLabel label_of(int64_t step) {
  return (MemoryImageLabel){
      .run = run, .step = step, .ranks = 1, .dir = folder, .keep = 2, .extra = "{\"tokens\": 0.1}"};
}

static MemoryImage *create(int fd, const Pieces *p) {
  MemoryImage *m = NULL;
  Error error = {0};
  if (memory_image_create(fd, p->t, p->count, &m, &error)) fail_msg("%s", error.message);
  return m;
}

static void copy(MemoryImage *m, const Pieces *p) {
  int count;
  const CheckpointTensor *to = memory_image_pieces(m, &count);
  assert_int_equal(count, p->count);
  for (int i = 0; i < count; i++) {
    Box box = checkpoint_box(&p->t[i]);
    int64_t stride[BOX_MAX_RANK];
    box_strides(&box, stride);
    if (to[i].data) checkpoint_tensor_get(&p->t[i], &box, to[i].data, &box, stride, to[i].dtype);
  }
}

static void fill(MemoryImage *m, Pieces *p, int64_t step) {
  MemoryImageLabel label = label_of(step);
  Error error = {0};
  fill_pieces(p, (int)step);
  memory_image_begin(m);
  copy(m, p);
  if (memory_image_complete(m, &label, &error)) fail_msg("%s", error.message);
}

// The step of the image that is found; -1: none is.
static int64_t found(int fd, const char *of) {
  MemoryImage *m;
  if (!memory_image_open(fd, of, &m)) return -1;
  int64_t step = memory_image_label(m)->step;
  memory_image_close(m);
  return step;
}

// Files that are written from an image are those that the rank would have written.
static void same_files(void **state) {
  char *dir = path_in(folder, "files"), *a = path_in(dir, "step-3.tmp/part-00000.safetensors"),
       *b = path_in(dir, "step-4.tmp/part-00000.safetensors"), *first, *second;
  Error error = {0};
  for (int kind = 0; kind < LAYOUTS; kind++) {
    Pieces *p = xcalloc(1, sizeof *p);
    int fd = memory(), count;
    size_t bytes, more;
    make_pieces(p, (LayoutKind)kind, 2);
    int all = p->count;
    p->count /= kind == ZIGZAG || kind == GRID ? 1 : 2; // a rank, or all in one
    MemoryImage *m = create(fd, p), *read;
    fill(m, p, 3);
    memory_image_close(m);
    assert_true(memory_image_open(fd, run, &read));
    assert_string_equal(memory_image_label(read)->dir, folder);
    assert_string_equal(memory_image_label(read)->extra, "{\"tokens\": 0.1}");
    assert_int_equal(memory_image_label(read)->keep, 2);
    assert_null(memory_image_label(read)->log);
    const CheckpointTensor *pieces = memory_image_pieces(read, &count);
    assert_int_equal(checkpoint_begin(dir, 3, &error), 0);
    assert_int_equal(checkpoint_write_part(dir, 3, 0, p->t, p->count, &error), 0);
    assert_int_equal(file_read(a, 1 << 30, &first, &bytes, &error), 0);
    assert_int_equal(checkpoint_begin(dir, 4, &error), 0);
    assert_int_equal(checkpoint_write_part(dir, 4, 0, pieces, count, &error), 0);
    assert_int_equal(file_read(b, 1 << 30, &second, &more, &error), 0);
    assert_int_equal(bytes, more);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
    memory_image_close(read);
    close(fd);
    p->count = all; // what was left out of the image is freed, too
    free_pieces(p);
    free(p);
  }
  free(a);
  free(b);
  free(dir);
}

// Not while it is written, neither the first time nor when it held another step; not of another run.
static void only_complete_ones(void **state) {
  Pieces *p = xcalloc(1, sizeof *p);
  int fd = memory();
  make_pieces(p, ROWS, 1);
  assert_int_equal(found(fd, run), -1); // an empty file
  assert_int_equal(found(-1, run), -1);
  MemoryImage *m = create(fd, p);
  assert_int_equal(found(fd, run), -1);
  memory_image_begin(m);
  assert_int_equal(found(fd, run), -1);
  fill(m, p, 7);
  assert_int_equal(found(fd, run), 7);
  assert_int_equal(found(fd, "job.1234.1"), -1);
  memory_image_begin(m);
  assert_int_equal(found(fd, run), -1);
  copy(m, p);
  assert_int_equal(found(fd, run), -1);
  fill(m, p, 8); // another label, of another length
  assert_int_equal(found(fd, run), 8);
  memory_image_close(m);
  assert_int_equal(found(fd, run), 8);
  free_pieces(p);
  free(p);
  close(fd);
}

// Any byte of the header that says something, and of the text.
static void damaged_ones(void **state) {
  Pieces *p = xcalloc(1, sizeof *p);
  int fd = memory(), tried = 0;
  make_pieces(p, ROWS, 1);
  MemoryImage *m = create(fd, p);
  fill(m, p, 5);
  int64_t end = lseek(fd, 0, SEEK_END), text = 4096 + memory_image_bytes(p->t, p->count);
  assert_true(end > text);
  for (int64_t at = 0; at < end; at += at < 600 ? 1 : at < text ? text - at : 97) {
    uint8_t was, other;
    assert_int_equal(pread(fd, &was, 1, at), 1);
    other = was ^ 1;
    assert_int_equal(pwrite(fd, &other, 1, at), 1);
    if (at < 450 || at >= text) assert_int_equal(found(fd, run), -1);
    else found(fd, run); // after the header
    assert_int_equal(pwrite(fd, &was, 1, at), 1);
    tried++;
  }
  assert_true(tried > 500);
  assert_int_equal(found(fd, run), 5);
  memory_image_close(m);
  free_pieces(p);
  free(p);
  close(fd);
}

// A copy of an image comes from another machine: its text is believed only where its pieces lie inside of the image.
static void texts_that_lie(void **state) {
  static const struct { const char *global, *offset, *local, *at; bool good; } cases[] = {
      {"[4]", "[0]", "[4]", "4096", true},
      {"[4]", "[0]", "[0]", "4096", true},
      {"[1024]", "[0]", "[1024]", "4096", true},   // all of the elements
      {"[1025]", "[0]", "[1025]", "4096", false},
      {"[1024]", "[0]", "[1024]", "4160", false},
      {"[4]", "[0]", "[4]", "4095", false},
      {"[4]", "[0]", "[4]", "4100", false},        // not aligned
      {"[4]", "[0]", "[4]", "0", false},
      {"[4]", "[0]", "[4]", "-64", false},
      {"[4]", "[0]", "[4]", "9223372036854775744", false},
      {"[4]", "[1]", "[4]", "4096", false},
      {"[4]", "[-1]", "[4]", "4096", false},
      {"[4, 4]", "[0]", "[4]", "4096", false},
      {"[4611686018427387904]", "[0]", "[4611686018427387904]", "4096", false}, // times 4 it is 0
      {"[2305843009213693953]", "[0]", "[2305843009213693953]", "4096", false},
      {"[4294967296, 4294967296]", "[0, 0]", "[4294967296, 4294967296]", "4096", false},
      {"[4294967296, 4294967296]", "[0, 0]", "[1, 1]", "4096", false},
  };
  CheckpointTensor t = {.name = "x", .dtype = DTYPE_F32, .rank = 1, .global = {1024}, .local = {1024}, .primary = 1};
  MemoryImageLabel label = label_of(5);
  Error error = {0};
  MemoryImage *m;
  int fd = memory();
  assert_int_equal(memory_image_create(fd, &t, 1, &m, &error), 0);
  memory_image_begin(m);
  assert_int_equal(memory_image_complete(m, &label, &error), 0);
  memory_image_close(m);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text = xformat("{\"boxes\":[{\"name\":\"x\",\"dtype\":\"F32\",\"global\":%s,\"offset\":%s,"
                         "\"local\":%s,\"at\":%s,\"spare\":false}],\"label\":{\"dir\":\"/nowhere\"}}",
                         cases[i].global, cases[i].offset, cases[i].local, cases[i].at);
    image_set_text(fd, memory_image_bytes(&t, 1), text, strlen(text));
    if ((found(fd, run) == 5) != cases[i].good) fail_msg("%s", text);
    free(text);
  }
  static const struct { const char *text; bool good; } labels[] = {
      {"{\"boxes\":[],\"label\":{\"dir\":\"/nowhere\",\"keep\":2147483647}}", true},
      {"{\"boxes\":[],\"label\":{\"dir\":\"/nowhere\",\"keep\":4294967297}}", false}, // 1 if it were cut
      {"{\"boxes\":[],\"label\":{\"dir\":7}}", false},
      {"{\"boxes\":{},\"label\":{\"dir\":\"/nowhere\"}}", false},
      {"{\"boxes\":[{\"name\":\"\"}],\"label\":{\"dir\":\"/nowhere\"}}", false},
      {"{\"boxes\":[]", false},
  };
  for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
    image_set_text(fd, memory_image_bytes(&t, 1), labels[i].text, strlen(labels[i].text));
    if ((found(fd, run) == 5) != labels[i].good) fail_msg("%s", labels[i].text);
  }
  close(fd);
}

// A child fills two images in turn and is killed at some moment: the newest complete one holds what it says, and is not
// older than the one before the last that the child has told of.
static void killed_ones(void **state) {
  for (int round = 0; round < 20; round++) {
    int fd[2] = {memory(), memory()}, told[2], status;
    int64_t last = 0, step, best = -1;
    Pieces *p = xcalloc(1, sizeof *p);
    make_pieces(p, ROWS, 1);
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (!child) {
      MemoryImage *m[2] = {create(fd[0], p), create(fd[1], p)};
      for (step = 1;; step++) {
        fill(m[step % 2], p, step);
        if (write(told[1], &step, sizeof step) != sizeof step) _exit(1);
      }
    }
    close(told[1]);
    assert_int_equal(read(told[0], &last, sizeof last), sizeof last);
    usleep((useconds_t)(1000 + 1700 * round));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    while (read(told[0], &step, sizeof step) == sizeof step) last = step;
    for (int i = 0; i < 2; i++) {
      MemoryImage *m;
      int count;
      if (!memory_image_open(fd[i], run, &m)) continue;
      step = memory_image_label(m)->step;
      best = step > best ? step : best;
      const CheckpointTensor *t = memory_image_pieces(m, &count);
      for (int k = 0; k < count; k++) {
        Box box = checkpoint_box(&t[k]);
        int which = 0;
        while (strcmp(model[which].name, t[k].name)) which++;
        for (int64_t e = 0; e < box_elements(&box); e++)
          if (dtype_load(t[k].data, t[k].dtype, e) != value_at(which, e, (int)step))
            fail_msg("round %d, step %lld: %s[%lld]", round, (long long)step, t[k].name, (long long)e);
      }
      memory_image_close(m);
    }
    assert_true(best >= last);
    close(fd[0]);
    close(fd[1]);
    close(told[0]);
    free_pieces(p);
    free(p);
  }
}

// Without a file it is memory of this process, and holds the pieces.
static void private_ones(void **state) {
  Pieces *p = xcalloc(1, sizeof *p);
  make_pieces(p, ROWS, 1);
  fill_pieces(p, 3);
  MemoryImage *m = create(-1, p);
  copy(m, p);
  fill(m, p, 4);
  int count;
  const CheckpointTensor *t = memory_image_pieces(m, &count);
  for (int i = 0; i < count; i++)
    if (t[i].data) assert_true(dtype_load(t[i].data, t[i].dtype, 0) == value_at(i, 0, 4));
  memory_image_close(m);
  free_pieces(p);
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_files),   cmocka_unit_test(only_complete_ones),
                                     cmocka_unit_test(damaged_ones), cmocka_unit_test(texts_that_lie),
                                     cmocka_unit_test(killed_ones),  cmocka_unit_test(private_ones)};
  cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
