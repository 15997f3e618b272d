// tier 1; threads
// The queue of records against a plain list of what is in it: order, contents, addresses; and that a reserved one
// allocates nothing.
#include "comm/record_queue.h"
#include "draw.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300, ROUNDS = 30000 };

typedef struct Model {
  void *record[MOST];
  size_t bytes[MOST];
  unsigned char fill[MOST];
  int first, count;
  size_t sum;
} Model;

static size_t draw(size_t n) {
  static uint64_t seed = DRAW_SEED;
  return (size_t)draw_below(&seed, n);
}

static void add(RecordQueue *q, Model *m, size_t bytes) {
  int i = (m->first + m->count++) % MOST;
  m->bytes[i] = bytes;
  m->fill[i] = (unsigned char)draw(256);
  m->record[i] = record_queue_add(q, bytes);
  m->sum += bytes;
  assert_int_equal((uintptr_t)m->record[i] % _Alignof(max_align_t), 0);
  memset(m->record[i], m->fill[i], bytes);
}

static void check_first(const RecordQueue *q, const Model *m) {
  const unsigned char *record = record_queue_first(q);
  assert_ptr_equal(record, m->count ? m->record[m->first] : NULL);
  for (size_t b = 0; m->count && b < m->bytes[m->first]; b++) assert_int_equal(record[b], m->fill[m->first]);
}

static void take(RecordQueue *q, Model *m) {
  check_first(q, m);
  m->sum -= m->bytes[m->first];
  record_queue_remove(q);
  m->first = (m->first + 1) % MOST;
  m->count--;
}

static void check_all(const RecordQueue *q, const Model *m) {
  const void *record = record_queue_first(q);
  for (int i = 0; i < m->count; i++, record = record_queue_next(q, record))
    assert_ptr_equal(record, m->record[(m->first + i) % MOST]);
  assert_null(record);
}

// Short and long runs, nearly empty and nearly full, records of 0 bytes to 3 kB.
static void test_grows(void **unused) {
  RecordQueue q = {0};
  Model m = {0};
  check_all(&q, &m);
  for (int i = 0; i < ROUNDS; i++) {
    size_t most = 1 + draw(i % 7000 < 3500 ? 4 : MOST);
    if ((size_t)m.count < most && m.count < MOST) add(&q, &m, draw(8) ? draw(100) : draw(3000));
    else take(&q, &m);
    if (i % 100 == 0) check_all(&q, &m);
  }
  while (m.count) take(&q, &m);
  check_all(&q, &m);
  record_queue_free(&q);
  assert_null(record_queue_first(&q));
}

static size_t allocated(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Whatever the lengths: up to the reserved number of records, and bytes beyond the common ones, fit. mallinfo2 sees
// nothing under a sanitizer.
static void test_reserved(void **unused) {
  enum { BYTES = 56, MORE = 5000, CASES = 6 };
  for (int k = 0; k < 3 * CASES; k++) {
    static const int longest[CASES] = {1, 8, 51, 309, 1857, MORE + 1}, records[] = {2, 3, 40};
    int most = records[k / CASES];
    RecordQueue q = {0};
    Model m = {0};
    record_queue_reserve(&q, (size_t)most, BYTES, MORE);
    size_t before = allocated();
    for (int i = 0; i < ROUNDS; i++) {
      size_t more = draw((size_t)longest[k % CASES]), used = m.sum - (size_t)m.count * BYTES;
      if (m.count < most && used + more <= MORE && draw(3)) add(&q, &m, BYTES + more);
      else if (m.count) take(&q, &m);
    }
    assert_int_equal(allocated(), before); // a queue that has grown keeps the longer ring
    check_all(&q, &m);
    record_queue_free(&q);
  }
  RecordQueue none = {0};
  size_t before = allocated();
  record_queue_reserve(&none, 0, BYTES, MORE);
  assert_int_equal(allocated(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grows), cmocka_unit_test(test_reserved)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
