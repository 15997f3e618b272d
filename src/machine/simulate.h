// Simulates a training step: the second reader of Programs. It walks along the same actions and the same instructions
// as the executor, in the same order and with the same waits, and asks a cluster's facts how long each one takes.
#pragma once
#include "machine/rank_costs.h"
#include "program/calls.h"

// The parts of a pipeline coordinate's time. They add up to the step.
typedef enum TimePart {
#define TIME_PART(id, name, meaning) TIME_##id,
#include "machine/time_parts.def"
#undef TIME_PART
  TIME_PARTS
} TimePart;
extern const char *const time_part_names[TIME_PARTS], *const time_part_meanings[TIME_PARTS];

// Collectives, and messages between stages (along pp), over one set of axes that one level of the cluster bounds.
typedef struct LinkTime {
  uint32_t axes;
  int level, messages;    // messages: between stages, else collectives
  double exposed, all;    // seconds for which the device waits for them; that they take, overlapped or not
  double bytes, calls;    // that a rank sends; how many
} LinkTime;

typedef struct RankTime {
  double part[TIME_PARTS]; // seconds
  Vec(LinkTime) link;
  double flops;
  double met;              // seconds in which what it sends was on a link together (transfers_met)
} RankTime;

// An instruction on the critical path, in all layers and microbatches: what the step would lose without it, at most.
typedef struct CriticalItem { const char *name; uint32_t axes; double seconds; int calls; } CriticalItem;

typedef struct Simulation {
  double step;             // seconds
  int all_ranks;           // as asked for
  int shared;              // transfers that met have shared their links; 0: they had them alone, if any met
  int ranks, busiest;      // simulated: pipeline ranks, or all of the mesh; the one that waits least
  RankTime *rank;          // (ranks)
  Vec(CriticalItem) critical; // the longest first
  ScheduleSpans spans;     // what ran when, of one step; of a stream of several
  const char *guessed;     // an op whose time is another's, since nobody measured it; NULL: none
  Arena arena;
} Simulation;

// Called for each span of an instruction, for timelines: seconds since the step began. node: NULL: a message between
// stages, of action->tensor. name: of the node or the tensor; the graph's.
typedef void SimulationSee(void *context, int rank, const char *name, const Node *node, const Action *action,
                           double begin, double end, int in_flight);

// Called for each call that a rank issued, in its order.
typedef void SimulationIssue(void *context, int rank, const Call *call);

typedef struct SimulateOptions {
  const Cluster *cluster;
  int all_ranks;           // simulate each rank of the mesh
  int critical;            // how many CriticalItems; 0: they are not looked for
  SimulationSee *see;      // NULL: nobody looks
  SimulationIssue *issue;  // NULL: nobody asks
  void *context;
} SimulateOptions;

// `programs` (pipeline ranks): those of one job. Ranks of a pipeline coordinate have like Programs. Unless all_ranks,
// they are simulated once, as if all of them had the links of the one whose links are the slowest; then what is called
// a rank here is a coordinate. With all_ranks each rank of the mesh has its own links, and waits in a collective for
// the ranks of its group. PLAIT_BAD_INPUT as costs_create; PLAIT_INFEASIBLE where the replay refuses the schedule.
int simulate(Program *const *programs, const SimulateOptions *options, Simulation **out, Error *error);
// Only walks along `steps` steps, for the observers of `options`. With a schedule that never drains, the pipeline is
// empty before and after them. Errors as simulate.
int simulate_steps(Program *const *programs, const SimulateOptions *options, int steps, Error *error);
void simulation_free(Simulation *simulation); // NULL is fine
