// Cuts a partitioned graph into segments and finds what crosses their borders.
#include "pipeline/schedule.h"

static Segment *segment_of(Segments *s, const Node *n) {
  if (n->region == REGION_BEGIN) return &s->begin;
  if (n->region == REGION_END) return &s->end;
  return &s->micro[n->stage][n->phase];
}

static int listed(const CrossingList *list, int tensor, int stage) {
  for (int i = 0; i < list->count; i++)
    if (list->data[i].tensor == tensor && (stage < 0 || list->data[i].stage == stage)) return 1;
  return 0;
}

// A tensor made in another stage arrives once, in the first segment here that reads it (nodes come forward first).
static void cross(Segments *s, const Graph *g, const Node *reader, int tensor) {
  const Tensor *t = graph_tensor(g, tensor);
  if (t->producer < 0 || t->variable >= 0) return;
  const Node *maker = &g->node.data[t->producer];
  if (maker->stage == reader->stage) return;
  for (int phase = 0; phase < PHASE_COUNT; phase++)
    if (listed(&s->micro[reader->stage][phase].receive, tensor, -1)) return;
  vec_push(&s->micro[reader->stage][reader->phase].receive, (Crossing){tensor, maker->stage});
  vec_push(&s->micro[maker->stage][maker->phase].send, (Crossing){tensor, reader->stage});
}

Segments *segments_of(const Graph *g) {
  Segments *s = xcalloc(1, sizeof *s);
  s->stages = g->stages;
  s->micro = xcalloc((size_t)g->stages, sizeof *s->micro);
  for (int i = 0; i < g->node.count; i++) vec_push(&segment_of(s, &g->node.data[i])->node, i);
  for (int phase = 0; phase < PHASE_COUNT; phase++)
    for (int i = 0; i < g->node.count; i++) {
      const Node *n = &g->node.data[i];
      if (n->region != REGION_MICRO || (int)n->phase != phase) continue;
      for (int k = 0; k < n->ninput; k++)
        if (n->input[k] >= 0) cross(s, g, n, n->input[k]);
    }
  return s;
}

static void segment_free(Segment *s) {
  vec_free(&s->node);
  vec_free(&s->receive);
  vec_free(&s->send);
}

void segments_free(Segments *s) {
  if (!s) return;
  segment_free(&s->begin);
  segment_free(&s->end);
  for (int i = 0; i < s->stages; i++)
    for (int p = 0; p < PHASE_COUNT; p++) segment_free(&s->micro[i][p]);
  free(s->micro);
  free(s);
}
