// The kinds of communication calls (calls.def). The comm layer runs them; ops and whoever counts what they move know
// them by these properties.
#pragma once

typedef enum CommKind {
#define CALL(id, ...) COMM_##id,
#include "base/calls.def"
#undef CALL
  COMM_KIND_COUNT
} CommKind;

typedef struct CommTraits {
  const char *name;
  int reduces, rooted, root_sends, root_receives, send_parts, recv_parts; // as in calls.def
  int gathers;  // a part of each rank becomes the whole: it receives parts and sends none
  int scatters; // the other way round
} CommTraits;
extern const CommTraits comm_traits[COMM_KIND_COUNT];
