// How State reads and writes the numbers of a Variable by its encoding (ir/encodings.def): one file an encoding.
#pragma once
#include "ir/encoding.h"
#include "runtime/state.h"

typedef struct EncodingAccess {
  // A part of a Variable or Copy (state_read, state_write): in the dtype that the host sees.
  void (*read)(const State *s, int variable, int copy, const Box *part, void *out);
  void (*write)(const State *s, int variable, int copy, const Box *part, const void *in);
  void (*before_loading)(const State *s, int variable); // state_before_loading; NULL: nothing
} EncodingAccess;
extern const EncodingAccess encoding_plain, encoding_split, encoding_codes;

// For them: the part as it is stored, to or from the host's memory (row-major). Of numbers of fewer than 8 bits each is
// a byte there.
void state_copy_stored(const State *s, int variable, int copy, const Box *part, DeviceCopy kind, void *stored);
