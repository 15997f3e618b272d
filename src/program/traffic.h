// What a rank's collectives and transfers move in a step, counted from its Program.
#pragma once
#include "program/program.h"

// Over one set of axes. Counted as ring algorithms send it (and receive as much): a gather or scatter of n elements
// over N ranks moves n (N − 1)/N, an all-reduce twice that; a transfer between stages all it sends.
typedef struct Traffic {
  uint32_t axes;
  double elements, bytes;
  double parameter_bytes; // of these, of parameters and their gradients
} Traffic;
typedef Vec(Traffic) TrafficList;

// What one collective moves of a microbatch (-1: in BEGIN and END), and one message; bytes.
double program_node_bytes(const Program *p, const Node *node, int microbatch);
double program_message_bytes(const Program *p, int tensor, int microbatch);

// The caller frees the list with vec_free. Sets of axes in the order in which they first occur.
void program_traffic(const Program *p, TrafficList *list);
