// One run of the simulator: what each rank has under way, and the clock that the schedule's replay asks for times
// (schedule_replay_by), which knows streams, collectives in flight and messages.
#pragma once
#include "machine/cores.h"
#include "machine/critical.h"
#include "machine/meeting.h"
#include "machine/rank_costs.h"
#include "machine/simulate.h"
#include "machine/transfers.h"

// A collective in flight, of an instruction: issued on a stream, where those before it come first.
typedef struct SimulatedFlight {
  const Cost *cost;        // NULL: none
  const Node *node;
  int number, resolved;    // number: as Meeting's
  int flies;               // it has begun
  int transfer;            // as Meeting's
  double issued, ready;    // ready: when those before it are done; INFINITY: not known yet
  double start, end;       // once it is resolved
  int last;                // rank that came last
} SimulatedFlight;

// A communication stream of a rank, as the executor has one for each axis.
typedef struct SimulatedStream {
  Vec(SimulatedFlight *) flight; // in the order of issue; those before `next` are resolved
  int next;
  double free, busy;    // until its last collective; until that beside which kernels are slower: of those resolved
  int waits_next;       // of those that wait for the same meeting: the next one, as Meeting.waiting
} SimulatedStream;

// Messages to one coordinate in one direction take place one after the other. Where links are shared, the end of one is
// known only when time has passed.
typedef struct Sent { const Action *action; double posted, end; int transfer; } Sent; // transfer: as Meeting's
typedef struct Outgoing {
  double free;     // until the last message that has arrived
  Vec(Sent) sent;  // those after `next` wait for the link
  int next;
} Outgoing;

// A kernel under way beside a flight of which nobody knows yet when it lands: what was left of it at `since`.
typedef struct UnderWay { int is, waits; double since, left, beside, end; } UnderWay;

typedef struct SimulatedRank {
  const Program *program;
  int rank, coordinate;    // of the mesh (-1: all of the coordinate); on the pipeline
  Costs *costs;
  const Action *action;    // under way, at instruction `at`
  int at, due;             // due: next instruction whose collectives have been waited for
  double host;             // when the host has launched all kernels so far
  SimulatedStream stream[MAX_AXES]; // by axis; see EACH_STREAM
  SimulatedFlight **flight;         // (bodies) of each instruction; END's are of `instances` steps
  Outgoing *out;           // (coordinates, 2) to each other coordinate, by direction
  Vec(int) sending;        // those of `out` with messages that are not there yet
  int alone;               // the collective that it waits for by itself, as Meeting.transfer
  UnderWay kernel;
  MessagesOnLinks *messages; // (coordinates) to another one; sharing 0: not looked for yet
  int *first;              // (groups of the Costs) with all ranks: 1 + the first rank of its own; 0: not looked for yet
  RankTime time;
} SimulatedRank;
#define EACH_STREAM(i, r) (int i = 0; i < (r)->program->mesh.naxis; i++)

typedef struct Simulator {
  const SimulateOptions *options;
  int coordinates, instances;
  int ranks, stride;       // simulated: one a coordinate, or all of the mesh; between neighbouring coordinates
  SimulatedRank *rank;
  Meetings meetings;
  Vec(int) ready;          // streams that a meeting no longer holds: rank · MAX_AXES + stream
  Critical *critical;      // NULL: not looked for
  Transfers *transfers;    // on its ranks' links
  int shared;              // they share these, so that they end when time has passed (clock_pass); 0: when it is known
                           // when they begin
  Cores *cores;            // where all ranks are on one machine whose kernels were measured; else NULL
} Simulator;

// Ranks of programs[coordinate of the pipeline], at the beginning of `instances` steps. Arrays are the arena's, what
// grows is freed by simulator_free. `critical` and `shared` are the caller's to set.
void simulator_make(Simulator *s, Program *const *programs, const RankCosts *costs, const SimulateOptions *options,
                    int instances, Arena *arena);
void simulator_free(Simulator *s);
ScheduleClock simulator_clock(Simulator *s);
// Rank `c`, whose last action ended at `end`, waits for the others until `total`. Returns what it did.
RankTime simulator_rank_ends(Simulator *s, int c, double end, double total);
