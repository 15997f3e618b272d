// Packing and describing of a rank's last call.
#include "comm/last_call.h"
#include "base/fault.h"
#include "comm/comm.h"
#include <stdio.h>

enum { KIND = LAST_CALL_FLAGS, SIZE = 8, NUMBER = 24 }; // shifts; the kind is stored plus 1
_Static_assert((int)COMM_KIND_COUNT < LAST_CALL_CREATE, "5 bits for the kind");

uint64_t last_call_word(int kind, int size, uint64_t number) {
  return (uint64_t)(kind + 1) << KIND | (uint64_t)(size & 0xffff) << SIZE | number << NUMBER;
}

uint64_t last_call_on_stream(int stream) {
  return LAST_CALL_STREAM | (uint64_t)FAULT(watchdog_looks_at_the_first_stream, stream, 0) << NUMBER;
}

// Of a thread that waits for its own stream both must be alive.
uint64_t last_call_newest(const LastCall *last, double *alive) {
  uint64_t own = last_call_get(&last->own);
  int64_t sign = atomic_load_explicit(&last->own_alive, memory_order_relaxed);
  if (own & LAST_CALL_STREAM) {
    int stream = (int)(own >> NUMBER) % LAST_CALL_STREAMS;
    int64_t of_stream = atomic_load_explicit(&last->stream_alive[stream], memory_order_relaxed);
    own = last_call_get(&last->stream[stream]) | LAST_CALL_STREAM | LAST_CALL_RUNS;
    sign = sign < of_stream ? sign : of_stream;
  }
  *alive = 1e-9 * (double)sign;
  return own;
}

uint64_t comm_last(const PlaitWorld *world, int rank, double *alive) {
  return last_call_newest(world_last(world, rank), alive);
}

int comm_last_runs(uint64_t last) { return (last & LAST_CALL_RUNS) != 0; }
int comm_last_waits(uint64_t last) { return (last & LAST_CALL_WAITS) != 0; }
uint64_t comm_last_set_waits(uint64_t last) { return last | LAST_CALL_WAITS; }

void comm_last_describe(uint64_t last, char *text, size_t size) {
  int kind = (int)(last >> KIND & 31) - 1, ranks = (int)(last >> SIZE & 0xffff);
  const char *state = comm_last_waits(last) ? "waits for others" : comm_last_runs(last) ? "is under way" : "is done";
  const char *stream = last & LAST_CALL_STREAM ? " on its stream" : "";
  unsigned long long number = last >> NUMBER;
  if (kind == LAST_CALL_CREATE) snprintf(text, size, "the creation of a communicator of %d ranks %s", ranks, state);
  else if (kind < 0 || kind >= COMM_KIND_COUNT) snprintf(text, size, "it has not called any collective%s", stream);
  else if (kind == COMM_SEND || kind == COMM_RECV)
    snprintf(text, size, "its last message%s, %s (number %llu with that rank, in a communicator of %d ranks), %s",
             stream, comm_traits[kind].name, number, ranks, state);
  else
    snprintf(text, size, "its last collective%s, %s (call %llu of a communicator of %d ranks), %s", stream,
             comm_traits[kind].name, number, ranks, state);
}

void last_call_describe(const LastCall *last, char *text, size_t size) {
  double alive;
  uint64_t call = last_call_newest(last, &alive);
  *text = 0;
  if (call >> LAST_CALL_FLAGS) comm_last_describe(call, text, size);
}
