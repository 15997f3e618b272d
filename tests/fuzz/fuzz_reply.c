// What a client of the store parses. The first byte of the input chooses: r is the server's greeting and replies, s the
// state of a job, which is the value of a key. An accepted state, printed and parsed again, must be the same.
#include "elastic/job_state.h"
#include "elastic/store_protocol.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

static void read_replies(const uint8_t *data, size_t size) {
  StoreGreeting mine = STORE_GREETING(1), theirs;
  if (size < sizeof theirs) return;
  memcpy(&theirs, data, sizeof theirs);
  if (store_who_answers(&mine, &theirs) != STORE_OURS) return;
  data += sizeof theirs, size -= sizeof theirs;
  for (StoreReply r; size >= sizeof r;) {
    memcpy(&r, data, sizeof r);
    data += sizeof r, size -= sizeof r;
    if (!store_reply_is_valid(&r)) return;
    CHECK(r.value_bytes <= STORE_VALUE && (r.version || !r.value_bytes));
    if (r.value_bytes > size) return;
    data += r.value_bytes, size -= r.value_bytes;
  }
}

static void read_state(const uint8_t *data, size_t size) {
  JobState *s = job_state_parse((const char *)data, size);
  if (!s) return;
  CHECK(s->count >= 0 && s->count <= JOB_MACHINES && job_members(s) <= s->count && job_ranks(s) >= 0);
  CHECK(s->phase <= JOB_DONE && s->ending <= ENDING_FAILED && s->round >= -1 && s->restarts >= 0);
  for (int i = 0; i < s->count; i++) {
    const Machine *m = &s->machine[i];
    CHECK(m->ranks >= 0 && m->first >= 0 && m->port >= 0 && m->port <= 65535 && job_machine(s, m->id));
    if (m->ranks) CHECK(job_next(s, m));
  }
  char *text = job_state_print(s);
  JobState *again = job_state_parse(text, strlen(text));
  CHECK(again);
  char *same = job_state_print(again);
  CHECK(!strcmp(text, same));
  free(same), free(again), free(text), free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (fuzz_byte(&data, &size) == 'r') read_replies(data, size);
  else read_state(data, size);
  return 0;
}
