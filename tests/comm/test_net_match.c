// Which message goes into which receive, against plain lists.
#include "base/error.h"
#include "comm/net_match.h"
#include "draw.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdint.h>
#include <stdlib.h>

enum { ENTRIES = 4000, TAGS = 600, SENDERS = 3 };

static unsigned draw(unsigned n) {
  static uint64_t seed = DRAW_SEED;
  return (unsigned)draw_below(&seed, n);
}

// What waits, in order of arrival; NULL: it waits no more.
typedef struct Model { MatchEntry *entry[ENTRIES]; int count; } Model;

static MatchEntry *model_take(Model *m, uint64_t tag, int sender) {
  for (int i = 0; i < m->count; i++) {
    MatchEntry *e = m->entry[i];
    if (!e || e->tag != tag || (sender >= 0 && e->sender >= 0 && e->sender != sender)) continue;
    m->entry[i] = NULL;
    return e;
  }
  return NULL;
}

static void test_against_lists(void **context) {
  Match *match = xcalloc(1, sizeof *match);
  MatchEntry *all = xcalloc(ENTRIES, sizeof *all);
  Model *receives = xcalloc(1, sizeof *receives), *messages = xcalloc(1, sizeof *messages);
  for (int i = 0; i < ENTRIES; i++) {
    MatchEntry *e = &all[i];
    *e = (MatchEntry){.tag = draw(i % 2 ? 4 : TAGS), .sender = (int)draw(SENDERS)};
    unsigned what = draw(9);
    if (what == 0 && receives->count) { // one is given up
      int k = (int)draw((unsigned)receives->count);
      if (receives->entry[k]) match_forget(receives->entry[k]);
      receives->entry[k] = NULL;
    } else if (what < 5) {
      if (draw(4) == 0) e->sender = MATCH_ANY;
      MatchEntry *expected = model_take(messages, e->tag, e->sender);
      assert_ptr_equal(match_receive(match, e), expected);
      if (!expected) receives->entry[receives->count++] = e;
    } else {
      MatchEntry *expected = model_take(receives, e->tag, e->sender);
      assert_ptr_equal(match_message(match, e->tag, e->sender), expected);
      if (!expected) match_keep(match, e), messages->entry[messages->count++] = e;
    }
  }
  for (int i = 0; i < receives->count; i++)
    if (receives->entry[i]) match_forget(receives->entry[i]), match_forget(receives->entry[i]); // the second is nothing
  for (int i = 0; i < messages->count; i++)
    if (messages->entry[i]) match_forget(messages->entry[i]);
  for (int i = 0; i < MATCH_LISTS; i++) {
    assert_null(match->receives[i].first);
    assert_null(match->messages[i].last);
  }
  free(match);
  free(all);
  free(receives);
  free(messages);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_lists)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
