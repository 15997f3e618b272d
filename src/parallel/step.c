// What a Step leaves open until a model is known, and what it must know of one.
#include "parallel/step.h"
#include "model/config.h"
#include "parallel/parallel.h"
#include "parallel/parallel_experts.h"
#include <stdio.h>
#include <string.h>

void step_model_of(const ModelConfig *c, StepModel *m) {
  *m = (StepModel){.known = c != NULL};
  if (!c) return;
  snprintf(m->name, sizeof m->name, "the model of %.400s", c->path);
  snprintf(m->family, sizeof m->family, "the %s model", model_family_name(c->family));
  m->layers = c->layers;
  m->tied = c->tied;
  m->balance_loss = c->router_aux_loss_coef;
  memcpy(m->size, c->facts.size, sizeof m->size);
  m->width = c->facts.width;
  m->widths = c->facts.widths;
}

static AlgorithmName context_of(const Step *s, const StepModel *m) {
  AlgorithmCall call = parallel_context_call(s, m);
  if (call.ranks == 1 || !parallel_row_has(&s->parallel, LAYOUT_ROW_SEQ, AXIS_CP)) return ALGORITHM_NONE;
  return s->parallel.context ? s->parallel.context : algorithm_cheapest(CHOICE_CONTEXT, &call);
}

void step_choose(Step *s, const StepModel *m) {
  s->parallel.layout = parallel_expert_rows(&s->parallel);
  s->algorithm[CHOICE_CONTEXT] = context_of(s, m);
}
