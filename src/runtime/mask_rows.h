// How many rows the masks of compact tensors let through: counted on the host when a mask has been written, and asked
// for by the operands of its compact tensors.
//
// Where the host reads the device's memory they are counted at once. Else the mask is copied to the host, in the queue
// of the kernels, and the copy is waited for when the number is asked for: kernels that do not need it are put into the
// queue meanwhile. A device whose kernels count rows themselves (Device.bounds_rows) gets operands of the most rows
// that a mask may let through, and nobody waits for it. Those of a mask that a rank has only a part of the experts of
// are counted all the same: there the most is far more than there are. Where rows are exchanged, the first exchange
// counts those that it sends and those that it receives (exchanged_rows.h): there are at most as many rows to send
// until then, and nobody asks for the others.
#pragma once
#include "runtime/bind.h"

// Gives masks their numbers, and takes memory for what follows.
void mask_rows_bind(Binding *binding);
// The masks that an instruction has just written, for the microbatch under way.
int mask_rows_count(Binding *binding, const Bound *b, Error *error);
// Of a mask, by its number, in the microbatch under way: whether its rows have been counted since it was written; and
// how many there are.
int mask_rows_known(const Binding *binding, int mask);
void mask_rows_note(Binding *binding, int mask, int64_t rows);
// Of a mask, by its number, in a microbatch of the step under way.
int mask_rows(Binding *binding, int mask, int microbatch, int64_t *rows, Error *error);
