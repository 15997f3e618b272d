// What a rank has sent and received over each set of axes, counted at the wire, against what the plan says of it.
#pragma once
#include "comm/comm.h"
#include "program/calls.h"
#include "program/traffic.h"
#include "runtime/rank.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COUNTED_MOST = 32 };
typedef struct Counted { uint32_t axes; double sent, received; } Counted; // bytes of elements

static inline Counted *counted_over(Counted *list, int *n, uint32_t axes) {
  for (int i = 0; i < *n; i++)
    if (list[i].axes == axes) return &list[i];
  CHECK(*n < COUNTED_MOST);
  list[*n] = (Counted){.axes = axes};
  return &list[(*n)++];
}

// So far, with the calls of its training Program. Returns how many sets of axes there are.
static inline int counted_of(const Rank *r, Counted *list) {
  int n = 0;
  for (int i = 0; i < executor_comms(r->train); i++) {
    uint32_t axes;
    const PlaitComm *comm = executor_comm(r->train, i, &axes);
    for (int p = 0; comm && p < plait_comm_size(comm); p++) {
      ProcessCount count = process_count(comm, p);
      Counted *to = counted_over(list, &n, axes);
      to->sent += (double)count.sent, to->received += (double)count.received;
    }
  }
  return n;
}

static inline double counted_body_varies(const Program *p, const Body *b, int microbatch, uint32_t axes, int rank) {
  double bytes = 0;
  for (int i = 0; i < b->count; i++) {
    const Node *n = &p->graph->node.data[b->instruction[i].node];
    if (!op_def(n->op)->communicates || node_owner(p->graph, n) || !call_bytes_vary(p, n)) continue;
    if (node_attr(n, CommAttr)->axes != axes) continue;
    CommVolume v = collective_volume(p, n, microbatch, rank);
    bytes += v.sent + v.received;
  }
  return bytes;
}

// What of the planned bytes follows from the data: rows of experts, of which the plan says that all have as many.
static inline double counted_varies(const Program *p, uint32_t axes, int rank) {
  double bytes = counted_body_varies(p, &p->begin, -1, axes, rank) + counted_body_varies(p, &p->end, -1, axes, rank);
  for EACH_PROGRAM_STAGE(s, p)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      for (int m = 0; m < p->schedule->microbatches; m++)
        bytes += counted_body_varies(p, &p->micro[s][phase], m, axes, rank);
  return bytes;
}

// Holds counts of `steps` steps to the plan, to the byte; what varies may be off by half. 0, or 1 and a sentence.
static inline int counted_differ(const Rank *r, const Counted *counted, int n, int steps, char *text, size_t size) {
  const Program *p = r->state->program;
  TrafficList planned = {0};
  int wrong = 0;
  program_traffic_of(p, r->rank, &planned);
  for (int i = 0; i < n && !wrong; i++) {
    Traffic of = {.axes = counted[i].axes};
    char axes[96] = "";
    for (int k = 0; k < planned.count; k++)
      if (planned.data[k].axes == of.axes) of = planned.data[k];
    double off = 0.5 * counted_varies(p, of.axes, r->rank) + 1e-9 * of.bytes;
    double sent = counted[i].sent / steps, received = counted[i].received / steps;
    wrong = !(fabs(sent - of.bytes) <= off) || !(fabs(received - of.received) <= off);
    for (int a = 0; a < p->mesh.naxis; a++)
      if (of.axes >> a & 1)
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "%s%s", *axes ? " × " : "", p->mesh.axis[a].name);
    snprintf(text, size, "rank %d over %s: %.1f bytes of a step sent, %.1f received; the plan says %.1f and %.1f",
             r->rank, axes, sent, received, of.bytes, of.received);
  }
  vec_free(&planned);
  return wrong;
}
