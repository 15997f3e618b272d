// tier 1; rooms serve
// A ticket's reader is woken by what it waits for: by each token, or by ends alone; nothing is lost in between.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "serve/ticket.h"
#include <unistd.h>

static bool is_woken(const Ticket *t) {
  uint64_t count;
  return read(t->wake, &count, sizeof count) == sizeof count;
}

static void test_wakes(void **state) {
  (void)state;
  for (int quiet = 0; quiet < 2; quiet++) {
    Ticket *t = ticket_create(2, 1);
    Mail mail = {0};
    Error error = {0};
    t->quiet = quiet;
    assert_true(t->wake >= 0 && !is_woken(t));
    ticket_push(t, 0, &(EngineEvent){.id = 5, .scored = true}); // of the prompt
    assert_int_equal(is_woken(t), !quiet);
    ticket_take(t, &mail, &error);
    assert_true(mail.events.count == 1 && mail.first == 0);
    ticket_push(t, 1, &(EngineEvent){.id = 7});
    assert_int_equal(is_woken(t), !quiet);
    ticket_push(t, 1, &(EngineEvent){.id = 8});
    assert_false(is_woken(t)); // there is mail already
    ticket_push(t, 0, &(EngineEvent){.id = -1, .end = REQUEST_STOPPED});
    assert_int_equal(is_woken(t), quiet);
    ticket_take(t, &mail, &error);
    assert_true(mail.events.count == 3 && mail.events.data[2].request == 0 && mail.first > 0);
    double first = mail.first;
    ticket_push(t, 1, &(EngineEvent){.id = -1, .end = REQUEST_STOPPED});
    assert_true(is_woken(t));
    ticket_take(t, &mail, &error);
    assert_true(mail.events.count == 1 && mail.first == first);
    ticket_end(t, TICKET_FAILED, &(Error){.code = PLAIT_FAILED, .message = "so it is"});
    assert_true(is_woken(t));
    assert_int_equal(ticket_take(t, &mail, &error), TICKET_FAILED);
    assert_string_equal(error.message, "so it is");
    mail_free(&mail);
    ticket_release(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_wakes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
