// Notes what an executor issues.
#include "runtime/issued.h"
#include "base/error.h"
#include "runtime/observer.h"
#include <stdlib.h>

Issued *issued_create(const Program *p) {
  Issued *issued = xcalloc(1, sizeof *issued);
  issued->log.program = p;
  issued->left = xcalloc((size_t)p->graph->node.count + 1, 1);
  return issued;
}

void issued_destroy(Issued *issued) {
  if (!issued) return;
  calls_free(&issued->log);
  free(issued->left);
  free(issued);
}

// Calls of owners are also in the log of ranks that leave them to the owners: the order is that of all ranks.
static int is_left_again(Issued *issued, const Observation *o) {
  char *left = &issued->left[o->node->id];
  int again = o->left_to_owner && *left;
  *left = o->left_to_owner && o->action && !again;
  return again;
}

static void see(void *self, const Observation *o) {
  Issued *issued = self;
  Call call = {.node = o->node, .microbatch = o->microbatch, .bytes = o->bytes, .stream = o->stream};
  switch (o->event) {
  case OBSERVE_ISSUED:
    if (is_left_again(issued, o)) return;
    call.kind = CALL_COLLECTIVE;
    break;
  case OBSERVE_LANDED:
    call = (Call){.kind = CALL_LANDED, .stream = CALL_ALONE, .node = o->node, .microbatch = o->microbatch};
    break;
  case OBSERVE_TRANSFER:
    call.kind = o->action->kind == ACTION_SEND ? CALL_SEND : CALL_RECV;
    call.tensor = o->action->tensor;
    call.peer = o->peer, call.direction = o->direction, call.offset = o->offset;
    break;
  default: return;
  }
  calls_note(&issued->log, call);
}

const ObserverDef observer_issued = {"issued", OBSERVES(ISSUED) | OBSERVES(LANDED) | OBSERVES(TRANSFER), 0, see};
