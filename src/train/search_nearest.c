// Where no plan of a search fits.
#include "train/search_nearest.h"
#include "base/units.h"

void nearest_read(const Job *job, Nearest *n) {
  const MemoryPlan *most = NULL;
  for (int c = 0; c < job_pipeline_ranks(job); c++)
    if (!most || job->train.program[c]->memory.total > most->total) most = &job->train.program[c]->memory;
  const struct { const char *name; int64_t bytes; } parts[] = {
      {"parameters", most->parameters},   {"gradients", most->gradients}, {"optimizer state", most->optimizer},
      {"activations", most->activations}, {"workspace", most->workspace}, {"communication", most->communication}};
  *n = (Nearest){.bytes = (double)most->total};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if ((double)parts[i].bytes > n->largest_bytes) {
      n->largest_bytes = (double)parts[i].bytes;
      snprintf(n->largest, sizeof n->largest, "%s", parts[i].name);
    }
}

int nearest_say(const Nearest *n, const NothingFits *where, Error *error) {
  char ranks[160];
  if (n->ranks) snprintf(ranks, sizeof ranks, "%d ranks of this cluster would do", n->ranks);
  else snprintf(ranks, sizeof ranks, "no number of ranks of this cluster would do with %s", where->given);
  return error_set(error, PLAIT_INFEASIBLE,
                   "%s on %d ranks: the nearest plan (%s) takes %s of %s, %s too much, most of it %s (%s); %s",
                   where->looked_at_all ? "nothing fits" : "nothing that was looked at fits", where->ranks, where->plan,
                   units_bytes(n->bytes).s, units_bytes(where->room).s, units_bytes(n->bytes - where->room).s,
                   n->largest, units_bytes(n->largest_bytes).s, ranks);
}
