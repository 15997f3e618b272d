// The bits of a message's tag on the net wire. UCX's: check bits, which are 0; the context; the rank that sends; the
// tag of the call; then the receiver's key is added (exclusive or). A link's: the context and the tag of the call.
#pragma once

enum { CHECK_BITS = 8, CONTEXT_BITS = 28, RANK_BITS = 14, TAG_BITS = 14 };
