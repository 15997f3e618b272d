// Bytes that a rank's collectives and transfers move, counted from its Program: one of them, and all of a step.
#pragma once
#include "comm/volume.h"
#include "program/program.h"

// How many ranks the group of a collective has. Along pp these are the coordinates that run its stages.
int collective_ranks(const Program *p, const Node *n);
// Bytes that a rank sends in one call, on a microbatch (-1: in BEGIN and END), as in Traffic: the average of the ranks,
// with the rows of the first one; of what an owner has, also of the groups of which one does it. Of all tensors of a
// bucket together.
double collective_bytes(const Program *p, const Node *n, int microbatch);
CommVolume collective_volume(const Program *p, const Node *n, int microbatch, int rank); // of one rank
// Bytes of the whole tensor, as machine/collective_time.h means it: of an all_reduce what each rank has, of a gather
// (to all or to one) what is there afterwards, of a scatter or reduce_scatter what was there before, of an all_to_all
// and of rows of experts what a rank holds, of a broadcast, a reduction to one rank and a shift what one rank sends.
// Padding of shards counts, since it travels.
double collective_whole_bytes(const Program *p, const Node *n, int microbatch);
// Bytes of one SEND; a RECV has as many.
double transfer_bytes(const Program *p, const Action *a);

// Over one set of axes, as comm/volume.h has it: of a CPU as ranks send it that are processes of one machine, of a GPU
// as rings of NCCL do; a transfer between stages all it sends.
typedef struct Traffic {
  uint32_t axes;
  double elements, bytes;  // that a rank sends
  double received;         // bytes
  double parameter_bytes;  // of those sent, of parameters and their gradients
} Traffic;
typedef Vec(Traffic) TrafficList;

// The average of the ranks of the Program's pipeline coordinate, as collective_bytes; and one rank of it. The caller
// frees the list with vec_free. Sets of axes in the order in which they first occur.
void program_traffic(const Program *p, TrafficList *list);
void program_traffic_of(const Program *p, int rank, TrafficList *list);
