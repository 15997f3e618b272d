// How many rows of experts an exchange sends to each rank, and receives from each.
//
// A kernel counts them where the masks are, into the scratch of the exchange; the host copies these few numbers and
// waits for them. Exchanges of the same rows, there and back, in forward and backward, have the same masks: only the
// first of a microbatch counts.
#pragma once
#include "runtime/bind.h"

// When an exchange of rows is bound; ranks: of its group.
int exchanged_rows_bind(Binding *binding, Bound *b, int64_t ranks, Error *error);
// Before its operands get their rows: counts these, and notes how many each mask lets through (mask_rows.h). Its
// operands and scratch have their addresses. Nothing for any other instruction.
int exchanged_rows_count(Binding *binding, const Bound *b, Error *error);
// Sets the numbers of rows, one a rank.
void exchanged_rows(const Binding *binding, const Bound *b, const double **sent, const double **received);
