// Chooses what a chain of blocks recomputes within a memory budget: ninja bench_chain, then
//   bench_chain FILE [MEMORY …]
// The file's format is chain_read's (src/machine/chain.h): memory, slots, block, option, output. Prints for each budget
// the choice, its seconds and bytes, and the bound: the seconds of no list are below those of each block's fastest
// option.
#include "base/file.h"
#include "base/units.h"
#include "machine/chain.h"
#include <stdio.h>
#include <stdlib.h>

enum { UNITS = 2000 };

static void print_list(const ChainSolver *solver, const Chain *chain, int64_t memory) {
  ChainList list;
  double bound = chain_least_seconds(chain);
  if (!chain_solve(solver, memory, &list)) {
    printf("memory %lld: no list fits\n", (long long)memory);
    return;
  }
  char *text = chain_list_text(chain, &list);
  printf("memory %lld\n  choice  %s\n  seconds %.9g\n  peak    %lld\n  bound   %.9g (%.4f of it)\n", (long long)memory,
         text, list.seconds, (long long)list.bytes, bound, bound > 0 ? list.seconds / bound : 1);
  free(text);
  chain_list_free(&list);
}

int main(int argc, char **argv) {
  Chain chain;
  Error error = {0};
  char *text = NULL;
  size_t size;
  int64_t memory;
  if (argc < 2) return fprintf(stderr, "usage: bench_chain FILE [MEMORY …]\n"), 2;
  int code = file_read(argv[1], 1 << 24, &text, &size, &error);
  if (!code) code = chain_read(argv[1], text, &chain, &memory, &error);
  free(text);
  if (code) return fprintf(stderr, "bench_chain: %s\n", error.message), 2;
  int64_t most = memory > 0 ? memory : chain_most_bytes(&chain);
  for (int i = 2; i < argc; i++)
    if (atoll(argv[i]) > most) most = atoll(argv[i]);
  ChainSolver *solver = chain_solver_create(&chain, most, UNITS);
  printf("%d blocks; the least memory with which a list is found: %lld bytes\n", chain.blocks,
         (long long)chain_least_bytes(solver));
  if (argc == 2) print_list(solver, &chain, most);
  for (int i = 2; i < argc; i++) print_list(solver, &chain, atoll(argv[i]));
  chain_solver_free(solver);
  free(chain.block);
  return 0;
}
