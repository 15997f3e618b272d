// Upper bounds from the action list and the bodies.
#include "program/in_flight.h"

static int started_in(const Body *b) {
  int n = 0;
  for (int i = 0; i < b->count; i++) n += b->instruction[i].wait > 0;
  return n;
}

// A body waits for all that it has started; what a REDUCE has started stays until END.
int in_flight_collectives(const Program *p) {
  int reduces = 0, most = 0;
  for (int i = 0; i < p->actions.count; i++) reduces += p->actions.data[i].kind == ACTION_REDUCE;
  for (int s = 0; s < p->graph->stages; s++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      int n = started_in(&p->micro[s][phase]);
      most = n > most ? n : most;
    }
  return reduces + most;
}

// A microbatch that enters a buffer waits until all that its predecessor there sent has arrived: no more than one
// message of each kind is under way for each buffer. All microbatches send the same.
int in_flight_messages(const Program *p, int forward, int coordinate) {
  int n = 0;
  for (int i = 0; i < p->actions.count; i++) {
    const Action *a = &p->actions.data[i];
    if (a->kind != ACTION_SEND || a->microbatch || (a->peer > a->stage) != forward ||
        stage_coordinate(a->peer, p->schedule->coordinates) != coordinate)
      continue;
    n += a->kept ? p->slots[a->stage].count : p->staging[a->stage][a->phase].count;
  }
  return n;
}
