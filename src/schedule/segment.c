// Cuts a partitioned graph into segments and finds what crosses their borders.
#include "schedule/schedule.h"

static Segment *segment_of(Segments *s, const Node *n) {
  if (n->region == REGION_BEGIN) return &s->begin;
  if (n->region == REGION_END) return &s->end;
  return &s->micro[n->stage][n->phase];
}

static int listed(const CrossingList *list, int tensor) {
  for (int i = 0; i < list->count; i++)
    if (list->data[i].tensor == tensor) return 1;
  return 0;
}

// The stage of the same coordinate in whose slot a tensor from elsewhere lies: the one that has received it; or -1.
static int receiver(const Segments *s, int tensor, int coordinate, StageMap map) {
  for EACH_STAGE_ON(stage, coordinate, map, s->stages)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      if (listed(&s->micro[stage][phase].receive, tensor)) return stage;
  return -1;
}

// A tensor made on another coordinate arrives once, in the first segment here that reads it (nodes come in the order in
// which a microbatch passes them). WEIGHT receives nothing: it may run much later than its BACKWARD, and would take
// messages out of their order. One made in another stage of this coordinate stays in that stage's slot.
static void cross(Segments *s, const Graph *g, StageMap map, const Node *reader, int tensor) {
  const Tensor *t = graph_tensor(g, tensor);
  if (t->producer < 0 || t->variable >= 0) return;
  const Node *maker = &g->node.data[t->producer];
  if (maker->stage == reader->stage) return;
  int coordinate = stage_coordinate(reader->stage, map),
      here = stage_coordinate(maker->stage, map) == coordinate;
  int holder = here ? maker->stage : receiver(s, tensor, coordinate, map);
  Segment *micro = s->micro[reader->stage], *in = &micro[reader->phase], *out = &s->micro[maker->stage][maker->phase];
  if (holder >= 0) stages_add(&in->holders, holder);
  if (holder >= 0 && (!here || listed(&in->receive, tensor))) return;
  if (!here && reader->phase == PHASE_WEIGHT) in = &micro[PHASE_BACKWARD];
  vec_push(&in->receive, (Crossing){tensor, maker->stage, maker->phase, here});
  vec_push(&out->send, (Crossing){tensor, reader->stage, reader->phase, here});
}

// Marks what a segment receives or sends that another body of the coordinate reads: in its list of that.
static void keep(Segments *s, StageMap map, int tensor, const Node *reader) {
  int coordinate = stage_coordinate(reader->stage, map);
  for EACH_STAGE_ON(stage, coordinate, map, s->stages)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      if (stage == reader->stage && phase == (int)reader->phase) continue;
      CrossingList *lists[] = {&s->micro[stage][phase].receive, &s->micro[stage][phase].send};
      for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->count; i++)
          if (lists[l]->data[i].tensor == tensor) lists[l]->data[i].kept = 1;
    }
}

Segments *segments_of(const Graph *g, StageMap map) {
  Segments *s = xcalloc(1, sizeof *s);
  s->stages = g->stages;
  s->micro = xcalloc((size_t)g->stages, sizeof *s->micro);
  for (int i = 0; i < g->node.count; i++) vec_push(&segment_of(s, &g->node.data[i])->node, i);
  for (int phase = 0; phase < PHASE_COUNT; phase++)
    for (int i = 0; i < g->node.count; i++) {
      const Node *n = &g->node.data[i];
      if (n->region != REGION_MICRO || (int)n->phase != phase) continue;
      for (int k = 0; k < n->ninput; k++)
        if (n->input[k] >= 0) cross(s, g, map, n, n->input[k]);
    }
  for (int i = 0; i < g->node.count; i++)
    for (int k = 0; g->node.data[i].region == REGION_MICRO && k < g->node.data[i].ninput; k++) {
      int t = g->node.data[i].input[k];
      if (t >= 0 && graph_tensor(g, t)->producer >= 0 && graph_tensor(g, t)->variable < 0)
        keep(s, map, t, &g->node.data[i]);
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
