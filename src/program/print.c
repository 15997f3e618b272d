// Prints a Program for people to read.
#include "program/program.h"

static void print_place(const Program *p, int tensor, FILE *out) {
  if (tensor < 0) {
    fputs(" -", out);
    return;
  }
  const Tensor *t = graph_tensor(p->graph, tensor);
  const TensorPlace *place = &p->place[tensor];
  fprintf(out, " %%%d", tensor);
  if (place->area == AREA_VARIABLE)
    fprintf(out, "=%s%s", p->graph->variable.data[t->variable].name, t->copy >= 0 ? "#copy" : "");
  if (place->area == AREA_INPUT) fprintf(out, "=<%s>", t->name);
  long long at = place->count ? (long long)p->offset[place->first] : -1; // of the first slot, buffer or step
  if (place->area == AREA_SLOT) fprintf(out, "=slot%d+%lld", place->stage, at);
  if (place->area == AREA_STAGING) fprintf(out, "=staging%d%s+%lld", place->stage, phase_letter(place->phase), at);
  if (place->area == AREA_COMM) fprintf(out, "=comm+%lld", at);
  if (place->area == AREA_WORK) fprintf(out, "=work+%lld", at);
  fputc('(', out);
  for (int d = 0; d < t->shape.rank; d++) fprintf(out, "%s%lld", d ? "," : "", (long long)tensor_local(p->graph, t)[d]);
  fputc(')', out);
}

static void print_group(const Program *p, const Node *n, FILE *out) {
  if (!op_def(n->op)->communicates) return;
  uint32_t axes = node_attr(n, CommAttr)->axes;
  fprintf(out, " over");
  for (int a = 0; a < p->mesh.naxis; a++)
    if (axes >> a & 1) fprintf(out, " %s", p->mesh.axis[a].name);
  if (node_comm(n)->rooted) fprintf(out, " root %d", node_attr(n, CommAttr)->root);
  if (node_calls(n, COMM_SHIFT)) fprintf(out, " by %d", node_attr(n, CommAttr)->distance);
  if (node_attr(n, CommAttr)->maximum) fprintf(out, " (max)");
}

// An accumulator that the first microbatch finds empty is read by the others alone.
static void print_readers(const Program *p, const Node *n, const int *tensor, int k, FILE *out) {
  if (tensor != n->input || !program_call_lacks(p, n, k, 0)) return;
  fputs(p->schedule->microbatches > 1 ? " from microbatch 1 on" : " unread", out);
}

static void print_operands(const Program *p, const Node *n, const int *tensor, int count, const char *only, FILE *out) {
  int hidden = 0;
  for (int k = 0; k < count; k++)
    if (only && graph_operand_hidden(p->graph, n, tensor[k], only)) hidden++;
    else print_place(p, tensor[k], out), print_readers(p, n, tensor, k, out);
  if (hidden) fprintf(out, " … %d more", hidden);
}

static int print_body(const Program *p, const char *title, const Body *b, const char *only, FILE *out) {
  int count = 0;
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    if (only && !graph_node_matches(p->graph, n, only)) continue;
    if (!count++) fprintf(out, "%s\n", title);
    fprintf(out, "  %4d ", i);
    print_operands(p, n, n->output, n->noutput, only, out);
    fprintf(out, " = %s", op_name(n->op));
    print_group(p, n, out);
    print_operands(p, n, n->input, n->ninput, only, out);
    if (b->instruction[i].wait) fprintf(out, " until %d", b->instruction[i].wait);
    if (node_by_reference(p->graph, n, p->device)) fprintf(out, " (reference kernel)");
    if (node_on_host(p->graph, n, p->device)) fprintf(out, " (on the host)");
    fprintf(out, "%s   # %s\n", n->refreshes ? " where it is stale" : "", n->name);
  }
  return count;
}

int program_print(const Program *p, const char *only, FILE *out) {
  fprintf(out, "Program of pipeline rank %d of %d:", p->coordinate, p->schedule->map.coordinates);
  for EACH_PROGRAM_STAGE(s, p)
  fprintf(out, " stage %d with %d slot%s of %lld bytes,", s, p->slots[s].count, p->slots[s].count > 1 ? "s" : "",
          (long long)p->slots[s].bytes);
  fprintf(out, " working memory %lld, of which at most %lld in use, Variables %lld\n", (long long)p->arena_bytes,
          (long long)p->memory.live, (long long)p->state_bytes[0]);
  fprintf(out, "actions\n");
  WalkPlan walk = program_walk(p);
  schedule_print(&walk, p->graph, out);
  int count = print_body(p, "body BEGIN", &p->begin, only, out);
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      char title[64];
      snprintf(title, sizeof title, "body %s stage %d", phase_letter((Phase)phase), s);
      count += print_body(p, title, &p->micro[s][phase], only, out);
    }
  return count + print_body(p, "body END", &p->end, only, out);
}
