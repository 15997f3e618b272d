// The properties of communication calls.
#include "base/comm_kind.h"

const CommTraits comm_traits[COMM_KIND_COUNT] = {
#define CALL(id, name, reduces, rooted, root_sends, root_receives, send_parts, recv_parts)                             \
  {name, reduces, rooted, root_sends, root_receives, send_parts, recv_parts,                                           \
   (recv_parts) && !(send_parts), (send_parts) && !(recv_parts)},
#include "base/calls.def"
#undef CALL
};
