// Desync check: hashes of what a rank issued and holds, compared with those of its peers.
#include "runtime/desync.h"
#include "comm/comm.h"
#include "base/fault.h"
#include "base/hash.h"
#include "program/calls.h"
#include "runtime/bind.h"
#include "runtime/observer.h"
#include <stdlib.h>
#include <string.h>

typedef struct Entry { uint64_t hash; int32_t microbatch, padding; char what[112]; } Entry;
typedef struct Log { Vec(Entry) entry; uint64_t chain; } Log;

// One for a Variable's storage or Copy that may have replicas.
typedef struct Item { int variable, copy; } Item;

struct Desync {
  const Program *p;
  const State *state;
  PlaitComm *world;
  int pp, rank, ranks;
  GroupList group;
  int logs;       // groups, then (direction, peer, sent or received)
  Log *log;
  Vec(Item) item;
  uint64_t *box;  // (items × ranks) which part each rank holds; 0: none
  char *piece;    // (HASH_AT_ONCE elements of any dtype) of a Variable
};
enum { HASH_AT_ONCE = 1 << 15 };

// Which part of it a rank holds, as a number above 0; the same part, the same number.
static uint64_t box_of(const Desync *a, const Variable *v, const Placement *placement, int rank) {
  const Mesh *mesh = &a->p->mesh;
  if (!mesh_runs_stages(mesh, mesh_pipeline_coordinate(mesh, rank), graph_stages(a->p->graph, v->stages)) ||
      !placement_here(mesh, placement, rank))
    return 0;
  ShardBoxes b = {.shard = shard_of(mesh, placement, &v->shape, rank)};
  uint64_t part = 1;
  while (shard_next(&b))
    for (int d = 0; d < v->shape.rank; d++)
      part = hash_mix(hash_mix(part, (uint64_t)b.box.local[d]), (uint64_t)b.box.offset[d]);
  return part | 1;
}

// Accumulators are partial sums, or scattered and of no use after END.
static void find_items(Desync *a) {
  const Graph *g = a->p->graph;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    // Scales follow from moments; where ranks have parts of a block, a checkpoint leaves each with its part's
    // (encoding_codes.c).
    if (v->kind == VARIABLE_GRADIENT || variable_is_of_blocks(v)) continue;
    for (int copy = -1; copy < FAULT(check_of_copies, v->copies, 0); copy++)
      if (!variable_placement(v, copy)->partial) vec_push(&a->item, (Item){i, copy});
  }
  a->box = xcalloc((size_t)a->item.count * (size_t)a->ranks + 1, sizeof *a->box);
  for (int i = 0; i < a->item.count; i++)
    for (int r = 0; r < a->ranks; r++) {
      const Variable *v = &g->variable.data[a->item.data[i].variable];
      a->box[i * a->ranks + r] = box_of(a, v, variable_placement(v, a->item.data[i].copy), r);
    }
}

Desync *desync_create(const Program *p, const State *state, PlaitComm *world) {
  CHECK(p == state->program, "ranks compare the Variables of the State's own Program");
  if (!world || p->mesh.ranks == 1) return NULL;
  Desync *a = xcalloc(1, sizeof *a);
  *a = (Desync){.p = p, .state = state, .world = world, .rank = state->rank, .ranks = p->mesh.ranks};
  a->pp = mesh_pipeline_ranks(&p->mesh);
  graph_groups(p->graph, &p->mesh, &a->group);
  a->logs = a->group.count + 4 * a->pp;
  a->log = xcalloc((size_t)a->logs, sizeof *a->log);
  a->piece = xcalloc(HASH_AT_ONCE, sizeof(double));
  find_items(a);
  return a;
}

void desync_destroy(Desync *a) {
  if (!a) return;
  for (int i = 0; i < a->logs; i++) vec_free(&a->log[i].entry);
  vec_free(&a->item);
  free(a->log);
  vec_free(&a->group);
  free(a->box);
  free(a->piece);
  free(a);
}

static void note(Log *log, Entry e) {
  log->chain = hash_mix(log->chain, e.hash);
  vec_push(&log->entry, e);
}

static void note_collective(Desync *a, const Node *n, int microbatch, int64_t elements) {
  Entry e = {.microbatch = n->region == REGION_MICRO ? microbatch : -1};
  snprintf(e.what, sizeof e.what, "%s of %s", op_def(n->op)->name, n->name);
  Call call = {.node = n, .microbatch = e.microbatch};
  call.bytes = elements * (int64_t)dtype_size(graph_tensor(a->p->graph, n->input[0])->dtype);
  e.hash = call_hash(a->p, &call);
  note(&a->log[group_find(&a->group, a->p->graph, &a->p->mesh, n)], e);
}

static int transfer_log(const Desync *a, int direction, int peer, int send) {
  return a->group.count + (direction * a->pp + peer) * 2 + send;
}

static void note_transfer(Desync *a, const Action *action, int direction, int peer) {
  Entry e = {.microbatch = action->microbatch};
  snprintf(e.what, sizeof e.what, "transfer of %s", graph_tensor(a->p->graph, action->tensor)->name);
  Call call = {.kind = CALL_SEND, .tensor = action->tensor, .microbatch = action->microbatch}; // the same on both sides
  e.hash = call_hash(a->p, &call);
  note(&a->log[transfer_log(a, direction, peer, action->kind == ACTION_SEND)], e);
}

static void see(void *self, const Observation *o) {
  if (o->event == OBSERVE_COLLECTIVE) note_collective(self, o->node, o->microbatch, o->elements);
  else note_transfer(self, o->action, o->direction, o->peer);
}

const ObserverDef observer_desync = {"desync", OBSERVES(COLLECTIVE) | OBSERVES(TRANSFER), 0, see};

// Comparing ---------------------------------------------------------------------------------------------------------

static int failed(const Desync *a, Error *error) {
  return plait_comm_failure(a->world, error);
}

static const char *rank_text(const Desync *a, int rank, char *text, size_t size) {
  const Mesh *mesh = &a->p->mesh;
  size_t n = (size_t)snprintf(text, size, "rank %d (", rank);
  for (int i = 0, first = 1; i < mesh->naxis && n < size; i++) {
    if (mesh->axis[i].size == 1) continue;
    n += (size_t)snprintf(text + n, size - n, "%s%s %d", first ? "" : " ", mesh->axis[i].name,
                          mesh_coordinate(mesh, rank, i));
    first = 0;
  }
  if (n < size) snprintf(text + n, size - n, ")");
  return text;
}

// The log of `rank` in every rank's memory; freed by the caller.
static int spread_log(Desync *a, int log, int rank, Entry **out, int *count, Error *error) {
  int64_t n = a->log[log].entry.count;
  if (plait_broadcast(a->world, &(PlaitBuffer){&n, &n, 1}, 1, PLAIT_INT64, rank, NULL, NULL)) return failed(a, error);
  Entry *list = xcalloc((size_t)n + 1, sizeof *list);
  if (rank == a->rank && n) memcpy(list, a->log[log].entry.data, (size_t)n * sizeof *list);
  *out = list;
  *count = (int)n;
  if (plait_broadcast(a->world, &(PlaitBuffer){list, list, (size_t)n * sizeof *list}, 1, PLAIT_UINT8, rank, NULL, NULL))
    return failed(a, error);
  return PLAIT_OK;
}

static void entry_text(const Entry *list, int count, int at, char *text, size_t size) {
  if (at >= count) snprintf(text, size, "nothing");
  else if (list[at].microbatch < 0) snprintf(text, size, "%s", list[at].what);
  else snprintf(text, size, "%s, microbatch %d", list[at].what, list[at].microbatch);
}

static int name_order(Desync *a, int64_t step, int x_rank, int x_log, int y_rank, int y_log, Error *error) {
  Entry *x = NULL, *y = NULL;
  int nx = 0, ny = 0, at = 0;
  int code = spread_log(a, x_log, x_rank, &x, &nx, error);
  if (!code) code = spread_log(a, y_log, y_rank, &y, &ny, error);
  if (!code) {
    char rank[2][128], what[2][192];
    while (at < nx && at < ny && x[at].hash == y[at].hash) at++;
    entry_text(x, nx, at, what[0], sizeof what[0]);
    entry_text(y, ny, at, what[1], sizeof what[1]);
    code = error_set_about(error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(x_rank, NULL)},
                           "run.desync_check: step %lld: call %d of %s is %s, but of %s it is %s", (long long)step,
                           at + 1, rank_text(a, x_rank, rank[0], sizeof rank[0]), what[0],
                           rank_text(a, y_rank, rank[1], sizeof rank[1]), what[1]);
  }
  free(x);
  free(y);
  return code;
}

// Every rank looks through all ranks' chains in the same order, so that all find the same fault.
static int check_groups(Desync *a, int64_t step, const uint64_t *chain, Error *error) {
  Arena scratch = {0};
  int *ranks = arena_array(&scratch, int, a->ranks), code = PLAIT_OK, pp = mesh_pipeline(&a->p->mesh);
  for (int k = 0; k < a->group.count && !code; k++)
    for (int r = 0; r < a->ranks && !code; r++) {
      const Group *g = &a->group.data[k];
      if (g->axes >> pp & 1 && !stages_have(&g->coordinates, mesh_coordinate(&a->p->mesh, r, pp))) continue;
      int n = mesh_group(&a->p->mesh, r, g->axes, &g->coordinates, ranks);
      if (n && chain[ranks[0] * a->logs + k] != chain[r * a->logs + k])
        code = name_order(a, step, ranks[0], k, r, k, error);
    }
  arena_free(&scratch);
  return code;
}

static int check_transfers(Desync *a, int64_t step, const uint64_t *chain, Error *error) {
  const Mesh *mesh = &a->p->mesh;
  int pp = mesh_pipeline(mesh), code = PLAIT_OK, ranks[MAX_STAGES];
  for (int r = 0; r < a->ranks && !code && a->pp > 1; r++) {
    mesh_group(mesh, r, 1u << pp, NULL, ranks);
    for (int direction = 0; direction < 2; direction++)
      for (int peer = 0; peer < a->pp && !code; peer++) {
        int sent = transfer_log(a, direction, peer, 1),
            got = transfer_log(a, direction, mesh_coordinate(mesh, r, pp), 0);
        if (chain[r * a->logs + sent] != chain[ranks[peer] * a->logs + got])
          code = name_order(a, step, r, sent, ranks[peer], got, error);
      }
  }
  return code;
}

static int check_order(Desync *a, int64_t step, Error *error) {
  size_t n = (size_t)a->logs;
  uint64_t *mine = xcalloc(n, sizeof *mine), *all = xcalloc(n * (size_t)a->ranks, sizeof *all);
  for (int i = 0; i < a->logs; i++) mine[i] = a->log[i].chain;
  int code = plait_all_gather(a->world, &(PlaitBuffer){mine, all, n}, 1, PLAIT_INT64, NULL, NULL) ? failed(a, error)
                                                                                                  : PLAIT_OK;
  if (!code) code = check_groups(a, step, all, error);
  if (!code) code = FAULT(check_of_transfers, check_transfers(a, step, all, error), PLAIT_OK);
  free(mine);
  free(all);
  for (int i = 0; i < a->logs; i++) {
    a->log[i].entry.count = 0;
    a->log[i].chain = 0;
  }
  return code;
}

// Replicas ----------------------------------------------------------------------------------------------------------

static uint64_t hash_bytes(const char *data, size_t bytes) {
  uint64_t h = bytes, word;
  for (; bytes >= 8; data += 8, bytes -= 8) {
    memcpy(&word, data, 8);
    h = hash_mix(h, word);
  }
  word = 0;
  memcpy(&word, data, bytes);
  return hash_mix(h, word);
}

// Of what exists globally: padding may hold anything. Ranks that hold the same box go through the same pieces.
static uint64_t hash_item(const Desync *a, const Item *item) {
  size_t size = dtype_size(state_dtype(a->state, item->variable, item->copy));
  uint64_t h = 1;
  for (ShardBoxes b = state_boxes(a->state, item->variable, item->copy); shard_next(&b);) {
    BoxPieces pieces = {.whole = b.box, .most = HASH_AT_ONCE};
    while (box_next_piece(&pieces)) {
      state_read(a->state, item->variable, item->copy, &pieces.piece, a->piece);
      h = hash_mix(h, hash_bytes(a->piece, (size_t)box_elements(&pieces.piece) * size));
    }
  }
  return h;
}

static int check_replicas(Desync *a, int64_t step, Error *error) {
  int n = a->item.count, code = PLAIT_OK;
  uint64_t *mine = xcalloc((size_t)n + 1, sizeof *mine), *all = xcalloc((size_t)n * (size_t)a->ranks + 1, sizeof *all);
  for (int i = 0; i < n; i++) mine[i] = hash_item(a, &a->item.data[i]);
  if (plait_all_gather(a->world, &(PlaitBuffer){mine, all, (size_t)n}, 1, PLAIT_INT64, NULL, NULL))
    code = failed(a, error);
  for (int i = 0; i < n && !code; i++)
    for (int r = 1; r < a->ranks && !code; r++) {
      const uint64_t *box = a->box + i * a->ranks;
      int first = 0;
      while (box[first] != box[r]) first++;
      if (!box[r] || all[first * n + i] == all[r * n + i]) continue;
      char rank[2][128];
      code = error_set_about(
          error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(first, NULL)},
          "run.desync_check: step %lld: %s and %s hold different bits of the same part of %s%s",
          (long long)step, rank_text(a, first, rank[0], sizeof rank[0]), rank_text(a, r, rank[1], sizeof rank[1]),
          a->p->graph->variable.data[a->item.data[i].variable].name, a->item.data[i].copy < 0 ? "" : " (its copy)");
    }
  free(mine);
  free(all);
  return code;
}

int desync_check(Desync *a, int64_t step, Error *error) {
  if (!a) return PLAIT_OK;
  int code = FAULT(check_of_order, check_order(a, step, error), PLAIT_OK);
  return code ? code : FAULT(check_of_replicas, check_replicas(a, step, error), PLAIT_OK);
}
