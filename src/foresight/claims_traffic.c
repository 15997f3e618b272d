// Bytes that a rank sends, for claims: counted from its Programs.
#include "base/fault.h"
#include "program/traffic.h"
#include "foresight/claims_count.h"

static const double GB = 1e9, LINK = 10e9 / 8; // bytes; bytes/s of 10 Gb/s

typedef struct Sent { double bytes, parameter_bytes; } Sent;

// Of the pipeline rank that sends the most.
static Sent sent(const Job *job) {
  Sent most = {0};
  for (int c = 0; c < job_pipeline_ranks(job); c++) {
    TrafficList list = {0};
    Sent rank = {0};
    program_traffic(job_train(job)->program[c], &list);
    for (int i = 0; i < list.count; i++) {
      rank.bytes += list.data[i].bytes;
      rank.parameter_bytes += FAULT(claims_count_elements, list.data[i].parameter_bytes, list.data[i].elements);
    }
    if (rank.bytes > most.bytes) most = rank;
    vec_free(&list);
  }
  return most;
}

int claim_sent(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = sent(run->job).parameter_bytes / GB;
  return PLAIT_OK;
}

int claim_sent_seconds(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = sent(run->job).parameter_bytes / LINK;
  return PLAIT_OK;
}

int claim_moved(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = sent(run->job).bytes / GB;
  return PLAIT_OK;
}

// Runs: ZeRO 0, ZeRO 1, and ZeRO 2 with one microbatch and with two, which has one reduce_scatter more.
int claim_zero_1_both_ways(const ClaimRun *const *run, double *numbers, Error *error) {
  (void)error;
  double all_reduce = sent(run[0]->job).parameter_bytes, one = sent(run[2]->job).parameter_bytes,
         reduce_scatter = sent(run[3]->job).parameter_bytes - one, all_gather = one - reduce_scatter;
  double whole = (double)model_config_parameters(&run[0]->config) * (double)dtype_size(DTYPE_BF16);
  numbers[0] = (all_reduce + all_gather) / whole;
  numbers[1] = sent(run[1]->job).parameter_bytes / whole;
  return PLAIT_OK;
}

int claim_first_over_others(const ClaimRun *const *run, double *numbers, Error *error) {
  (void)error;
  for (int i = 0; i < 2; i++) numbers[i] = sent(run[0]->job).bytes / sent(run[i + 1]->job).bytes;
  return PLAIT_OK;
}

// ---- which collectives ----------------------------------------------------------------------------------------------

// Collectives to look for: sums over a set of axes (all_reduce, reduce_scatter), of gradients of weights or of other
// tensors.
typedef struct Wanted { CommKind kind; uint32_t axes; int weights, micro_backward; } Wanted;
typedef struct Found { double calls, elements; } Found;

static int is_wanted(const Program *p, const Node *n, int k, const Wanted *wanted) {
  const Tensor *t = graph_tensor(p->graph, n->input[k]);
  if (!node_calls(n, wanted->kind) || !(node_attr(n, CommAttr)->axes & wanted->axes)) return 0;
  if (wanted->micro_backward && (n->region != REGION_MICRO || n->phase != PHASE_BACKWARD)) return 0;
  return wanted->weights ? t->role == ROLE_WEIGHT_GRADIENT : t->role == ROLE_RESIDUAL || t->role == ROLE_INTERIOR;
}

static void look_in(const Program *p, const Body *b, const Wanted *wanted, Found *found) {
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    for (int k = 0; k < n->noutput; k++) {
      if (!is_wanted(p, n, k, wanted)) continue;
      found->calls++;
      found->elements += (double)tensor_local_elements(p->graph, graph_tensor(p->graph, n->input[k]));
    }
  }
}

static Found look(const Job *job, CommKind kind, AxisId axis, int weights, int micro_backward) {
  const Mesh *mesh = &job->options.parallel.mesh;
  Wanted wanted = {kind, 1u << mesh_axis(mesh, axis), weights, micro_backward};
  Found found = {0};
  for (int c = 0; c < job_pipeline_ranks(job); c++) {
    const Program *p = job_train(job)->program[c];
    look_in(p, &p->begin, &wanted, &found);
    for EACH_PROGRAM_STAGE(s, p)
      for (int phase = 0; phase < PHASE_COUNT; phase++) look_in(p, &p->micro[s][phase], &wanted, &found);
    look_in(p, &p->end, &wanted, &found);
  }
  return found;
}

int claim_all_reduced_gradients(const ClaimRun *run, double *number, Error *error) {
  double all = look(run->job, COMM_ALL_REDUCE, AXIS_DP, 1, 0).elements,
         scattered = look(run->job, COMM_REDUCE_SCATTER, AXIS_DP, 1, 0).elements;
  if (all + scattered <= 0) return error_set(error, PLAIT_FAILED, "\"%s\" reduces no gradients", run->words);
  *number = 100 * all / (all + scattered);
  return PLAIT_OK;
}

static double activation_gradients(const ClaimRun *run, AxisId axis) {
  return look(run->job, COMM_ALL_REDUCE, axis, 0, 1).calls + look(run->job, COMM_REDUCE_SCATTER, axis, 0, 1).calls;
}

int claim_reduced_by_data_ranks(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = activation_gradients(run, AXIS_DP);
  return PLAIT_OK;
}

int claim_reduced_by_tensor_ranks(const ClaimRun *run, double *number, Error *error) {
  (void)error;
  *number = activation_gradients(run, AXIS_TP);
  return PLAIT_OK;
}
