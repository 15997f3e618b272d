// Which pattern a collective of processes takes.
#include "comm/process.h"

// Ranks of each machine, where each has as many and they follow on each other in the communicator's order; 0: not so,
// or there is one machine.
int process_machine_group(const ProcessWorld *w, const int *ranks, int n) {
  int group = 1;
  if (!w->machines) return 0;
  while (group < n && w->machines[ranks[group]] == w->machines[ranks[0]]) group++;
  if (group == n || n % group) return 0;
  for (int first = 0; first < n; first += group)
    for (int i = 0; i < n; i++)
      if ((w->machines[ranks[i]] == w->machines[ranks[first]]) != (i / group == first / group)) return 0;
  return group;
}

Patterned process_patterned(const ProcessComm *c) {
  return (Patterned){c->base.size, c->group, ((const ProcessWorld *)c->base.world)->chain};
}

int process_pattern(const PlaitComm *comm, CommKind kind, PlaitDtype dtype, size_t bytes) {
  Patterned ranks = process_patterned((const ProcessComm *)comm);
  return kind == COMM_ALL_GATHER ? gather_group(ranks, bytes) : chain_group(ranks, kind, dtype, bytes);
}

int process_ranks_of_machine(const PlaitComm *comm) { return ((const ProcessComm *)comm)->group; }
