// Expert parallelism: the experts of a layer lie on the innermost ranks of dp · cp · tp, apart from how attention is
// laid out.
#include "parallel/parallel_experts.h"
#include "base/divisor.h"
#include "parallel/parallel_problem.h"
#include "parallel/parallel_tensor.h"
#include "op/expert_rows.h"
#include <string.h>

static int axis_size(const StepParallel *o, AxisId axis) { return mesh_axis_size(&o->mesh, axis); }

// Whether a word means an axis that experts are folded over.
static int is_folded(const ExpertFold *fold, AxisId word) {
  return word == AXIS_TP || (word == AXIS_CP && fold->cp > 1) || (word == AXIS_DP && fold->dp > 1);
}

int parallel_expert_fold(const StepParallel *o, int ranks, ExpertFold *fold) {
  int tp = axis_size(o, AXIS_TP), cp = axis_size(o, AXIS_CP), dp = axis_size(o, AXIS_DP),
      group = o->shard_group ? o->shard_group : dp;
  if (ranks < 2 || ranks > ROW_PARTS_MOST || ranks % tp || o->tensor != LAYOUT_TENSOR_1D) return 0;
  *fold = (ExpertFold){tp, 1, 1};
  if (ranks == tp) return 1;
  if (ranks / tp % cp) return 0;
  fold->cp = cp;
  fold->dp = ranks / tp / cp;
  return dp % fold->dp == 0 && (group % fold->dp == 0 || fold->dp == dp);
}

LayoutTable parallel_expert_rows(const StepParallel *o) {
  LayoutTable table = o->layout;
  ExpertFold fold;
  LayoutWords *width = &table.row[LAYOUT_ROW_EXPERT_FFN], left = {0};
  if (!parallel_expert_fold(o, o->experts, &fold)) return table;
  for (int i = 0; i < width->count; i++)
    if (!is_folded(&fold, width->axis[i])) left.axis[left.count++] = width->axis[i];
  *width = left;
  return table;
}

// ---- the judge -----------------------------------------------------------------------------------------------------

static int ranks_fit(const Step *s, const StepModel *m, int ranks) {
  const StepParallel *o = &s->parallel;
  ExpertFold fold;
  return ranks == 1 || (parallel_expert_fold(o, ranks, &fold) && (!m->known || m->size[DIM_EXPERT] % ranks == 0));
}

static const char *nearest_ranks(const Step *s, const StepModel *m, ParallelProblem *problem, char text[64]) {
  const StepParallel *o = &s->parallel;
  int most = axis_size(o, AXIS_DP) * axis_size(o, AXIS_CP) * axis_size(o, AXIS_TP), below = o->experts - 1,
      above = o->experts + 1;
  if (below > most) below = most;
  while (below > 0 && !ranks_fit(s, m, below)) below--;
  while (above <= most && !ranks_fit(s, m, above)) above++;
  return parallel_nearest(problem, below, above <= most ? above : 0, text);
}

static int check_fold(const Step *s, const StepModel *m, ParallelProblem *problem) {
  const StepParallel *o = &s->parallel;
  ExpertFold fold;
  int dp = axis_size(o, AXIS_DP), cp = axis_size(o, AXIS_CP), tp = axis_size(o, AXIS_TP);
  char text[64], group[64] = "";
  if (o->layout.row[LAYOUT_ROW_EXPERT].count > 0)
    return parallel_refuse(problem, "parallel.ep",
                           "parallel.ep is %d, but layout.expert says over which axes the experts lie; leave one of "
                           "them out",
                           o->experts);
  if (o->tensor != LAYOUT_TENSOR_1D && tp > 1)
    return parallel_refuse(problem, "parallel.ep",
                           "parallel.ep is %d, but parallel.tensor is %s, with which experts cannot lie on different "
                           "ranks; take 1d, or parallel.ep 1",
                           o->experts, parallel_tensor_names[o->tensor]);
  if (!m->known) return PLAIT_OK; // its experts are not known yet, of which the nearest value must be a divisor
  if (o->experts > ROW_PARTS_MOST)
    return parallel_refuse(problem, "parallel.ep",
                           "parallel.ep is %d, but experts lie on at most %d ranks; the nearest is %s", o->experts,
                           ROW_PARTS_MOST, nearest_ranks(s, m, problem, text));
  if (!parallel_expert_fold(o, o->experts, &fold)) {
    if (o->shard_group) snprintf(group, sizeof group, " and of parallel.shard_group (%d)", o->shard_group);
    return parallel_refuse(problem, "parallel.ep",
                           "parallel.ep is %d, but must be mesh.tp (%d), or mesh.tp · mesh.cp (%d) times a divisor of "
                           "mesh.dp (%d)%s; the nearest is %s",
                           o->experts, tp, tp * cp, dp, group, nearest_ranks(s, m, problem, text));
  }
  if (m->size[DIM_EXPERT] % o->experts)
    return parallel_refuse(problem, "parallel.ep",
                           "parallel.ep is %d, but must divide the %lld experts of %.120s; the nearest is %s",
                           o->experts, (long long)m->size[DIM_EXPERT], m->name, nearest_ranks(s, m, problem, text));
  return PLAIT_OK;
}

static int cuts(const StepParallel *o, LayoutRow row, AxisId axis) {
  return parallel_row_has(o, row, axis) && axis_size(o, axis) > 1;
}

// "[dp, cp, tp]": the axes of layout.expert in an order that is accepted, last those over which rows move.
static const char *row_in_order(const StepParallel *o, char text[64]) {
  static const AxisId order[] = {AXIS_DP, AXIS_CP, AXIS_TP};
  const LayoutWords *row = &o->layout.row[LAYOUT_ROW_EXPERT];
  size_t n = 0;
  for (int moving = 0; moving < 2; moving++)
    for (int a = 0; a < 3; a++) {
      int moves = cuts(o, LAYOUT_ROW_BATCH, order[a]) || cuts(o, LAYOUT_ROW_SEQ, order[a]);
      for (int i = 0; i < row->count; i++)
        if (moves == moving && row->axis[i] == order[a])
          n += (size_t)snprintf(text + n, 64 - n, "%s%s", n ? ", " : "[", axis_names[order[a]]);
    }
  snprintf(text + n, 64 - n, "]");
  return text;
}

// Axes that a row of the user's names: rows move over all of them in one call, which needs their order.
static int check_row(const StepParallel *o, ParallelProblem *problem) {
  static const AxisId order[] = {AXIS_DP, AXIS_CP, AXIS_TP};
  const LayoutWords *row = &o->layout.row[LAYOUT_ROW_EXPERT];
  int64_t ranks = parallel_row_ranks(o, LAYOUT_ROW_EXPERT);
  int next = 0, moved = 0;
  char text[64];
  if (ranks > ROW_PARTS_MOST)
    return parallel_refuse(problem, "layout.expert",
                           "layout.expert is %lld ranks, but experts lie on at most %d; take one of its axes out",
                           (long long)ranks, ROW_PARTS_MOST);
  for (int i = 0; i < row->count; i++) {
    AxisId axis = row->axis[i];
    int at = 0, moves = cuts(o, LAYOUT_ROW_BATCH, axis) || cuts(o, LAYOUT_ROW_SEQ, axis);
    if (parallel_word_ranks(o, axis) == 1) continue;
    if (o->tensor != LAYOUT_TENSOR_1D)
      return parallel_refuse(problem, "layout.expert",
                             "layout.expert names %s, but parallel.tensor is %s, with which experts cannot lie on "
                             "different ranks; take 1d, or leave it out",
                             axis_names[axis], parallel_tensor_names[o->tensor]);
    while (at < 3 && order[at] != axis) at++;
    if (!moves && moved)
      return parallel_refuse(problem, "layout.expert",
                             "layout.expert names %s, which cuts samples or positions, after an axis that does not; "
                             "take layout.expert=%s",
                             axis_names[axis], row_in_order(o, text));
    if (moves && at < next)
      return parallel_refuse(problem, "layout.expert",
                             "layout.expert names %s after %s, but rows go to experts in the order of the mesh; take "
                             "layout.expert=%s",
                             axis_names[axis], axis_names[order[next]], row_in_order(o, text));
    if (moves) moved = 1, next = at;
  }
  return PLAIT_OK;
}

// An axis that cuts tokens within one that experts are on would have to be gathered and cut again around them.
static int check_tokens(const StepParallel *o, const LayoutTable *table, int folded, const ExpertFold *fold,
                        ParallelProblem *problem) {
  static const LayoutRow tokens[] = {LAYOUT_ROW_BATCH, LAYOUT_ROW_SEQ};
  static const char *const keys[] = {"layout.batch", "layout.seq"};
  StepParallel with = *o;
  with.layout = *table;
  for (int t = 0; t < 2; t++) {
    const LayoutWords *row = &o->layout.row[tokens[t]];
    AxisId outer = AXIS_OWN; // none yet
    for (int i = 0; i < row->count; i++) {
      AxisId axis = row->axis[i];
      int on = folded ? is_folded(fold, axis) : parallel_row_has(o, LAYOUT_ROW_EXPERT, axis);
      if (parallel_word_ranks(o, axis) == 1) continue;
      if (on) outer = axis;
      else if (outer != AXIS_OWN && !cuts(&with, LAYOUT_ROW_EXPERT_FFN, axis))
        return parallel_refuse(problem, "layout.expert",
                               "layout.expert names %s, within which %s cuts %s further; name %s in layout.expert, or "
                               "in layout.expert_ffn",
                               axis_names[outer], keys[t], axis_names[axis], axis_names[axis]);
    }
  }
  return PLAIT_OK;
}

// The samples come before the positions in the order in which rows move.
static int check_order(const StepParallel *o, int folded, const ExpertFold *fold, ParallelProblem *problem) {
  int cp = folded ? fold->cp > 1 : parallel_row_has(o, LAYOUT_ROW_EXPERT, AXIS_CP),
      tp = folded || parallel_row_has(o, LAYOUT_ROW_EXPERT, AXIS_TP);
  if (!cp || !tp || !cuts(o, LAYOUT_ROW_SEQ, AXIS_CP) || !cuts(o, LAYOUT_ROW_BATCH, AXIS_TP)) return PLAIT_OK;
  return parallel_refuse(problem, folded ? "parallel.ep" : "layout.expert",
                         "experts lie over cp, which cuts positions, and over tp, which cuts samples by layout.batch; "
                         "rows go to experts in the order samples, positions: take tp out of layout.batch");
}

// The positions of a rank are dealt to parts; where context parallelism gives it two pieces, of each piece as many.
static int check_chunks(const Step *s, const StepModel *m, ParallelProblem *problem) {
  const StepParallel *o = &s->parallel;
  int ranks = parallel_row_ranks(o, LAYOUT_ROW_SEQ), pieces = 1;
  if (parallel_row_has(o, LAYOUT_ROW_SEQ, AXIS_CP) && axis_size(o, AXIS_CP) > 1)
    pieces = s->algorithm[CHOICE_CONTEXT] == ALGORITHM_ULYSSES ? 1 : 2;
  int64_t positions = s->batch.length[DIM_SEQ] / ranks / pieces, near[2];
  char text[64], over[64] = "";
  int chunks = s->transform.chunks;
  if (chunks < 2 || positions % chunks == 0) return PLAIT_OK;
  if (ranks > 1) snprintf(over, sizeof over, " over %d ranks%s", ranks, pieces > 1 ? ", in two pieces each" : "");
  nearest_divisors(positions, chunks, near);
  return parallel_refuse(problem, "moe.chunks",
                         "moe.chunks is %d, but must divide the %lld positions of a %s (data.seq_len %lld%s); the "
                         "nearest is %s",
                         chunks, (long long)positions, ranks == 1 ? "sequence" : pieces > 1 ? "piece" : "rank",
                         (long long)s->batch.length[DIM_SEQ], over, parallel_nearest(problem, near[0], near[1], text));
}

int parallel_check_experts(const Step *s, const StepModel *m, ParallelProblem *problem) {
  const StepParallel *o = &s->parallel;
  ExpertFold fold = {1, 1, 1};
  LayoutTable table = parallel_expert_rows(o);
  int code = PLAIT_OK, folded = o->experts > 1;
  if (folded && m->known && !m->size[DIM_EXPERT])
    return parallel_refuse(problem, "parallel.ep", "parallel.ep is %d, but %s has no experts; take 1, or leave it out",
                           o->experts, m->family);
  if (m->known && m->size[DIM_EXPERT]) code = check_chunks(s, m, problem);
  if (!code && folded) code = check_fold(s, m, problem);
  if (!code && folded) parallel_expert_fold(o, o->experts, &fold);
  if (!code && !folded) code = check_row(o, problem);
  if (!code) code = check_tokens(o, &table, folded, &fold, problem);
  return code ? code : check_order(o, folded, &fold, problem);
}
