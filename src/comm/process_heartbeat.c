// Heartbeats of ranks that are processes, in the control context.
#include "comm/process.h"

// A thread that waits inside the wire may have the lock for ever; the others let go of it all the time, but come back
// at once.
static const long HEARTBEAT_LOCK_LIMIT = 250000000; // ns

static void send_heartbeat(ProcessWorld *w, const Heartbeat *mine, int to) {
  int done = 1;
  if (w->heartbeat_out[to].pending) w->wire->test(w, &w->heartbeat_out[to], &done);
  if (!done) return; // the one before has not gone yet: that rank does not receive
  w->heartbeats[to] = *mine;
  control_post(w, WIRE_SEND, &w->heartbeats[to], sizeof w->heartbeats[to], to, TAG_HEARTBEAT, &w->heartbeat_out[to]);
}

// All that have come: who takes one at a time gets later and later with many ranks.
static void receive_heartbeats(ProcessWorld *w, HeartbeatReceived received, void *context) {
  for (int arrived = 1; arrived;) {
    if (!w->heartbeat_in.pending &&
        control_post(w, WIRE_RECEIVE, &w->heartbeat, sizeof w->heartbeat, -1, TAG_HEARTBEAT, &w->heartbeat_in))
      return;
    if (w->wire->test(w, &w->heartbeat_in, &arrived)) return;
    if (arrived) received(context, &w->heartbeat);
  }
}

void process_heartbeat(PlaitWorld *base, const Heartbeat *mine, int to, HeartbeatReceived received, void *context) {
  ProcessWorld *w = (ProcessWorld *)base;
  if (!process_lock_within(w, HEARTBEAT_LOCK_LIMIT)) return;
  for (int r = 0; r < to && r < base->ranks && r < HEARTBEATS; r++)
    if (r != w->rank) send_heartbeat(w, mine, r);
  if (w->rank < to) receive_heartbeats(w, received, context);
  process_unlock(w);
}

// What is still under way when all ranks leave is of no use to anybody.
void heartbeats_forget(ProcessWorld *w) {
  WireRequest *requests[HEARTBEATS + 1] = {&w->heartbeat_in};
  for (int r = 0; r < HEARTBEATS; r++) requests[r + 1] = &w->heartbeat_out[r];
  for (int i = 0; i < HEARTBEATS + 1; i++) {
    int done = 1;
    if (requests[i]->pending) w->wire->test(w, requests[i], &done);
    if (!done) w->wire->forget(w, requests[i]);
  }
}
