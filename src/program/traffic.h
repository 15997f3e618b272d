// What a rank's collectives and transfers move, counted from its Program: one of them, and all of a step.
#pragma once
#include "program/program.h"

// How many ranks the group of a collective has. Along pp these are the coordinates that run its stages.
int collective_ranks(const Program *p, const Node *n);
// Bytes that one rank sends in one call, on a microbatch (-1: in BEGIN and END), as in Traffic. Of all tensors of a
// bucket together. Where one rank sends or receives for all, the mean of the ranks; of what an owner has, also of the
// groups of which one does it.
double collective_bytes(const Program *p, const Node *n, int microbatch);
// Bytes of the whole tensor, as plan/collective_time.h means it: of an all_reduce what each rank has, of a gather (to
// all or to one) what is there afterwards, of a scatter or reduce_scatter what was there before, of an all_to_all and
// of rows of experts what a rank holds, of a broadcast, a reduction to one rank and a shift what one rank sends.
// Padding of shards counts, since it travels.
double collective_whole_bytes(const Program *p, const Node *n, int microbatch);
// Bytes of one SEND; a RECV has as many.
double transfer_bytes(const Program *p, const Action *a);

// Over one set of axes. Counted as ring algorithms send it (and receive as much): a gather or scatter of n elements
// over N ranks moves n (N − 1)/N, an all-reduce twice that; a transfer between stages all it sends.
typedef struct Traffic {
  uint32_t axes;
  double elements, bytes;
  double parameter_bytes; // of these, of parameters and their gradients
} Traffic;
typedef Vec(Traffic) TrafficList;

// The caller frees the list with vec_free. Sets of axes in the order in which they first occur.
void program_traffic(const Program *p, TrafficList *list);
