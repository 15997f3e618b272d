// Which pattern a collective of processes takes.
#include "comm/process.h"
#include "comm/reduce.h"

// From so many bytes on, measured (docs/performance.md): shorter ones wait for the hops of a chain longer than for
// bytes.
enum { GROUP_BYTES = 1 << 20 };

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

// Bytes that leave a machine, for each byte of a rank: directly, each of its ranks sends every rank elsewhere an n-th,
// and an n-th of the results. Along the chain the sums go one way, the results back; where there are two machines the
// first sends sums and the second results. Links carry both ways at once.
// Of reduce_scatter the sums go one way, too, and the last machine gives the results; no others are sent.
static int chain_saves(CommKind kind, int n, int group, double wide) {
  int machines = n / group;
  if (kind == COMM_REDUCE_SCATTER) return wide < (double)group * (n - group) / n;
  double direct = 2.0 * group * (n - group) / n, chain = machines == 2 ? wide : 1 + wide;
  return chain < direct;
}

int process_chain_group(const ProcessComm *c, CommKind kind, PlaitDtype dtype, size_t bytes) {
  int chosen = ((const ProcessWorld *)c->base.world)->chain, n = c->base.size;
  if (kind == COMM_REDUCE || !bytes) return 0;
  if (chosen > 0 && chosen < n && n % chosen == 0) return chosen;
  if (chosen || c->group < 2 || bytes < GROUP_BYTES) return 0;
  double wide = (double)reduce_wide_size(dtype) / (double)comm_dtype_size(dtype);
  return chain_saves(kind, n, c->group, wide) ? c->group : 0;
}

int process_gather_group(const ProcessComm *c, size_t bytes) {
  int chosen = ((const ProcessWorld *)c->base.world)->chain, n = c->base.size;
  if (chosen > 0 && chosen < n && n % chosen == 0 && bytes) return chosen;
  return chosen || bytes < GROUP_BYTES || c->group < 2 ? 0 : c->group;
}

int process_pattern(const PlaitComm *comm, CommKind kind, PlaitDtype dtype, size_t bytes) {
  const ProcessComm *c = (const ProcessComm *)comm;
  return kind == COMM_ALL_GATHER ? process_gather_group(c, bytes) : process_chain_group(c, kind, dtype, bytes);
}

int process_ranks_of_machine(const PlaitComm *comm) { return ((const ProcessComm *)comm)->group; }
