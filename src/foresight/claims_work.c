// Which rank computes what, for claims.
#include "base/fault.h"
#include "foresight/claims_count.h"
#include <stdlib.h>

// Layers of which a Program runs a node of a layer's forward pass that has FLOPs.
static int layers_of(const Program *p) {
  const Graph *g = p->graph;
  char *has = xcalloc((size_t)g->layers + 1, 1);
  int layers = 0;
  for EACH_PROGRAM_STAGE(s, p) {
    const Body *b = &p->micro[s][PHASE_FORWARD];
    for (int i = 0; i < b->count; i++) {
      const Node *n = &g->node.data[b->instruction[i].node];
      if (n->layer < 0 || n->layer >= g->layers || !op_def(n->op)->expensive || has[n->layer]) continue;
      has[n->layer] = 1;
      layers++;
    }
  }
  free(has);
  return layers;
}

int claim_layers_computed(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = 0;
  for (int c = 0; c < job_pipeline_ranks(run->job); c++) {
    int layers = layers_of(job_train(run->job)->program[c]);
    if (layers > *number) *number = layers;
  }
  return PLAIT_OK;
}

int claim_flops(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = 0;
  for (int c = 0; c < job_pipeline_ranks(run->job); c++) {
    double flops = program_flops(job_train(run->job)->program[c]);
    if (flops > *number) *number = flops;
  }
  return PLAIT_OK;
}

int claim_token_weight(const ClaimRun *run, double *number, Error *error) {
  const Shares *s = &job_train(run->job)->shares;
  int64_t fewest = 0;
  for (int r = 0; r < s->ranks; r++) {
    int64_t rows = 0;
    for (int m = 0; m < s->microbatches; m++) rows += shares_rows(s, m, r, 1);
    if (rows && (!fewest || rows < fewest)) fewest = rows;
  }
  if (!fewest) return error_set(error, PLAIT_FAILED, "\"%s\" has no sequences", run->words);
  double mean = (double)s->global / s->ranks;
  *number = FAULT(claims_count_even_shares, mean / (double)fewest, 1);
  return PLAIT_OK;
}
