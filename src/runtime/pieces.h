// The buffers of a collective, from the placements before and after it.
#pragma once
#include "runtime/bind.h"

// Sets the pieces of a bound collective and whether it gathers or scatters the batch, and makes room for its buffers.
void pieces_bind(Binding *binding, Bound *b);
