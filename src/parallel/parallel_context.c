// The judge of context parallelism: which ranks of cp can exchange positions for heads, and which can be rings.
#include "parallel/parallel_context.h"
#include "parallel/parallel_problem.h"
#include "parallel/parallel_tensor.h"

typedef struct Question {
  const Step *s;
  const StepParallel *o; // of the step
  const StepModel *m;
  int cp;
  ParallelProblem *problem;
} Question;

int parallel_exchange_fits(const Step *s, const StepModel *m, int ranks) {
  AlgorithmCall c = parallel_context_call(s, m);
  c.inner = c.ranks = ranks;
  return algorithm_accepts(algorithm_listed(CHOICE_CONTEXT, ALGORITHM_ULYSSES), &c, NULL, 0);
}

static int heads_fit(const Question *q, int ranks) { return parallel_exchange_fits(q->s, q->m, ranks); }

// A size of cp next to its own whose ranks can; 0: none.
static int fitting_cp(const Question *q, int step) {
  for (int n = q->cp + step; n > 1 && n <= 4 * q->cp; n += step)
    if (heads_fit(q, n)) return n;
  return 0;
}

// "6 heads (with 2 key and value heads)": those that a rank of tp has.
static const char *heads_text(const Question *q, char text[96]) {
  AlgorithmCall c = parallel_context_call(q->s, q->m);
  long long kv = c.size['g' - 'a'], heads = kv * c.size['r' - 'a'];
  snprintf(text, 96, "%lld head%s (with %lld key and value head%s)", heads, heads > 1 ? "s" : "", kv,
           kv > 1 ? "s" : "");
  return text;
}

static const char *left_by_tp(const Question *q) {
  return parallel_tp_ranks(q->o) > 1 && parallel_heads_axis(q->o) != AXIS_OWN ? "on each rank of tp " : "";
}

static int check_exchange_of_all(const Question *q) {
  char text[64] = "1", heads[96];
  int below = fitting_cp(q, -1), above = fitting_cp(q, 1);
  if (heads_fit(q, q->cp)) return PLAIT_OK;
  if (below || above) parallel_nearest(q->problem, below, above, text);
  else q->problem->nearest[0] = 1;
  return parallel_refuse(
      q->problem, "mesh.cp",
      "mesh.cp is %d, and that many ranks are to exchange positions for heads (parallel.context ulysses), but "
      "%s%.120s has %s, which they do not divide evenly; the nearest is %s, or take parallel.context gather%s",
      q->cp, left_by_tp(q), q->m->name, heads_text(q, heads), text,
      q->o->ulysses ? " and leave parallel.ulysses out" : "");
}

// Can `ranks` ranks of cp exchange positions for heads, as parallel.context says?
static int ulysses_fits(const Question *q, int ranks) {
  if (q->cp % ranks || !heads_fit(q, ranks)) return 0;
  return q->o->context == ALGORITHM_GATHER    ? ranks == 1
         : q->o->context == ALGORITHM_ULYSSES ? ranks == q->cp
         : q->o->context == ALGORITHM_RING    ? ranks < q->cp
                                              : 1;
}

// "the nearest is 2 or 4, or leave parallel.ulysses out"
static const char *other_ulysses(const Question *q, char text[128]) {
  int below = q->o->ulysses < q->cp ? q->o->ulysses : q->cp, above = q->o->ulysses;
  char near[64];
  while (below > 0 && !ulysses_fits(q, below)) below--;
  while (above <= q->cp && !ulysses_fits(q, above)) above++;
  parallel_nearest(q->problem, below, above > q->cp ? 0 : above, near);
  snprintf(text, 128, "the nearest is %s, or leave parallel.ulysses out", near);
  return text;
}

int parallel_check_context(const Step *s, const StepModel *m, ParallelProblem *problem) {
  const StepParallel *o = &s->parallel;
  Question asked = {s, o, m, parallel_word_ranks(o, AXIS_CP), problem};
  const Question *q = &asked;
  int cp = q->cp, inner = q->o->ulysses;
  AlgorithmName context = q->o->context;
  char take[128], heads[96];
  if (cp == 1 || !parallel_row_has(q->o, LAYOUT_ROW_SEQ, AXIS_CP) || !q->m->known) return PLAIT_OK;
  if (context == ALGORITHM_ULYSSES && check_exchange_of_all(q)) return PLAIT_INFEASIBLE;
  if (!inner || ulysses_fits(q, inner)) return PLAIT_OK;
  other_ulysses(q, take);
  int can = cp % inner == 0 && heads_fit(q, inner);
  if (context == ALGORITHM_GATHER)
    return parallel_refuse(
        q->problem, "parallel.ulysses",
        "parallel.ulysses is %d, but parallel.context is gather, with which no ranks exchange positions for "
        "heads; leave parallel.ulysses out%s%s",
        inner, can ? ", or take parallel.context " : "", can ? inner == cp ? "ulysses" : "ring" : "");
  if (cp % inner)
    return parallel_refuse(q->problem, "parallel.ulysses", "parallel.ulysses is %d, but must divide mesh.cp (%d); %s",
                           inner, cp, take);
  if (context == ALGORITHM_ULYSSES)
    return parallel_refuse(
        q->problem, "parallel.ulysses",
        "parallel.ulysses is %d, but parallel.context is ulysses, with which all %d ranks of mesh.cp exchange "
        "positions for heads; %s, or take parallel.context ring",
        inner, cp, take);
  if (context == ALGORITHM_RING && inner == cp)
    return parallel_refuse(
        q->problem, "parallel.ulysses",
        "parallel.ulysses is %d, all ranks of mesh.cp, but parallel.context is ring, which then has no ranks; %s",
        inner, take);
  return parallel_refuse(
      q->problem, "parallel.ulysses",
      "parallel.ulysses is %d, and that many ranks are to exchange positions for heads, but %s%.120s has %s, "
      "which they do not divide evenly; %s",
      inner, left_by_tp(q), q->m->name, heads_text(q, heads), take);
}
