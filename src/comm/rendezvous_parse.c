// Checks bytes that come over a connection of the rendezvous.
#include "comm/rendezvous_parse.h"
#include "base/fault.h"
#include <stdio.h>
#include <string.h>

bool greeting_is_ours(const Greeting *theirs, const Greeting *mine, const char *where, const char *id,
                      char reason[RENDEZVOUS_REASON]) {
  size_t size = RENDEZVOUS_REASON;
  if (memcmp(theirs->magic, mine->magic, sizeof mine->magic))
    return snprintf(reason, size, "what listens at %s is not plait", where), false;
  if (theirs->version != mine->version)
    return snprintf(reason, size, "at %s is another version of plait", where), false;
  if (theirs->ranks != mine->ranks)
    return snprintf(reason, size, "at %s is a run of %u ranks, not %u", where, theirs->ranks, mine->ranks), false;
  if (FAULT(net_runs_mix, theirs->run, mine->run) != mine->run)
    return snprintf(reason, size, "at %s is another run than \"%.60s\"", where, id), false;
  return true;
}

// The length of an empty record would say that a sentence follows.
bool answer_is_valid(const Answer *a, int ranks) {
  return a->rank >= 1 && a->rank < (uint32_t)ranks && a->bytes >= FAULT(empty_records_are_taken, 1, 0) &&
         a->bytes <= RENDEZVOUS_RECORD;
}

Told told_by_root(uint64_t length) {
  return !length ? TOLD_REASON : length <= RENDEZVOUS_RECORD ? TOLD_RECORD : TOLD_MALFORMED;
}

bool reason_is_valid(const char reason[RENDEZVOUS_REASON]) {
  if (!*reason || !memchr(reason, 0, RENDEZVOUS_REASON)) return false;
  for (const char *c = reason; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) return false;
  return true;
}
