// Checks parallel configurations. The rules are in the order in which a user should hear of them: a later one may rely
// on what an earlier one has checked.
#include "parallel/parallel_context.h"
#include "parallel/parallel_delay.h"
#include "parallel/parallel_experts.h"
#include "parallel/parallel_problem.h"
#include "parallel/parallel_tensor.h"
#include "base/divisor.h"
#include "base/fault.h"
#include "base/shares.h"
#include "model/config.h"
#include <string.h>

typedef struct Question {
  const Step *s;
  const StepParallel *o; // of the step
  const StepModel *m;
  int pp, dp, cp; // sizes of these axes
  ParallelProblem *problem;
} Question;

static const char *const row_names[] = {
#define LAYOUT_ROW(id, name, meaning) name,
#include "sharding/layout_rows.def"
};
static const char *const row_keys[] = {
#define LAYOUT_ROW(id, name, meaning) "layout." name,
#include "sharding/layout_rows.def"
};

// Of a question.
#define refuse(q, ...) parallel_refuse((q)->problem, __VA_ARGS__)

static const char *nearest(const Question *q, int64_t below, int64_t above, char text[64]) {
  return parallel_nearest(q->problem, below, above, text);
}

static const char *nearest_multiple(const Question *q, int64_t value, int64_t unit, char text[64]) {
  return nearest(q, value / unit * unit, (value / unit + 1) * unit, text);
}

static int axis_size(const StepParallel *o, AxisId axis) { return parallel_word_ranks(o, axis); }

static int data_ranks(const Question *q) { return parallel_row_ranks(q->o, LAYOUT_ROW_BATCH); }

static int microbatches_of(const Question *q, int64_t micro) {
  const Balance *b = &q->s->batch.balance;
  if (!b->count && !(b->most > 0) && b->multiple < 2)
    return shares_microbatches(q->s->batch.samples, data_ranks(q), micro);
  Shares shares = shares_balanced(q->s->batch.samples, data_ranks(q), micro, b);
  return shares.microbatches;
}

static int microbatches(const Question *q) { return microbatches_of(q, q->s->batch.micro); }

// ---- shares of the batch -------------------------------------------------------------------------------------------

static int check_balance(const Question *q) {
  const Balance *b = &q->s->batch.balance;
  int ranks = data_ranks(q);
  if (b->count && ranks > 1 && b->count != ranks)
    return refuse(q, "batch.balance", "batch.balance has %d weight%s, but there are %d data ranks; give one for each",
                  b->count, b->count == 1 ? "" : "s", ranks);
  if (b->most > 0 && ranks > SHARES_MOST_WEIGHED)
    return refuse(
        q, "batch.balance",
        "batch.balance is measured, but there are %d data ranks, and it divides batches over at most %d; take "
        "even",
        ranks, SHARES_MOST_WEIGHED);
  return PLAIT_OK;
}

// ---- storage -------------------------------------------------------------------------------------------------------

static int check_shard_group(const Question *q) {
  int group = q->o->shard_group;
  int64_t near[2];
  char text[64];
  if (!group) return PLAIT_OK;
  if (q->dp == 1)
    return refuse(q, "parallel.shard_group",
                  "parallel.shard_group is %d, but mesh.dp is 1, so that there is nothing to shard over; take 0",
                  group);
  if (q->dp % group) {
    nearest_divisors(q->dp, group, near);
    nearest(q, near[0] > 1 ? near[0] : 0, near[1], text);
    return refuse(q, "parallel.shard_group",
                  "parallel.shard_group is %d, but must divide mesh.dp (%d); the nearest is %s", group, q->dp, text);
  }
  if (group == 1 && q->cp == 1)
    return refuse(
        q, "parallel.shard_group",
        "parallel.shard_group is 1, but a group of one rank shards nothing; take 0 (groups of all %d data ranks), "
        "or parallel.zero 0",
        q->dp);
  return PLAIT_OK;
}

static int check_zero(const Question *q) {
  const StepParallel *o = q->o;
  if (o->shard_group && !o->zero)
    return refuse(q, "parallel.shard_group",
                  "parallel.shard_group is %d, but parallel.zero is 0, which shards nothing; take zero 1, 2 or 3",
                  o->shard_group);
  if (o->unsplit && !o->zero)
    return refuse(
        q, "parallel.unsplit_tensors",
        "parallel.unsplit_tensors is true, but parallel.zero is 0, with which every data rank has all tensors; "
        "take zero 1, 2 or 3");
  if (!o->reshard && o->zero != 3)
    return refuse(
        q, "parallel.reshard",
        "parallel.reshard is false, but parallel.zero is %d, which gathers once a step anyway; it belongs to zero 3",
        o->zero);
  if (o->overlap.gather != GATHER_BLOCK && (o->zero != 3 || !o->reshard))
    return refuse(q, "parallel.gather",
                  "parallel.gather is not block, but %s, so that all parameters are there before the first block; it "
                  "belongs to zero 3 with reshard",
                  o->zero == 3 ? "parallel.reshard is false" : "parallel.zero is not 3");
  if (o->local_gradients && o->zero < 2)
    return refuse(
        q, "parallel.accumulate",
        "parallel.accumulate is local, but parallel.zero is %d, with which every rank adds up whole gradients anyway; "
        "it belongs to zero 2 and 3",
        o->zero);
  return PLAIT_OK;
}

// ---- 2-D, 2.5-D and 3-D tensors -------------------------------------------------------------------------------------

static int sizes_fit(const StepParallel *o, const void *workload);

// SUMMA's steps go through the rows and the columns at once.
static int check_summa(const Question *q) {
  const StepParallel *o = q->o;
  TensorGrid g = parallel_grid(o);
  if (!o->summa) return PLAIT_OK;
  if (o->tensor != LAYOUT_TENSOR_2D && o->tensor != LAYOUT_TENSOR_2_5D)
    return refuse(q, "parallel.summa",
                  "parallel.summa is true, but parallel.tensor is %s, and only products over rows and columns of ranks "
                  "run in its steps; take 2d or 2.5d",
                  parallel_tensor_names[o->tensor]);
  if (!parallel_summa_fits(o)) {
    char nearest[64];
    q->problem->also = o->rows ? "parallel.rows" : "parallel.summa";
    return refuse(
        q, "mesh.tp",
        "mesh.tp is %d, %d rows by %d columns, but parallel.summa is true, whose steps need as many of one as of "
        "the other; the nearest mesh.tp is %s",
        g.depth * g.rows * g.cols, g.rows, g.cols, parallel_nearest_tp(o, sizes_fit, q->m, q->problem, nearest));
  }
  if (axis_size(o, AXIS_PP) > 1 && o->schedule->splits) {
    q->problem->also = "parallel.pipeline";
    return refuse(q, "parallel.summa",
                  "parallel.summa is true, but parallel.pipeline %s runs a weight's product apart from its input's, "
                  "which would broadcast the same blocks again; take 1f1b, or leave parallel.summa out",
                  o->schedule->name);
  }
  if (axis_size(o, AXIS_PP) > 1 && q->s->transform.logits) {
    q->problem->also = "parallel.logits";
    return refuse(
        q, "parallel.summa",
        "parallel.summa is true, but parallel.logits recompute is for zb-h1 and zb-v, with which parallel.summa "
        "does not run; leave one of them out");
  }
  return PLAIT_OK;
}

static int check_tensor(const Question *q) {
  const StepParallel *o = q->o;
  for (int row = 0; row < LAYOUT_ROWS && o->tensor == LAYOUT_TENSOR_1D; row++)
    for (int i = 0; i < o->layout.row[row].count; i++)
      if (axis_is_part(o->layout.row[row].axis[i]))
        return refuse(q, row_keys[row], "%s names %s, but parallel.tensor is 1d, which does not cut tp; take tp",
                      row_keys[row], axis_names[o->layout.row[row].axis[i]]);
  if (parallel_check_grid(o, sizes_fit, q->m, q->problem)) return PLAIT_INFEASIBLE;
  if (check_summa(q)) return PLAIT_INFEASIBLE;
  if (o->tensor != LAYOUT_TENSOR_1D && parallel_row_has(o, LAYOUT_ROW_SEQ, AXIS_TP) && axis_size(o, AXIS_TP) > 1)
    return refuse(q, o->sequence ? "parallel.sequence" : "layout.seq",
                  "parallel.tensor is %s, which cuts the width of activations between blocks over tp already, so that "
                  "tp cannot cut their sequence as well; %s",
                  parallel_tensor_names[o->tensor],
                  o->sequence ? "leave parallel.sequence out" : "take tp out of layout.seq");
  return PLAIT_OK;
}

// ---- the batch -----------------------------------------------------------------------------------------------------

static const char *words_text(const LayoutWords *words, char text[64]) {
  size_t n = (size_t)snprintf(text, 64, "[");
  for (int i = 0; i < words->count && n < 64; i++)
    n += (size_t)snprintf(text + n, 64 - n, "%s%s", i ? ", " : "", axis_names[words->axis[i]]);
  if (n < 64) snprintf(text + n, 64 - n, "]");
  return text;
}

static const char *row_text(const Question *q, LayoutRow row, char text[64]) {
  return words_text(&q->o->layout.row[row], text);
}

// Without axes of one rank, which the user may not know of: a shipped Layout names cp.
static const char *row_text_of_several(const Question *q, LayoutRow row, char text[64]) {
  const LayoutWords *all = &q->o->layout.row[row];
  LayoutWords several = {0};
  for (int i = 0; i < all->count; i++)
    if (axis_size(q->o, all->axis[i]) > 1) several.axis[several.count++] = all->axis[i];
  return words_text(&several, text);
}

// Where the axis of a word is in the mesh.
static int word_order(const Question *q, AxisId word) {
  return 4 * mesh_axis(&q->o->mesh, axis_whole(word)) - (word == AXIS_TP_DEPTH ? 2 : word == AXIS_TP_ROW ? 1 : 0);
}

// The Layout's rows of the batch and of the sequence.
static int check_data(const Question *q) {
  const LayoutWords *batch = &q->o->layout.row[LAYOUT_ROW_BATCH];
  int64_t ranks = parallel_row_ranks(q->o, LAYOUT_ROW_SEQ);
  int zigzag = parallel_row_has(q->o, LAYOUT_ROW_SEQ, AXIS_CP) && q->cp > 1 &&
               q->s->algorithm[CHOICE_CONTEXT] != ALGORITHM_ULYSSES; // whose ranks have one piece each
  int whole = q->s->batch.length[DIM_SEQ] % ranks ==
              0; // then ulysses does, if the heads allow it: that is known with the model
  char list[64], other[64], text[64];
  for (int i = 1; i < batch->count; i++)
    if (word_order(q, batch->axis[i]) < word_order(q, batch->axis[i - 1]))
      return refuse(
          q, "layout.batch",
          "layout.batch is %s, but ranks read their samples in the order of the mesh; take its axes in the order dp, "
          "cp, %stp",
          row_text(q, LAYOUT_ROW_BATCH, list), q->o->tensor == LAYOUT_TENSOR_1D ? "" : "tp_depth, tp_row, ");
  int samples = data_ranks(q), inside = parallel_row_ranks(q->o, LAYOUT_ROW_INTERIOR);
  if (samples % inside) {
    LayoutTable own = layout_of_tensor(q->o->tensor);
    const LayoutWords *said = &q->o->layout.row[LAYOUT_ROW_INTERIOR], *usual = &own.row[LAYOUT_ROW_INTERIOR];
    int given = !layout_words_equal(said, usual); // interior; else it is as parallel.tensor says
    LayoutRow blamed = given ? LAYOUT_ROW_INTERIOR : LAYOUT_ROW_BATCH;
    return refuse(q, row_keys[blamed],
                  "layout.batch is %s, which cuts the samples into %d part%s, but %s is %s, which cuts those inside "
                  "blocks into %d, and that must divide the former; leave %s out",
                  row_text(q, LAYOUT_ROW_BATCH, list), samples, samples > 1 ? "s" : "",
                  row_keys[LAYOUT_ROW_INTERIOR], row_text(q, LAYOUT_ROW_INTERIOR, other), inside, row_keys[blamed]);
  }
  if (whole && (!zigzag || !q->m->known || q->s->batch.length[DIM_SEQ] % (2 * ranks) == 0)) return PLAIT_OK;
  if (zigzag) {
    char by_tp[32] = "";
    q->problem->also = "mesh.cp";
    if (ranks > q->cp) snprintf(by_tp, sizeof by_tp, " · %lld", (long long)(ranks / q->cp));
    return refuse(
        q, "data.seq_len",
        "data.seq_len is %lld, but mesh.cp is %d and each of its ranks has two equal pieces of a sequence; it "
        "must be a multiple of 2 · %d%s; the nearest data.seq_len is %s%s",
        (long long)q->s->batch.length[DIM_SEQ], q->cp, q->cp, by_tp,
        nearest_multiple(q, q->s->batch.length[DIM_SEQ], 2 * ranks, text),
        whole && !q->o->ulysses && parallel_exchange_fits(q->s, q->m, q->cp) ? ", or take parallel.context ulysses"
                                                                             : "");
  }
  q->problem->also = "layout.seq";
  return refuse(q, "data.seq_len",
                "data.seq_len is %lld, but the Layout cuts the sequence over %s, %lld ranks, which must divide it; the "
                "nearest data.seq_len is %s",
                (long long)q->s->batch.length[DIM_SEQ], row_text_of_several(q, LAYOUT_ROW_SEQ, list), (long long)ranks,
                nearest_multiple(q, q->s->batch.length[DIM_SEQ], ranks, text));
}

// An axis that cuts two dims of one tensor.
static int check_meeting(const Question *q) {
  static const LayoutRow pairs[][2] = {
#define LAYOUT_MEET(a, b) {LAYOUT_ROW_##a, LAYOUT_ROW_##b},
#include "sharding/layout_rows.def"
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const LayoutWords *a = &q->o->layout.row[pairs[i][0]], *b = &q->o->layout.row[pairs[i][1]];
    for (int k = 0; k < a->count * b->count; k++) {
      AxisId axis = a->axis[k / b->count];
      if (axis != b->axis[k % b->count] || axis_size(q->o, axis) == 1) continue;
      if (pairs[i][1] == LAYOUT_ROW_EXPERT_FFN && !(q->m->known && q->m->size[DIM_EXPERT_FFN])) continue;
      q->problem->also = row_keys[pairs[i][1]];
      return refuse(q, row_keys[pairs[i][0]],
                    "layout: %s and %s are both cut over %s, but there are tensors that have both dims; take it out of "
                    "one, as in layout.%s=[]",
                    row_names[pairs[i][0]], row_names[pairs[i][1]], axis_names[axis], row_names[pairs[i][1]]);
    }
  }
  return PLAIT_OK;
}

// ---- the pipeline --------------------------------------------------------------------------------------------------

// ", or take batch.micro 2": with smaller microbatches there are more, perhaps as many as the schedule takes; or "".
static const char *other_micro(const Question *q, int microbatches_now, char *text, size_t size) {
  int ranks = data_ranks(q), wanted = (microbatches_now / q->pp + 1) * q->pp;
  int64_t most = (q->s->batch.samples + ranks - 1) / ranks, micro = (most + wanted - 1) / wanted;
  text[0] = 0;
  if (microbatches_of(q, micro) % q->pp == 0)
    snprintf(text, size, ", or take batch.micro %lld", (long long)micro);
  return text;
}

static int check_schedule(const Question *q) {
  const ScheduleGenerator *s = q->o->schedule;
  int v = q->o->stages_per_rank, m = microbatches(q), pp = q->pp;
  if (pp > 1 && s->microbatches_multiple_of_ranks && q->s->update.in_backward) {
    q->problem->also = "parallel.pipeline";
    return refuse(q, "parallel.update",
                  "parallel.update is in_backward, which takes one microbatch a step, but parallel.pipeline is %s, "
                  "which takes a multiple of mesh.pp "
                  "(%d); take parallel.pipeline 1f1b, or parallel.update: end",
                  s->name, pp);
  }
  if (v > 1 && pp == 1)
    return refuse(
        q, "parallel.stages_per_rank",
        "parallel.stages_per_rank is %d, but mesh.pp is 1: there is no pipeline; take parallel.stages_per_rank 1", v);
  if (pp > 1 && !schedule_can_run(s, v)) {
    char others[256];
    int too_few = v < s->least_stages, can = too_few ? s->least_stages : s->most_stages;
    schedule_names(v, others, sizeof others);
    q->problem->nearest[too_few] = can;
    return refuse(
        q, "parallel.stages_per_rank",
        "parallel.stages_per_rank is %d, but parallel.pipeline is %s, which %s %d stage%s a rank; take %d, or %s", v,
        s->name, too_few ? "needs at least" : "allows at most", can, can > 1 ? "s" : "", can, others);
  }
  if (s->microbatches_multiple_of_ranks && m % pp) {
    char text[64], instead[64];
    q->problem->also = "batch.micro";
    int64_t rows = q->s->batch.micro * data_ranks(q), below = m / pp * pp * rows,
            above = (int64_t)(m / pp + 1) * pp * rows - rows + 1;
    return refuse(q, "batch.global",
                  "batch.global %lld makes %d microbatch%s, but parallel.pipeline %s takes a multiple of mesh.pp (%d); "
                  "the nearest batch.global is %s%s",
                  (long long)q->s->batch.samples, m, m > 1 ? "es" : "", s->name, pp, nearest(q, below, above, text),
                  other_micro(q, m, instead, sizeof instead));
  }
  return PLAIT_OK;
}

static int check_cut(const Question *q) {
  int cut = q->o->cut, v = q->o->stages_per_rank;
  if (cut && cut != q->pp * v)
    return refuse(
        q, "parallel.layers",
        "parallel.layers has %d number%s, but must have one for each of the mesh.pp · parallel.stages_per_rank = %d "
        "· %d = %d stages",
        cut, cut > 1 ? "s" : "", q->pp, v, q->pp * v);
  for (int s = 1; s + 1 < cut; s++)
    if (!q->o->layers[s])
      return refuse(q, "parallel.layers",
                    "parallel.layers gives stage %d no layers; only the first, which has the embedding, and the last, "
                    "which has the head, can do "
                    "without",
                    s);
  return PLAIT_OK;
}

// The schedule of one stage a rank that is nearest to another: one that splits backward, too, or 1f1b.
static const ScheduleGenerator *with_one_stage(const ScheduleGenerator *s) {
  for (int i = 0; i < SCHEDULES; i++)
    if (s->splits && schedules[i].splits && schedule_can_run(&schedules[i], 1)) return &schedules[i];
  return &schedules[SCHEDULE_1F1B];
}

// Without a list every stage has a layer. With one the first and the last may have none: its sum is what counts.
static int check_stages(const Question *q) {
  const StepModel *m = q->m;
  int by_layers = m->known && FAULT(listed_stages_need_layers, !q->o->cut, 1);
  int64_t v = q->o->stages_per_rank, stages = q->pp * v,
          most = by_layers && m->layers < MAX_STAGES ? m->layers : MAX_STAGES, sum = 0;
  char limit[512];
  int least = q->pp > 1 ? q->o->schedule->least_stages : 1;
  if (stages > 1 && stages > most) {
    if (most < MAX_STAGES || (by_layers && m->layers == MAX_STAGES))
      snprintf(limit, sizeof limit, "%.400s has only %lld layers to divide", m->name, (long long)most);
    else snprintf(limit, sizeof limit, "at most %lld stages are built", (long long)most);
    int64_t fits = most / q->pp,
            ranks = v > 1 ? most / least : most; // stages a rank with this mesh, and ranks with as few stages as can be
    if (v == 1 || fits < 1) {
      q->problem->nearest[0] = ranks > 1 ? ranks : 1;
      if (v == 1)
        return refuse(q, "mesh.pp", "mesh.pp is %d, but %s; the nearest mesh.pp is %lld", q->pp, limit,
                      (long long)q->problem->nearest[0]);
      return refuse(q, "mesh.pp", "mesh.pp is %d with %lld stages a rank, but %s; the nearest mesh.pp is %lld", q->pp,
                    (long long)v, limit, (long long)q->problem->nearest[0]);
    }
    char take[96];
    snprintf(take, sizeof take, "take parallel.pipeline %s with parallel.stages_per_rank 1",
             with_one_stage(q->o->schedule)->name);
    if (fits >= least)
      snprintf(take, sizeof take, "the nearest parallel.stages_per_rank is %lld",
               (long long)(q->problem->nearest[0] = fits));
    return refuse(q, "parallel.stages_per_rank",
                  "mesh.pp %d with %lld stages a rank (parallel.stages_per_rank) makes %lld stages, but %s; %s", q->pp,
                  (long long)v, (long long)stages, limit, take);
  }
  for (int s = 0; s < q->o->cut; s++) sum += q->o->layers[s];
  if (m->known && q->o->cut && sum != m->layers)
    return refuse(q, "parallel.layers", "parallel.layers adds up to %lld, but %.400s has %lld layers", (long long)sum,
                  m->name, (long long)m->layers);
  return PLAIT_OK;
}

// ---- updates in backward -------------------------------------------------------------------------------------------

// An update that is applied in backward cannot wait for other microbatches or for the norm, and cannot be taken back.
// The message names all obstacles at once.
static int check_update(const Question *q) {
  const Step *s = q->s;
  if (!s->update.in_backward) return PLAIT_OK;
  int microbatches = microbatches_of(q, s->batch.micro);
  char first[128], micro[32];
  snprintf(first, sizeof first,
           "the gradients of %d microbatches are accumulated, so that none is complete in backward", microbatches);
  snprintf(micro, sizeof micro, "batch.micro %lld",
           (long long)((s->batch.samples + data_ranks(q) - 1) / data_ranks(q)));
  char norm[128];
  snprintf(norm, sizeof norm, "optimizer.clip is %.15g, and the global norm is known only after backward",
           s->update.clip);
  const struct { int bad; const char *why, *take;
  } obstacles[] = {
      {microbatches > 1, first, micro},
      {s->update.clip > 0, norm, "optimizer.clip 0"},
      {s->precision == DTYPE_F16, "precision: fp16 skips steps that overflow, when backward has applied them already",
       "precision: bf16"},
      {s->update.skips, "run.non_finite is skip, and what backward has applied cannot be taken back",
       "run.non_finite stop or rollback"},
  };
  char why[400] = "", take[128] = "";
  for (size_t i = 0; i < sizeof obstacles / sizeof *obstacles; i++) {
    if (!obstacles[i].bad) continue;
    size_t n = strlen(why), k = strlen(take);
    snprintf(why + n, sizeof why - n, "%s%s", n ? "; " : "", obstacles[i].why);
    snprintf(take + k, sizeof take - k, "%s%s", k ? " and " : "", obstacles[i].take);
  }
  return why[0] ? refuse(q, "parallel.update",
                         "parallel.update is in_backward, but %s; take %s, or parallel.update: end", why, take)
                : PLAIT_OK;
}

// ---- the model -----------------------------------------------------------------------------------------------------

// Rows of weights: what they cut. The vocabulary is padded where it does not divide.
static const struct { LayoutRow row; DimName dim; const char *what, *lacks; } weight_rows[] = {
    {LAYOUT_ROW_EMBED, DIM_EMBED, "the embedding width", "embedding"},
    {LAYOUT_ROW_HEADS, DIM_KV_HEADS, "the heads", "attention heads"},
    {LAYOUT_ROW_HEAD_DIM, DIM_HEAD_DIM, "the width of a head", "attention heads"},
    {LAYOUT_ROW_FFN, DIM_FFN, "the feed-forward width", "feed-forward layers"},
    {LAYOUT_ROW_POSITION, DIM_POSITION, "the learned positions", "learned positions"},
    {LAYOUT_ROW_WIDTH, DIM_EMBED, "the embedding width", "embedding"},
    {LAYOUT_ROW_EXPERT, DIM_EXPERT, "the experts", "experts"},
    {LAYOUT_ROW_EXPERT_FFN, DIM_EXPERT_FFN, "the width of an expert", "experts"},
};
enum { WEIGHT_ROWS = sizeof weight_rows / sizeof *weight_rows };

// Does the row divide its dim where `axis` has `size` ranks? Of the heads, tp may cut the query heads of a group as
// well.
static int row_fits(const Question *q, int i, AxisId axis, int size) {
  LayoutRow row = weight_rows[i].row;
  const int64_t *model = q->m->size;
  int64_t ranks = parallel_row_ranks(q->o, row);
  if (parallel_row_has(q->o, row, axis)) ranks = ranks / axis_size(q->o, axis) * size;
  AxisId heads = parallel_heads_axis(q->o);
  if (row != LAYOUT_ROW_HEADS || heads == AXIS_OWN) return model[weight_rows[i].dim] % ranks == 0;
  int64_t tp = axis == heads ? size : axis_size(q->o, heads), of_kv = parallel_kv_ranks(q->m, (int)tp);
  return model[DIM_KV_HEADS] % (ranks / tp * of_kv) == 0 && model[DIM_GROUP] % (tp / of_kv) == 0;
}

static int axis_fits(const Question *q, AxisId axis, int size) {
  for (int i = 0; i < WEIGHT_ROWS; i++)
    if (parallel_row_has(q->o, weight_rows[i].row, axis) && !row_fits(q, i, axis, size)) return 0;
  return 1;
}

// "the feed-forward width (48)", or where weights differ "the feed-forward width (85 of layer.1.ffn.gate)": those that
// the ranks of the row do not divide. Their common divisor is in no config.
static const char *width_text(const Question *q, int i, char *text, size_t size) {
  const StepModel *m = q->m;
  DimName dim = weight_rows[i].dim;
  int64_t ranks = parallel_row_ranks(q->o, weight_rows[i].row), all = m->size[dim];
  int kinds = 0, said = 0;
  size_t n = (size_t)snprintf(text, size, "%s (", weight_rows[i].what);
  if (weight_rows[i].row == LAYOUT_ROW_HEADS) {
    snprintf(text + n, size - n, "%lld, with %lld key and value heads)", (long long)(all * m->size[DIM_GROUP]),
             (long long)all);
    return text;
  }
  for (int k = 0; k < m->widths; k++) kinds += m->width[k].dim == dim;
  for (int k = 0; k < m->widths && FAULT(common_divisors_are_told, kinds > 1, 0); k++)
    if (m->width[k].dim == dim && m->width[k].size % ranks && n < size)
      n += (size_t)snprintf(text + n, size - n, "%s%lld of %s", said++ ? ", " : "", (long long)m->width[k].size,
                            m->width[k].of);
  if (!said) snprintf(text + n, size - n, "%lld)", (long long)all);
  else if (n < size) snprintf(text + n, size - n, ")");
  return text;
}

// "the heads (8, with 2 key and value heads) and the feed-forward width (48)": what an axis cuts and does not divide.
static const char *cut_text(const Question *q, AxisId axis, char *text, size_t size) {
  int left = 0, ranks = axis_size(q->o, axis), wrong[WEIGHT_ROWS];
  size_t n = 0;
  for (int i = 0; i < WEIGHT_ROWS; i++)
    left += wrong[i] = parallel_row_has(q->o, weight_rows[i].row, axis) && !row_fits(q, i, axis, ranks);
  for (int i = 0; i < WEIGHT_ROWS && n < size; i++) {
    if (!wrong[i]) continue;
    left--;
    const char *before = !n ? "" : left ? ", " : " and ";
    char width[200];
    n += (size_t)snprintf(text + n, size - n, "%s%s", before, width_text(q, i, width, sizeof width));
  }
  return text;
}

// "layout.heads and layout.ffn": the keys of these rows.
static const char *cut_keys(const Question *q, AxisId axis, char *text, size_t size) {
  int left = 0, ranks = axis_size(q->o, axis), wrong[WEIGHT_ROWS];
  size_t n = 0;
  for (int i = 0; i < WEIGHT_ROWS; i++)
    left += wrong[i] = parallel_row_has(q->o, weight_rows[i].row, axis) && !row_fits(q, i, axis, ranks);
  for (int i = 0; i < WEIGHT_ROWS && n < size; i++)
    if (wrong[i])
      n += (size_t)snprintf(text + n, size - n, "%s%s", !n ? "" : --left > 1 ? ", " : " and ",
                            row_keys[weight_rows[i].row]);
  return text;
}

static const char *axis_key(AxisId axis) {
  return axis == AXIS_DP ? "mesh.dp" : axis == AXIS_CP ? "mesh.cp" : axis == AXIS_TP ? "mesh.tp" : "mesh";
}

// A size of the axis, next to its own, with which it fits; 0: none.
static int fitting(const Question *q, const Axis *axis, int step, int end) {
  for (int size = axis_size(q->o, axis->id) + step; size != end; size += step)
    if (axis_fits(q, axis->id, size)) return size;
  return 0;
}

static int row_divides(const Question *q, int i) {
  return !q->o->layout.row[weight_rows[i].row].count || row_fits(q, i, AXIS_OWN, 1);
}

// Do all rows of weights divide the model's sizes?
static int sizes_fit(const StepParallel *o, const void *model) {
  Question q = {.o = o, .m = model};
  int fit = 1;
  for (int i = 0; q.m->known && i < WEIGHT_ROWS; i++) fit &= row_divides(&q, i);
  return fit;
}

static int check_tensor_sizes(const Question *q) {
  char text[64], grid[80], list[64], width[200];
  int wrong = 0, tp = parallel_tp_ranks(q->o);
  if (q->o->tensor == LAYOUT_TENSOR_1D || tp == 1 || sizes_fit(q->o, q->m)) return PLAIT_OK;
  if (q->problem->unread) return PLAIT_INFEASIBLE; // whichever axis is to blame: check_weights sees it too
  while (row_divides(q, wrong)) wrong++;
  LayoutRow row = weight_rows[wrong].row;
  parallel_nearest_tp(q->o, sizes_fit, q->m, q->problem, text);
  if (!q->problem->nearest[0] && !q->problem->nearest[1]) return PLAIT_OK; // another axis is to blame
  return refuse(q, "mesh.tp",
                "mesh.tp is %d, with parallel.tensor %s %s, of which layout.%s %s does not divide %s of %.120s "
                "evenly; the nearest mesh.tp is %s",
                tp, parallel_tensor_names[q->o->tensor], parallel_grid_text(q->o, grid), row_names[row],
                row_text(q, row, list), width_text(q, wrong, width, sizeof width), q->m->name, text);
}

// Of the axes that do not fit, the innermost is blamed that would with another size.
static int check_weights(const Question *q) {
  if (!q->m->known) return PLAIT_OK;
  for (int i = 0; i < WEIGHT_ROWS; i++)
    if (q->o->layout.row[weight_rows[i].row].count > 0 && !q->m->size[weight_rows[i].dim] &&
        !(weight_rows[i].dim == DIM_FFN && q->m->size[DIM_EXPERT]) && // shipped Layouts cut it; all layers have experts
        weight_rows[i].dim != DIM_EXPERT_FFN)                         // or none
      return refuse(q, row_keys[weight_rows[i].row], "%s is given, but %s has no %s; leave it out",
                    row_keys[weight_rows[i].row], q->m->family, weight_rows[i].lacks);
  for (int a = q->o->mesh.naxis - 1; a >= 0; a--) {
    const Axis *axis = &q->o->mesh.axis[a];
    if (axis->id == AXIS_OWN || axis_fits(q, axis->id, axis_size(q->o, axis->id))) continue;
    if (q->problem->unread) return PLAIT_INFEASIBLE;
    int below = fitting(q, axis, -1, 0), above = fitting(q, axis, 1, 8 * axis->size);
    if (!below && !above) continue;
    char cut[300], keys[160], text[64];
    nearest(q, below, above, text);
    return refuse(q, axis_key(axis->id),
                  "mesh.%s is %d, which does not divide %s of %.120s evenly; the nearest is %s, or take %s out of %s",
                  axis->name, axis->size, cut_text(q, axis->id, cut, sizeof cut), q->m->name, text, axis->name,
                  cut_keys(q, axis->id, keys, sizeof keys));
  }
  for (int i = 0; i < WEIGHT_ROWS; i++) { // several axes together
    char list[64], width[200];
    if (q->o->layout.row[weight_rows[i].row].count > 0 && !row_fits(q, i, AXIS_OWN, 1))
      return refuse(q, row_keys[weight_rows[i].row],
                    "%s is %s, %lld ranks, which do not divide %s of %.120s evenly; take one of these axes out",
                    row_keys[weight_rows[i].row], row_text(q, weight_rows[i].row, list),
                    (long long)parallel_row_ranks(q->o, weight_rows[i].row), width_text(q, i, width, sizeof width),
                    q->m->name);
  }
  return PLAIT_OK;
}

static int check_delay(const Question *q) {
  int code = parallel_check_delay(q->s, q->m, q->problem);
  return code ? code : parallel_check_stream(q->s, q->m, q->pp, microbatches(q), q->problem);
}
static int check_experts(const Question *q) { return parallel_check_experts(q->s, q->m, q->problem); }

static int check_context(const Question *q) { return parallel_check_context(q->s, q->m, q->problem); }

int parallel_check(const Step *s, const StepModel *m, ParallelProblem *problem) {
  static int (*const rules[])(const Question *) = {
      check_balance, check_shard_group, check_tensor, check_data, check_meeting,      check_stages,  check_schedule,
      check_cut,         check_update, check_zero, check_tensor_sizes, check_weights, check_context,
      check_delay,       check_experts};
  ParallelProblem unread = {.unread = 1};
  if (problem) *problem = (ParallelProblem){.key = NULL};
  else problem = &unread;
  const StepParallel *o = &s->parallel;
  Question q = {s, o, m, axis_size(o, AXIS_PP), axis_size(o, AXIS_DP), axis_size(o, AXIS_CP), problem};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    int code = rules[i](&q);
    if (code) return code;
  }
  return PLAIT_OK;
}
