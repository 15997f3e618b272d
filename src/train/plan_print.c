// The text of `plait plan`: memory by category and FLOPs of a recipe, before anything is allocated.
#include "train/plan_print.h"
#include "foresight/estimate.h"
#include "train/plan_recompute.h"
#include "train/plan_rows.h"
#include "train/plan_tensor.h"
#include "base/fault.h"
#include "base/units.h"
#include "program/cost.h"
#include "program/traffic.h"
#include "setup/setup.h"
#include "setup/setup_memory.h"
#include "train/precision.h"
#include "foresight/predict.h"
#include "train/routers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 8 }; // pipeline ranks printed side by side

typedef struct Plan {
  const Recipe *recipe;
  const ModelConfig *config;
  const Job *job;
  bool exact;     // whole bytes
  bool kept;      // the precision is that of the run that run.dir holds
  FILE *out;
  int64_t loader; // bytes on the heap of a rank
} Plan;

// ---- memory --------------------------------------------------------------------------------------------------------

int64_t plan_all_bytes(const Recipe *recipe, const ModelConfig *config, const Job *job) {
  const Plan plan = {.recipe = recipe, .config = config, .job = job, .loader = setup_loader_bytes(recipe, config, job)};
  int64_t row[PLAN_ROW_COUNT], bytes = 0;
  for (int c = 0; c < recipe->mesh.pp; c++) bytes += plan_rows(recipe, job, c, plan.loader, row);
  return bytes;
}

int64_t plan_most_bytes(const Recipe *recipe, const ModelConfig *config, const Job *job) {
  int64_t most = 0;
  for (int c = 0; c < recipe->mesh.pp; c++) {
    int64_t bytes = setup_rank_bytes(recipe, config, job, c);
    most = bytes > most ? bytes : most;
  }
  return most;
}

static void print_cell(const Plan *plan, int64_t bytes) {
  if (plan->exact) fprintf(plan->out, " %16lld", (long long)bytes);
  else fprintf(plan->out, " %12s", units_bytes((double)bytes).s);
}

// Ranks that own whole tensors differ; the columns are of those that own the most.
static void print_owned(const Plan *plan) {
  int pp = plan->recipe->mesh.pp, uneven = 0;
  const MemoryPlan *m = NULL;
  for (int c = 0; c < pp; c++) { // of the pipeline ranks the one whose data ranks differ the most
    const MemoryPlan *other = &job_train(plan->job)->program[c]->memory;
    if (!m || other->owned_most - other->owned_least > m->owned_most - m->owned_least) m = other, uneven = c;
  }
  if (!m->owned_most) return;
  char where[32] = "";
  if (pp > 1) snprintf(where, sizeof where, " of pp %d", uneven);
  fprintf(plan->out,
          "  whole tensors: data ranks%s store %s to %s of this; the figures are for the one that stores the most\n",
          where, units_bytes((double)m->owned_least).s, units_bytes((double)m->owned_most).s);
}

// Which pipeline rank needs the most working memory (all but the Variables), and what for.
static void print_busiest(const Plan *plan) {
  const int64_t *work = plan->job->work_bytes;
  int pp = plan->recipe->mesh.pp, busiest = 0, slots = 0;
  for (int c = 1; c < pp; c++)
    if (work[c] > work[busiest]) busiest = c;
  const Program *p = job_train(plan->job)->program[busiest];
  const MemoryPlan *m = &p->memory;
  char microbatches[48] = "";
  for (int s = 0; s < p->graph->stages; s++) slots += p->slots[s].count;
  if (p->graph->stages == pp) // interleaved stages have slots for different numbers of microbatches
    snprintf(microbatches, sizeof microbatches, " of %d microbatch%s", slots, slots == 1 ? "" : "es");
  fprintf(plan->out, "  of the working memory, %s%s", units_bytes((double)(p->arena_bytes + p->input_bytes)).s,
          pp > 1 ? " on the pipeline rank that needs the most" : "");
  fprintf(plan->out, ", at most %s are in use at one time: %.2f%% are gaps\n",
          units_bytes((double)(m->live + p->input_bytes)).s,
          p->arena_bytes ? 100.0 * (double)m->gaps / (double)(p->arena_bytes + p->input_bytes) : 0.0);
  if (pp > 1)
    fprintf(plan->out, "  working memory: pp %d needs the most: activations%s %s, workspace %s, communication %s\n",
            busiest, microbatches, units_bytes((double)m->activations).s, units_bytes((double)m->workspace).s,
            units_bytes((double)m->communication).s);
}

// Of the Variables of a pipeline coordinate: bytes of a rank, and what of that is padding beyond 256 elements a tensor,
// since sizes do not divide by the ranks that share them. Returns the Variable that is padded most; NULL: none is.
static const Variable *padding_of(const Program *p, double *bytes, double *padding) {
  const Variable *worst = NULL;
  double most = 0;
  *bytes = *padding = 0;
  for (int i = 0; i < p->graph->variable.count; i++) {
    const Variable *v = &p->graph->variable.data[i];
    if (p->variable_place[i].offset < 0 || !v->shape.rank) continue;
    double local = 1, whole = 1, size = (double)variable_bits(v, -1) / 8;
    for (int d = 0; d < v->shape.rank; d++)
      local *= (double)variable_local(p->graph, v, -1)[d], whole *= (double)v->shape.size[d];
    double more = local - whole / mesh_size(&p->mesh, placement_axes(v->storage)) - 256;
    *bytes += local * size;
    if (more > 0) *padding += more * size;
    if (more * size > most) most = more * size, worst = v;
  }
  return worst;
}

static void print_padding(const Plan *plan) {
  for (int c = 0; c < plan->recipe->mesh.pp; c++) {
    const Program *p = job_train(plan->job)->program[c];
    double bytes, padding;
    const Variable *worst = padding_of(p, &bytes, &padding);
    if (!worst || padding <= 0.02 * bytes) continue;
    char where[32] = "", cut[256];
    if (plan->recipe->mesh.pp > 1) snprintf(where, sizeof where, " of pp %d", c);
    placement_text(&p->mesh, worst->storage, &worst->shape, cut, sizeof cut);
    fprintf(plan->out,
            "  note: %.0f%% of what a rank%s stores, %s, is padding, since sizes do not divide by the ranks that share "
            "them; most of it in %s, cut by {%s}\n",
            100 * padding / bytes, where, units_bytes(padding).s, worst->name, cut);
    return;
  }
}

static void print_copy(const Plan *plan) {
  const Recipe *r = plan->recipe;
  if (setup_keeps(r))
    fprintf(plan->out,
            "  checkpoint copy: two of the rank that writes the most, in turn, %sunder plait launch with a process for "
            "each rank (checkpoint.memory_every%s)\n",
            r->checkpoint.copies ? "and two of a rank of the machine before, " : "",
            r->checkpoint.copies ? ", checkpoint.copies" : "");
  else if (setup_saves_later(plan->recipe) && plan->recipe->checkpoint.async == RECIPE_ASYNC_AUTO)
    fprintf(plan->out,
            "  checkpoint copy: of the rank that writes the most; where memory does not suffice, checkpoint.async "
            "auto leaves it out\n");
}

static int64_t print_memory(const Plan *plan) {
  int pp = plan->recipe->mesh.pp, columns = pp < MAX_COLUMNS ? pp : MAX_COLUMNS;
  int64_t(*column)[PLAN_ROW_COUNT] = xcalloc((size_t)pp, sizeof *column), sum[PLAN_ROW_COUNT] = {0};
  int64_t all = 0;
  int largest = 0;
  for (int c = 0; c < pp; c++) {
    all += plan_rows(plan->recipe, plan->job, c, plan->loader, column[c]);
    for (int r = 0; r < PLAN_ROW_COUNT; r++) sum[r] += column[c][r];
    if (column[c][PLAN_ROW_TOTAL] > column[largest][PLAN_ROW_TOTAL]) largest = c;
  }
  fprintf(plan->out, "\nmemory of a rank        ");
  for (int c = 0; c < columns && pp > 1; c++)
    fprintf(plan->out, plan->exact ? "            pp %-2d" : "        pp %-2d", c);
  fputc('\n', plan->out);
  for (int r = 0; r < PLAN_ROW_COUNT; r++) {
    if ((r == PLAN_ROW_EVALUATION || r == PLAN_ROW_VERSIONS || r == PLAN_ROW_MIRROR || r == PLAN_ROW_COPY ||
         r == PLAN_ROW_GAPS) &&
        !sum[r])
      continue; // training's memory is enough; none are kept; none is needed; none is made
    fprintf(plan->out, "%s%-22s", r == PLAN_ROW_ARENA || r == PLAN_ROW_TOTAL ? "= " : "  ", plan_row_traits[r].name);
    for (int c = 0; c < columns; c++) print_cell(plan, column[c][r]);
    fputc('\n', plan->out);
  }
  if (pp > columns)
    fprintf(plan->out, "  and %d more pipeline ranks; the largest is pp %d with %s\n", pp - columns, largest,
            units_bytes((double)column[largest][PLAN_ROW_TOTAL]).s);
  print_busiest(plan);
  print_owned(plan);
  print_padding(plan);
  print_copy(plan);
  free(column);
  return all;
}

// ---- the rest ------------------------------------------------------------------------------------------------------

static void print_head(const Plan *plan) {
  const Recipe *r = plan->recipe;
  const Job *job = plan->job;
  int64_t tokens = (int64_t)r->batch.global * r->data.seq_len;
  const ModelFacts *facts = &plan->config->facts;
  char active[48] = "";
  if (facts->active < facts->parameters)
    snprintf(active, sizeof active, " (%s active)", units_count((double)facts->active).s);
  fprintf(plan->out, "model      %s, %s parameters%s: %lld layers × %lld, %lld heads, vocabulary %lld\n",
         model_family_name(plan->config->family), units_count((double)model_config_parameters(plan->config)).s, active,
         (long long)plan->config->layers, (long long)plan->config->embed, (long long)plan->config->heads,
         (long long)plan->config->vocab);
  fprintf(plan->out, "mesh       pp=%d dp=%d cp=%d tp=%d: %d rank%s, %d thread%s each%s\n", r->mesh.pp, r->mesh.dp,
          r->mesh.cp, r->mesh.tp, job->options.parallel.mesh.ranks, job->options.parallel.mesh.ranks > 1 ? "s" : "",
          job->run.threads, job->run.threads > 1 ? "s" : "", job->run.helpers ? ", with work stealing" : "");
  char parallel[256], lend[512];
  if (setup_describe_lend(r, job->run.threads, recipe_has_processes(r), lend, sizeof lend))
    fputs(lend, plan->out);
  setup_describe(r, &plan->job->options.step, parallel, sizeof parallel);
  fprintf(plan->out, "parallel   %s\n", parallel);
  fprintf(plan->out, "precision  %s%s, gradients %s\n", dtype_name((Dtype)r->precision),
          plan->kept ? " (auto, as in the run so far)" : r->precision_is_auto ? " (auto, on this machine)" : "",
          dtype_name(r->precision == DTYPE_F64 ? DTYPE_F64 : (Dtype)r->parallel.grad_dtype));
  const Shares *shares = &job_train(job)->shares;
  fprintf(plan->out, "step       %d sequences × %d = %lld tokens; %d microbatch%s of %s%lld on each data rank\n",
          r->batch.global, r->data.seq_len, (long long)tokens, shares->microbatches,
          shares->microbatches > 1 ? "es" : "", shares->even ? "" : "at most ", (long long)shares->bound);
  WindowPart part = rank_window_part(job, 0);
  int length = window_part_length(&part, r->data.seq_len);
  if (length < r->data.seq_len)
    fprintf(plan->out, "           a rank reads and computes %d of the %d positions of each sequence (cp)\n", length,
            r->data.seq_len);
  int data = 1; // ranks on data axes: over others that cut the batch it is gathered before the products
  for (int a = 0; a < job->options.parallel.mesh.naxis; a++)
    if (layout_data_axes(&job->options.parallel.layout) >> a & 1 &&
        (job->options.parallel.mesh.axis[a].role == AXIS_DATA || plan->recipe->parallel.tensor != LAYOUT_TENSOR_1D))
      data *= job->options.parallel.mesh.axis[a].size;
  double idle = shares_idle(shares, shares->ranks / data);
  if (idle > 0 && shares->weighed)
    fprintf(
        plan->out,
        "           %.1f%% of the data ranks' time would be idle if they were equally fast: batch.balance gives them "
        "different shares\n",
        100 * idle);
  else if (idle > 0)
    fprintf(
        plan->out,
        "           %.1f%% of the data ranks' time is idle%s: %d sequences cannot be divided evenly over %d ranks\n",
        100 * idle, r->mesh.pp > 1 ? ", beside the pipeline's bubble" : "", r->batch.global, data);
}

// How often the run reads its text, where that is there already.
static void print_data(const Plan *plan) {
  const Recipe *r = plan->recipe;
  long long steps = r->schedule.steps, tokens = (long long)r->batch.global * r->data.seq_len;
  Error unread = {0};
  DataPasses passes;
  if (setup_check_files(r, &unread) || setup_check_data(r, plan->config, NULL, &passes, &unread)) return;
  char text[128];
  setup_describe_passes(&passes, (double)steps * (double)tokens, text, sizeof text);
  fprintf(plan->out, "data       %lld step%s of %lld tokens are %s\n", steps, steps == 1 ? "" : "s", tokens, text);
}

static void print_experts(const Plan *plan) {
  char text[256];
  const Parallel *parallel = &plan->job->options.parallel;
  int ranks = mesh_size(&parallel->mesh, layout_expert_axes(&parallel->layout));
  routers_describe(plan->recipe, plan->config, ranks, text, sizeof text);
  if (*text) fprintf(plan->out, "experts    %s\n", text);
}

// Ops without a fast kernel on this device.
static void print_reference(const Plan *plan) {
  char text[1024];
  graph_reference_ops(job_train(plan->job)->graph, plan->job->options.device, text, sizeof text);
  if (*text) fprintf(plan->out, "kernels    no fast kernel for %s: these use a plain, slower one\n", text);
  graph_host_ops(job_train(plan->job)->graph, plan->job->options.device, text, sizeof text);
  if (*text)
    fprintf(
        plan->out,
        "kernels    run on the host, for %s has none for them: %s. Each operand is copied there and back, through host "
        "memory that is not in this plan (docs/cuda.md)\n",
        plan->job->options.device->name, text);
}

// How the layers are shared out over pipeline ranks, and how evenly.
static void print_stages(const Plan *plan) {
  const Graph *g = job_train(plan->job)->graph;
  int pp = plan->recipe->mesh.pp, busiest = 0;
  bool seconds = plan->recipe->run.cluster && !plan->recipe->parallel.layers.count;
  double sum = 0, most = 0;
  if (g->stages == 1) return;
  for (int c = 0; c < pp; c++) {
    double flops = program_flops(job_train(plan->job)->program[c]);
    sum += flops;
    if (flops > most) most = flops, busiest = c;
  }
  fprintf(plan->out, "stages    ");
  for (int s = 0; s < g->stages; s++) fprintf(plan->out, " %d", g->cut[s + 1] - g->cut[s]);
  fprintf(plan->out, " layers%s%s%s; by FLOPs the busiest pipeline rank has %.2f times the mean (pp %d)\n",
          g->stages == pp                           ? ""
          : plan->job->options.parallel.mesh.folded ? ", over the pipeline ranks there and back"
                                                    : ", over the pipeline ranks in turn",
          seconds ? ", cut by the seconds of " : "", seconds ? plan->recipe->run.cluster : "",
          sum > 0 ? most * pp / sum : 1, busiest);
}

// Where ranks share a sequence, how evenly: queries see the keys before them only.
static void print_pairs(const Plan *plan) {
  ProgramPairs worst = {0};
  for (int c = 0; c < plan->recipe->mesh.pp; c++) {
    ProgramPairs pairs = program_pairs(job_train(plan->job)->program[c]);
    if (pairs.mean > 0 && (worst.mean <= 0 || pairs.most / pairs.mean > worst.most / worst.mean)) worst = pairs;
  }
  if (plan->recipe->mesh.cp > 1 && worst.mean > 0)
    fprintf(plan->out, "  %-22s %12s   queries and keys before them, of all heads, a rank and microbatch; the busiest "
                       "rank has %.2f × the mean\n",
            "visible pairs", units_count(worst.mean).s, worst.most / worst.mean);
}

// Prints the tensors that updates need whole (matrices of Muon), and how evenly they lie on the ranks that make them.
static void print_owners(const Plan *plan) {
  ProgramOwned sum = {0};
  for (int c = 0; c < plan->recipe->mesh.pp; c++) {
    ProgramOwned owned = program_owned(job_train(plan->job)->program[c]);
    if (!c || owned.least < sum.least) sum.least = owned.least;
    if (owned.most > sum.most) sum.most = owned.most;
    sum.count += owned.count;
  }
  if (!sum.count) return;
  fprintf(plan->out, "  %-22s %12s   of these for %s's %d weight matrices, each made whole by one rank",
          "orthogonal matrices", units_count(sum.most).s, op_name((Op)plan->recipe->optimizer.name), sum.count);
  if (plan->job->options.parallel.mesh.ranks > 1)
    fprintf(plan->out, "; the rank that has the least: %s", units_count(sum.least).s);
  fputc('\n', plan->out);
}

static void print_flops(const Plan *plan) {
  double token = model_config_flops_per_token(plan->config, plan->recipe->data.seq_len), most = 0;
  double step = token * plan->recipe->batch.global * plan->recipe->data.seq_len;
  for (int c = 0; c < plan->recipe->mesh.pp; c++) {
    double flops = program_flops(job_train(plan->job)->program[c]);
    if (flops > most) most = flops;
  }
  fprintf(plan->out, "\nFLOPs\n  %-22s %12s   6·N + 6·L·d·(T + 1): forward and backward of the model\n", "per token",
         units_count(token).s);
  fprintf(plan->out, "  %-22s %12s   all ranks together\n", "per step", units_count(step).s);
  fprintf(plan->out, "  %-22s %12s   kernels of the busiest rank\n", "per rank and step", units_count(most).s);
  print_owners(plan);
  print_pairs(plan);
}

// How long it takes on the cluster that the recipe names.
static void print_time_on_cluster(const Plan *plan) {
  const Recipe *r = plan->recipe;
  Cluster *cluster = NULL;
  Prediction p = {.job = NULL};
  Error error = {0};
  int code = predict_cluster(r, NULL, &cluster, &error);
  SimulateOptions options = {.cluster = cluster};
  if (!code) code = predict(r, plan->config, &options, &p, &error);
  if (code) {
    fprintf(plan->out, "\ntime\n  it cannot be simulated on run.cluster: %s\n", error.message);
  } else {
    int64_t steps = r->schedule.steps;
    fprintf(plan->out, "\ntime, simulated on %s\n  %-22s %12s   %s tokens/s", cluster->name, "per step",
            units_seconds(p.simulation->step).s, units_count(p.tokens_per_s).s);
    if (isfinite(p.mfu)) fprintf(plan->out, ", MFU %.1f %%", 100 * p.mfu);
    fputc('\n', plan->out);
    fprintf(plan->out, "  %-22s %12s   %lld step%s, without evaluations; plait simulate shows where the time goes\n",
            "the run", units_seconds(p.run_seconds).s, (long long)steps, steps == 1 ? "" : "s");
    fprintf(plan->out, "  %-22s %12s   of %s of %s%s\n", "memory of a rank there", units_bytes(p.bytes).s,
            units_bytes(p.room).s, cluster->device.name, p.bytes > p.room ? ": does not fit" : "");
  }
  prediction_free(&p);
  cluster_free(cluster);
}

// How long it takes on this machine, or on machines like it where ranks are processes.
static void print_time(const Plan *plan) {
  const Recipe *r = plan->recipe;
  if (FAULT(plan_ignores_the_cluster, r->run.cluster && strcmp(r->run.cluster, "probe"), false)) {
    print_time_on_cluster(plan);
    return;
  }
  int processes = recipe_has_processes(r);
  int64_t steps = r->schedule.steps;
  Estimate e;
  if (!device_shares_host(plan->job->options.device->kind))
    fprintf(plan->out, "\ntime\n  plait simulate predicts it for %s, on a cluster\n", plan->job->options.device->name);
  if (!estimate_run(r, plan->job, processes, steps, &e)) return;
  fprintf(plan->out, "\ntime\n  %-22s %12s   %s tokens/s%s\n", "per step", estimate_duration(&e, e.step_seconds).s,
          estimate_tokens(&e).s,
          processes ? ", were all machines like this one; what goes between them is not counted" : "");
  char *source = estimate_source(&e);
  fprintf(plan->out, "  %-22s %12s   %lld step%s; %s\n", "the run", estimate_duration(&e, e.run_seconds).s,
          (long long)steps, steps == 1 ? "" : "s", source);
  free(source);
  if (!e.simulated && !processes)
    fprintf(plan->out, "  (plait probe measures this machine, in about a minute and once; then this is simulated)\n");
  estimate_warn(r, plan->config, &e, processes, 0, steps, plan->out);
}

enum { MOST_RANKS_ALONE = 256 }; // of larger meshes only averages are told

// The most that one rank of a Program's coordinate sends, or receives, over a set of axes.
typedef struct Busiest { uint32_t axes; int rank, receives; double bytes; } Busiest;
typedef Vec(Busiest) BusiestList;

static void take_busiest(BusiestList *list, uint32_t axes, int rank, double sent, double received) {
  int i = 0, receives = received > sent;
  while (i < list->count && list->data[i].axes != axes) i++;
  if (i == list->count) vec_push(list, (Busiest){.axes = axes});
  double bytes = receives ? received : sent;
  if (bytes > list->data[i].bytes) list->data[i] = (Busiest){axes, rank, receives, bytes};
}

static BusiestList busiest_ranks(const Program *p) {
  BusiestList busiest = {0};
  for (int r = 0; r < p->mesh.ranks && p->mesh.ranks <= MOST_RANKS_ALONE; r++) {
    TrafficList list = {0};
    if (mesh_pipeline_coordinate(&p->mesh, r) != p->coordinate) continue;
    program_traffic_of(p, r, &list);
    for (int i = 0; i < list.count; i++)
      take_busiest(&busiest, list.data[i].axes, r, list.data[i].bytes, list.data[i].received);
    vec_free(&list);
  }
  return busiest;
}

// Of the busiest pipeline rank, by axes; a transfer between stages is over pp. The number is what a rank sends on the
// average; where one sends or receives clearly more, it is that rank's.
static void print_traffic(const Plan *plan) {
  const Mesh *mesh = &plan->job->options.parallel.mesh;
  const Program *of = NULL;
  TrafficList most = {0};
  double busiest = -1;
  for (int c = 0; c < plan->recipe->mesh.pp; c++) {
    TrafficList list = {0};
    double bytes = 0;
    program_traffic(job_train(plan->job)->program[c], &list);
    for (int i = 0; i < list.count; i++) bytes += list.data[i].bytes;
    TrafficList old = bytes > busiest ? most : list;
    if (bytes > busiest) most = list, busiest = bytes, of = job_train(plan->job)->program[c];
    vec_free(&old);
  }
  BusiestList ranks = of ? busiest_ranks(of) : (BusiestList){0};
  if (most.count)
    fprintf(plan->out, "\ncommunication of a rank, per step%s\n",
            plan->recipe->mesh.pp > 1 ? " (the busiest pipeline rank)" : "");
  for (int i = 0; i < most.count; i++) {
    char axes[128] = "over";
    for (int a = 0; a < mesh->naxis; a++)
      if (most.data[i].axes >> a & 1 && mesh->axis[a].size > 1)
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), " %s", mesh->axis[a].name);
    fprintf(plan->out, "  %-22s %12s", axes, units_bytes(most.data[i].bytes).s);
    for (int k = 0; k < ranks.count; k++)
      if (ranks.data[k].axes == most.data[i].axes && ranks.data[k].bytes > 1.03 * most.data[i].bytes)
        fprintf(plan->out, "   on the average; rank %d %s %s, the most", ranks.data[k].rank,
                ranks.data[k].receives ? "receives" : "sends", units_bytes(ranks.data[k].bytes).s);
    fputc('\n', plan->out);
  }
  vec_free(&ranks);
  vec_free(&most);
}

// The axes over which copies of parameters are divided or replicated: those of ZeRO, and hybrid sharding's outer one.
static uint32_t data_axes(const Parallel *parallel) {
  uint32_t axes = parallel->storage.shard_axes;
  for (int a = 0; a < parallel->mesh.naxis; a++) {
    if (parallel->mesh.axis[a].id == AXIS_REPLICA) axes |= 1u << a;
    if (parallel->mesh.axis[a].size == 1) axes &= ~(1u << a);
  }
  return axes;
}

static const char *data_axes_text(const Recipe *r) {
  return r->mesh.cp == 1 ? "the data axes" : r->mesh.dp == 1 ? "the ranks of cp" : "the ranks of dp and cp";
}

// Bytes of parameters and gradients that the busiest pipeline rank moves over the data axes in a step.
static double data_traffic(const Job *job, int pp) {
  uint32_t axes = data_axes(&job->options.parallel);
  double most = 0;
  for (int c = 0; c < pp; c++) {
    TrafficList list = {0};
    double bytes = 0;
    program_traffic(job_train(job)->program[c], &list);
    for (int i = 0; i < list.count; i++)
      bytes += list.data[i].axes & axes ? list.data[i].parameter_bytes : 0;
    if (bytes > most) most = bytes;
    vec_free(&list);
  }
  return most;
}

// The plan's recipe with other keys, compiled.
static int compile_variant(const Plan *plan, const char *keys, Job **job, Error *error) {
  Recipe other;
  int code = recipe_variant(plan->recipe, keys, &other, error);
  if (!code) code = setup_job(&other, plan->config, NULL, job, error);
  recipe_free(&other);
  return code;
}

// A pipeline needs microbatches, and ZeRO 2 and 3 pay for each of them: what that costs is said, by compiling ZeRO 1
// too.
static int print_zero_cost(const Plan *plan, Error *error) {
  const Recipe *r = plan->recipe;
  Job *job = NULL;
  if (r->mesh.pp == 1 || r->mesh.dp * r->mesh.cp == 1 || r->parallel.zero < 2) return PLAIT_OK;
  int code = compile_variant(plan, FAULT(plan_compares_reshard, "parallel.zero=1 parallel.accumulate=null "
                                         "parallel.gather=null parallel.reshard=null", "parallel.zero=1"), &job, error);
  if (code) return code;
  double bytes = data_traffic(plan->job, r->mesh.pp), least = data_traffic(job, r->mesh.pp);
  fprintf(plan->out, "  %-22s %12s   over %s; with %d microbatch%s ZeRO %d moves %.2f times as much\n",
          "ZeRO 1 would move", units_bytes(least).s, data_axes_text(plan->recipe), job_train(job)->shares.microbatches,
          job_train(job)->shares.microbatches > 1 ? "es" : "", plan->recipe->parallel.zero,
          least > 0 ? bytes / least : 1);
  job_destroy(job);
  return PLAIT_OK;
}

static int64_t most_activations(const Job *job, int pp) {
  int64_t most = 0;
  for (int c = 0; c < pp; c++)
    if (job_train(job)->program[c]->memory.activations > most) most = job_train(job)->program[c]->memory.activations;
  return most;
}

// Where backward is split, W needs what B computes again, so that recomputation saves little or nothing: that is said,
// by compiling the recipe without it, and with a schedule that does not split.
static int print_recompute_cost(const Plan *plan, Error *error) {
  int pp = plan->recipe->mesh.pp;
  const ScheduleGenerator *schedule = plan->job->options.parallel.pipeline.schedule;
  const StepRecompute *recompute = &plan->job->options.step.recompute;
  if (!schedule->splits || (recompute->mode == RECOMPUTE_NONE && !recompute->list.blocks)) return PLAIT_OK;
  char unsplit[128];
  snprintf(unsplit, sizeof unsplit, "parallel.pipeline=1f1b parallel.stages_per_rank=null parallel.layers=null%s",
           plan->recipe->parallel.recompute.word == RECIPE_RECOMPUTE_AUTO // which was chosen for this schedule
               ? " parallel.recompute=full" : "");
  fprintf(plan->out, "\nrecomputation with %s, whose weight gradients wait for what is computed again\n",
          schedule->name);
  const struct { const char *keys, *name, *also; } way[] = {
      {NULL, "this recipe", "of activations on the busiest rank"},
      {"parallel.recompute=none parallel.recompute_layers=null", "without recomputation", ""},
      {unsplit, "with pipeline 1f1b", ""}};
  for (int i = 0; i < 3; i++) {
    Job *job = NULL;
    int code = way[i].keys ? compile_variant(plan, way[i].keys, &job, error) : PLAIT_OK;
    if (code) return code;
    fprintf(plan->out, "  %-22s %12s%s%s\n", way[i].name,
            units_bytes((double)most_activations(job ? job : plan->job, pp)).s, *way[i].also ? "   " : "", way[i].also);
    job_destroy(job);
  }
  return PLAIT_OK;
}

// The units of gathering under ZeRO 3: the busiest rank's memory and traffic with each, by compiling it.
static int print_gather_costs(const Plan *plan, Error *error) {
  const Recipe *r = plan->recipe;
  int unit[] = {GATHER_BLOCK, GATHER_LAYER, r->parallel.gather},
      units = r->parallel.gather == GATHER_BLOCK || r->parallel.gather == GATHER_LAYER ? 2 : 3;
  if (r->mesh.dp * r->mesh.cp == 1 || r->parallel.zero != 3 || !r->parallel.reshard ||
      !plan->job->options.parallel.overlap.read_ahead)
    return PLAIT_OK;
  fprintf(plan->out, "\nparameters that are gathered at a time\n");
  for (int u = 0; u < units; u++) {
    char name[32], *keys;
    if (unit[u] > 0) snprintf(name, sizeof name, "%d MB", unit[u]);
    else snprintf(name, sizeof name, "%s", unit[u] == GATHER_BLOCK ? "block" : "layer");
    Job *job = NULL;
    keys = xformat("parallel.gather=\"%s\"", name);
    int code = compile_variant(plan, keys, &job, error);
    free(keys);
    if (code) return code;
    int64_t peak = 0;
    for (int c = 0; c < r->mesh.pp; c++) {
      int64_t total = job_train(job)->program[c]->memory.total;
      if (total > peak) peak = total;
    }
    fprintf(plan->out, "  %-22s %12s   of memory at the peak; moves %s a step over %s%s\n", name,
            units_bytes((double)peak).s, units_bytes(data_traffic(job, r->mesh.pp)).s, data_axes_text(r),
            unit[u] == r->parallel.gather ? " (parallel.gather)" : "");
    job_destroy(job);
  }
  return PLAIT_OK;
}

int plan_print(const Recipe *asked, bool exact, FILE *out, Error *error) {
  Recipe own; // with the precision that auto is in a run that is there
  const Recipe *recipe = &own;
  bool kept;
  ModelConfig config = {0};
  Job *job = NULL;
  RunPlan planned = {0};
  int code = precision_of_run(asked, &own, &kept, error);
  if (!code) code = setup_model_config(recipe, &config, error);
  char *note = NULL;
  if (!code) code = setup_check_tokenizer(recipe, &config, false, &note, error);
  if (!code) code = resolve(recipe, &config, &(RunSetting){.shows_recompute = true}, &planned, error);
  if (!code) code = run_plan_job(&planned, &job, error);
  if (!code) {
    Plan plan = {.recipe = recipe, .config = &config, .job = job, .exact = exact, .kept = kept, .out = out};
    plan.loader = setup_loader_bytes(recipe, &config, job);
    print_head(&plan);
    if (note) fputs(note, out);
    print_data(&plan);
    print_experts(&plan);
    print_reference(&plan);
    print_stages(&plan);
    int64_t all = print_memory(&plan);
    if (job->options.parallel.mesh.ranks > 1)
      fprintf(out, "  %-22s %s\n", "all ranks together", units_bytes((double)all).s);
    plan_print_recompute(recipe, planned.recompute, exact, out);
    print_flops(&plan);
    print_time(&plan);
    print_traffic(&plan);
    code = print_zero_cost(&plan, error);
    if (!code) code = print_gather_costs(&plan, error);
    if (!code) code = print_recompute_cost(&plan, error);
    if (!code) code = plan_print_tensor(recipe, &config, out, error);
    job_destroy(job);
  }
  free(note);
  run_plan_free(&planned);
  model_config_free(&config);
  recipe_free(&own);
  return code;
}
