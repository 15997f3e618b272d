// The costs of Programs on the ranks that are simulated.
#pragma once
#include "machine/costs.h"

typedef struct RankCosts {
  int ranks, stride; // simulated: one a pipeline coordinate, or all of the mesh; between neighbouring coordinates
  Costs **of_rank;   // (ranks) ranks with the same Program, links and device share theirs
  Vec(Costs *) made;
} RankCosts;

// `programs` (pipeline ranks): those of one job. Errors as costs_create.
int rank_costs_create(Program *const *programs, const Cluster *cluster, int all_ranks, RankCosts *out, Error *error);
void rank_costs_free(RankCosts *costs);
