// Numbers that lie as their dtype says.
#include "runtime/encoding.h"

static void read_plain(const State *s, int variable, int copy, const Box *part, void *out) {
  state_copy_stored(s, variable, copy, part, DEVICE_TO_HOST, out);
}

static void write_plain(const State *s, int variable, int copy, const Box *part, const void *in) {
  state_copy_stored(s, variable, copy, part, DEVICE_FROM_HOST, (void *)(uintptr_t)in);
}

const EncodingAccess encoding_plain = {read_plain, write_plain, NULL};
