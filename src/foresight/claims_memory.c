// Memory of a rank, for claims: read off the memory plans of its Programs.
#include "base/fault.h"
#include "foresight/claims_count.h"

static const double GB = 1e9;

static double states(const Program *p) {
  const MemoryPlan *m = &p->memory;
  return (double)(m->parameters + m->gradients + FAULT(claims_forget_moments, m->optimizer, 0));
}

static double parameters(const Program *p) { return (double)p->memory.parameters; }

// Of the pipeline rank that has the most.
static double most(const Job *job, double (*of)(const Program *)) {
  double bytes = 0;
  for (int c = 0; c < job_pipeline_ranks(job); c++)
    if (of(job_train(job)->program[c]) > bytes) bytes = of(job_train(job)->program[c]);
  return bytes;
}

int claim_states(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = most(run->job, states) / GB;
  return PLAIT_OK;
}

int claim_bytes_a_parameter(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = most(run->job, states) / (double)model_config_parameters(&run->config);
  return PLAIT_OK;
}

int claim_parameters(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = most(run->job, parameters) / GB;
  return PLAIT_OK;
}

int claim_activations(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = (double)job_train(run->job)->program[0]->memory.kept / GB;
  return PLAIT_OK;
}

int claim_part_of_matrix(const ClaimRun *run, double *number, Error *error) {
  const Graph *g = job_train(run->job)->graph;
  *number = 0;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (!variable_is_counted(v) || v->outputs <= 0) continue;
    double part = (double)variable_allocated(g, v, -1) / (double)shape_elements(&v->shape);
    if (part > *number) *number = part;
  }
  return *number > 0 ? PLAIT_OK : error_set(error, PLAIT_FAILED, "%s has no matrices", run->config.path);
}
