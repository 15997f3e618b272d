// Calls a Program's collective, whose operands have their addresses and rows (Bound). With a stream it only starts
// there, and `done` becomes the moment when it is done; nothing is called, and there is nothing to wait for, where no
// rank has a row.
#pragma once
#include "runtime/bind.h"

int collective_call(const Binding *binding, Bound *b, PlaitStream *stream, PlaitEvent *done);
