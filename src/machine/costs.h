// The costs of the instructions of a Program on a cluster: seconds of each kernel and collective, counted once for all
// calls that are alike.
#pragma once
#include "machine/cores.h"
#include "machine/kernel_time.h"
#include "machine/machine.h"
#include "program/program.h"
#include "program/rows.h"

// A kernel, or a collective (`ranks` above 0). bytes: of memory that a kernel moves; that one rank sends in a
// collective.
typedef struct Cost {
  double whole;    // bytes of the whole tensor of a collective (program/traffic.h)
  double seconds;  // a kernel's, with nothing beside it
  double latency;  // of `seconds` of a collective, those that move no bytes
  double beside;   // a kernel's, while a collective is in flight
  CoreSeconds core; // a measured kernel's, by what else computes on the machine
  double launches; // of kernels by the host
  double flops, bytes;
  int ranks;
  int left;        // this rank passes it over: other ranks own what it works on, or Copies are fresh (Node.refreshes)
  int group;       // index into Costs.group
  uint32_t axes;   // of the collective; along pp: of `crossing` coordinates
  int crossing;    // pipeline coordinates that take part; 0: it stays within one
  int level;       // of the cluster that bounds it
  CollectiveAlgorithm algorithm;
  int due, next_due; // of collectives in flight: the first that is waited for before this instruction (1 + its index;
                     // 0: none), and the next one that is waited for where this one is
} Cost;

typedef struct CostGroup { uint32_t axes; StageSet coordinates; GroupOnLinks links; } CostGroup;

// Of every body of a Program, by the kinds of microbatches (program/rows.h); BEGIN and END have one kind.
typedef struct Costs {
  const Program *program;
  int rank;                             // of the mesh; -1: all of the coordinate
  Vec(const DeviceFacts *) device;      // the different ones of these ranks
  double host;                          // seconds that the slowest host takes to launch a kernel
  RowsKinds kinds;
  int *kind;                            // (microbatches) index into kinds
  Cost *begin, *end;                    // (instructions, and one after the last)
  Cost *(*micro)[PHASE_COUNT];          // [stage · kinds + kind][phase] (the same)
  Vec(CostGroup) group;                 // of collectives so far
  const char *guessed;                  // an op that was not measured, where others were; NULL: none
  Arena arena;
} Costs;

// Of one rank, or of all ranks of the Program's coordinate as if they were one (-1), which has the links of the group
// that reaches farthest, and of every kernel the time of the slowest of their devices.
// PLAIT_BAD_INPUT: the cluster has no rate for a dtype that the Program computes in, or fewer devices than the mesh
// ranks.
int costs_create(const Program *program, const Cluster *cluster, int rank, Costs **out, Error *error);
void costs_free(Costs *costs); // NULL is fine
// Those of an action's body, by instruction; NULL: the action runs none.
const Cost *costs_body(const Costs *costs, const Action *action, const Body **body);
