// tier 1; threads
// Masks that a thread computes before they are wanted: which thread, which result, and that nobody calls the rules of a
// request that has gone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "infer/masks.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS = 5 };

typedef struct Held {
  RequestRules rules;
  pthread_t by;
  _Atomic int begun, done;
  int calls;
  uint8_t allowed[4];
  _Atomic int *gate; // computing waits for it; NULL: it does not
} Held;

static const uint8_t *hold(void *held) {
  Held *h = held;
  atomic_store(&h->begun, 1);
  h->by = pthread_self();
  while (h->gate && !atomic_load(h->gate)) usleep(100);
  h->allowed[0] = (uint8_t)++h->calls;
  atomic_store(&h->done, 1);
  return h->allowed;
}

static Held held(_Atomic int *gate) { return (Held){.rules = {NULL, hold, NULL}, .gate = gate}; }

static void begin(Masks *m, Held *h) {
  h->rules.context = h;
  masks_begin(m, &h->rules);
}

static bool by_this_thread(const Held *h) { return pthread_equal(h->by, pthread_self()); }

static void a_thread_computes_them(void **state) {
  Masks *m = masks_create();
  Held h = held(NULL);
  for (int call = 1; call <= 20; call++) { // each anew
    begin(m, &h);
    while (call % 2 && !atomic_load(&h.done)) usleep(100);
    assert_int_equal(masks_take(m, &h.rules)[0], call);
    if (call % 2) assert_false(by_this_thread(&h));
    atomic_store(&h.done, 0);
  }
  assert_int_equal(masks_take(m, &h.rules)[0], 21); // nobody was asked to
  assert_true(by_this_thread(&h));
  masks_destroy(m);
}

// While the thread is at the first of them, the others are not waited for.
static void what_nobody_has_begun_is_computed_at_once(void **state) {
  Masks *m = masks_create();
  _Atomic int gate = 0;
  Held h[REQUESTS];
  for (int i = 0; i < REQUESTS; i++) {
    h[i] = held(i ? NULL : &gate);
    begin(m, &h[i]);
  }
  while (!atomic_load(&h[0].begun)) usleep(100);
  for (int i = 1; i < REQUESTS; i++) {
    assert_int_equal(masks_take(m, &h[i].rules)[0], 1);
    assert_true(by_this_thread(&h[i]));
  }
  atomic_store(&gate, 1);
  assert_int_equal(masks_take(m, &h[0].rules)[0], 1);
  assert_false(by_this_thread(&h[0]));
  for (int i = 0; i < REQUESTS; i++) assert_int_equal(h[i].calls, 1);
  masks_destroy(m);
}

static void *open_later(void *gate) {
  usleep(20000);
  atomic_store((_Atomic int *)gate, 1);
  return NULL;
}

static void dropped_masks_are_waited_for(void **state) {
  Masks *m = masks_create();
  _Atomic int gate = 0;
  pthread_t opener;
  Held first = held(&gate), second = held(NULL), third = held(NULL);
  begin(m, &first);
  begin(m, &second);
  begin(m, &third);
  while (!atomic_load(&first.begun)) usleep(100);
  masks_drop(m, &second.rules);
  assert_int_equal(pthread_create(&opener, NULL, open_later, &gate), 0);
  masks_drop(m, &first.rules);
  assert_int_equal(atomic_load(&first.done), 1);
  memset(&first, 0xff, sizeof first); // nobody looks at it any more
  masks_drop(m, NULL);
  memset(&third, 0xff, sizeof third);
  pthread_join(opener, NULL);
  masks_destroy(m);
  assert_int_equal(second.calls, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_computes_them),
                                     cmocka_unit_test(what_nobody_has_begun_is_computed_at_once),
                                     cmocka_unit_test(dropped_masks_are_waited_for)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
