// Logs of what ranks issue.
#include "program/calls.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/philox.h"
#include "op/op.h"
#include "program/traffic.h"

static int is_message(const Call *c) { return c->kind == CALL_SEND || c->kind == CALL_RECV; }

static void what_of(const Program *p, const Call *c, char *text, size_t size) {
  if (is_message(c)) snprintf(text, size, "transfer of %s", graph_tensor(p->graph, c->tensor)->name);
  else snprintf(text, size, "%s of %s", op_def(c->node->op)->name, c->node->name);
}

uint64_t call_hash(const Program *p, const Call *c) {
  char what[112];
  what_of(p, c, what, sizeof what);
  uint64_t h = hash_mix(philox_name(what), (uint64_t)(c->microbatch + 1));
  if (!is_message(c)) h = hash_mix(h, node_attr(c->node, CommAttr)->axes);
  else h = hash_mix(hash_mix(hash_mix(h, (uint64_t)c->peer), (uint64_t)c->direction), (uint64_t)c->offset);
  return hash_mix(hash_mix(hash_mix(h, (uint64_t)c->kind), (uint64_t)c->stream), (uint64_t)c->bytes);
}

void call_text(const Program *p, const Call *c, char *text, size_t size) {
  char what[112], microbatch[32] = "", stream[64] = "";
  what_of(p, c, what, sizeof what);
  if (c->microbatch >= 0) snprintf(microbatch, sizeof microbatch, ", microbatch %d", c->microbatch);
  if (!is_message(c) && c->stream >= 0)
    snprintf(stream, sizeof stream, " in flight on the stream of %s", p->mesh.axis[c->stream].name);
  if (is_message(c))
    snprintf(text, size, "%s %s%s, %s coordinate %d, %lld bytes at %lld", c->kind == CALL_SEND ? "send" : "receive",
             what, microbatch, c->kind == CALL_SEND ? "to" : "from", c->peer, (long long)c->bytes,
             (long long)c->offset);
  else
    snprintf(text, size, "%s%s%s%s, %lld bytes", c->kind == CALL_LANDED ? "wait for " : "", what, stream,
             microbatch, (long long)c->bytes);
}

int call_bytes_vary(const Program *p, const Node *n) {
  if (node_owner(p->graph, n)) return 1;
  for (int k = 0; k < n->ninput; k++)
    if (n->input[k] >= 0 && tensor_is_compact(graph_tensor(p->graph, n->input[k]))) return 1;
  return node_calls(n, COMM_ALL_TO_ALL_V);
}

int collective_stream(const Mesh *mesh, const Node *n) {
  uint32_t axes = node_attr(n, CommAttr)->axes;
  int pp = mesh_pipeline(mesh), outermost = mesh->naxis;
  if (pp >= 0 && axes >> pp & 1) return pp;
  for (int a = mesh->naxis - 1; a >= 0; a--)
    if (axes >> a & 1 && (mesh->axis[a].size > 1 || outermost == mesh->naxis)) outermost = a;
  CHECK(outermost < mesh->naxis, "a collective over no axis");
  return FAULT(collectives_share_a_stream, outermost, 0);
}

void calls_note(CallLog *log, Call call) {
  const Program *p = log->program;
  if (!is_message(&call)) {
    int varies = call_bytes_vary(p, call.node);
    if (collective_ranks(p, call.node) < 2 || (varies && call.kind == CALL_LANDED)) return;
    if (varies) call.bytes = CALL_BYTES_VARY;
    if (call.node->region != REGION_MICRO) call.microbatch = -1;
  }
  vec_push(&log->call, call);
  log->chain = hash_mix(log->chain, call_hash(p, &call));
}

void calls_free(CallLog *log) {
  vec_free(&log->call);
  log->chain = 0;
}

int calls_differ(const CallLog *a, const CallLog *b) {
  if (a->chain == b->chain) return -1;
  int i = 0;
  while (i < a->call.count && i < b->call.count &&
         call_hash(a->program, &a->call.data[i]) == call_hash(b->program, &b->call.data[i]))
    i++;
  return i;
}
