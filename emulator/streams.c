// Streams and events. Nothing is done when it is put into a stream, but when a thread waits, by that thread: one piece of
// work after the other, of a stream that is drawn among those that events let go on, until what it waits for is done. Now
// and then a call does a piece before it is needed.
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EARLY = 4 }; // one call in so many does a piece of work, and reads pageable memory at once

static CudaStream streams;
static CudaEvent events;

static void let_go(Marker *marker) {
  if (marker && !--marker->holders) free(marker);
}

static void free_work(Work *w) {
  let_go(w->marker);
  free(w->early);
  free(w->launch);
  free(w->call);
  free(w);
}

static int is_ready(const struct CUstream_st *s) {
  return s->first && (s->first->kind != WORK_FOLLOW || s->first->marker->done);
}

static void do_first(CudaStream s) {
  Work *w = s->first;
  if (!s->context->failed && w->fails) s->context->failed = w->kind == WORK_COPY ? CUDA_ILLEGAL_ADDRESS : CUDA_LAUNCH_FAILED;
  if (w->kind == WORK_CALL) s->clock += w->call->milliseconds;
  if (w->kind == WORK_MARK) w->marker->done = 1, w->marker->at = s->clock;
  else if (!s->context->failed && w->kind == WORK_COPY) memmove(w->to, w->early ? w->early : w->from, w->bytes);
  else if (!s->context->failed && w->kind == WORK_FILL) memset(w->to, w->byte, w->bytes);
  else if (!s->context->failed && w->kind == WORK_LAUNCH) launch_run(w->launch);
  else if (!s->context->failed && w->kind == WORK_CALL) w->call->run(w->call);
  s->first = w->next;
  if (!s->first) s->last = NULL;
  free_work(w);
}

// 0: no stream has anything that it can do.
static int do_one(void) {
  uint64_t ready = 0;
  for (CudaStream s = streams; s; s = s->next) ready += (uint64_t)is_ready(s);
  if (!ready) return 0;
  uint64_t chosen = draw(ready);
  for (CudaStream s = streams; s; s = s->next)
    if (is_ready(s) && !chosen--) return do_first(s), 1;
  return 0;
}

static void put(CudaStream s, Work work) {
  Work *w = malloc(sizeof *w);
  *w = work;
  if (s->last) s->last->next = w;
  else s->first = w;
  s->last = w;
  if (!draw(EARLY)) do_one();
}

static int call_touches(const LibraryCall *c, const char *memory, size_t bytes) {
  for (int i = 0; i < c->operands; i++)
    if (c->own[i] < memory + bytes && memory < c->own[i] + c->operand[i].bytes) return 1;
  return 0;
}

int pending_in(const char *memory, size_t bytes) {
  for (CudaStream s = streams; s; s = s->next)
    for (const Work *w = s->first; w; w = w->next)
      if ((w->to && w->to < memory + bytes && memory < w->to + w->bytes) ||
          (w->from && !w->early && w->from < memory + bytes && memory < w->from + w->bytes) ||
          (w->launch && launch_touches(w->launch, memory, bytes)) || (w->call && call_touches(w->call, memory, bytes)))
        return 1;
  return 0;
}

static CudaStream check_stream(const char *call, CudaStream stream) {
  CudaStream s = streams;
  if (!stream) wrong(call, "the stream is NULL: the default one, which waits for all others");
  while (s && s != stream) s = s->next;
  if (!s) wrong(call, "%p is not a stream", (void *)stream);
  if (!s->alive) wrong(call, "%p is a stream that was destroyed", (void *)stream);
  return s;
}

static CudaEvent check_event(const char *call, CudaEvent event) {
  CudaEvent e = events;
  while (e && e != event) e = e->next;
  if (!e) wrong(call, "%p is not an event", (void *)event);
  if (!e->alive) wrong(call, "%p is an event that was destroyed", (void *)event);
  return e;
}

CudaResult enter_stream(const char *call, CudaStream stream) {
  CudaContext context;
  CudaResult result = enter(call, NEEDS_CONTEXT, &context);
  if (check_stream(call, stream)->context != context) wrong(call, "the stream belongs to another context than the current one");
  return result;
}

// Streams -----------------------------------------------------------------------------------------------------------

CudaResult cuStreamCreate(CudaStream *stream, unsigned flags) {
  CudaContext context;
  CudaResult result = enter(__func__, NEEDS_CONTEXT, &context);
  if (result) return leave(result);
  if (flags != CUDA_STREAM_OF_ITS_OWN) wrong(__func__, "flags are %u: a stream that waits for the default one", flags);
  CudaStream s = calloc(1, sizeof *s);
  *s = (struct CUstream_st){.next = streams, .context = context, .alive = 1};
  *stream = streams = s;
  return leave(CUDA_OK);
}

// Handles stay, so that a dead one is told from a live one.
CudaResult cuStreamDestroy_v2(CudaStream stream) {
  CudaResult result = enter_stream(__func__, stream);
  while (result && stream->first) do_first(stream);
  if (stream->first) wrong(__func__, "the stream has not done its work");
  stream->alive = 0;
  return leave(result);
}

CudaResult cuStreamSynchronize(CudaStream stream) {
  CudaResult result = enter_stream(__func__, stream);
  while (!result && stream->first && do_one()) continue;
  if (!result && stream->first) wrong(__func__, "the stream waits for ever");
  return leave(result ? result : stream->context->failed);
}

CudaResult cuStreamWaitEvent(CudaStream stream, CudaEvent event, unsigned flags) {
  CudaResult result = enter_stream(__func__, stream);
  Marker *marker = check_event(__func__, event)->marker;
  if (result) return leave(result);
  if (!marker) wrong(__func__, "the event was never recorded");
  marker->holders++;
  put(stream, (Work){.kind = WORK_FOLLOW, .marker = marker});
  return leave(CUDA_OK);
}

// Events ------------------------------------------------------------------------------------------------------------

CudaResult cuEventCreate(CudaEvent *event, unsigned flags) {
  CudaContext context;
  CudaResult result = enter(__func__, NEEDS_CONTEXT, &context);
  if (result) return leave(result);
  if (flags != CUDA_EVENT_WITHOUT_TIME && flags != CUDA_EVENT_WITH_TIME) wrong(__func__, "flags %#x are not emulated", flags);
  CudaEvent e = calloc(1, sizeof *e);
  *e = (struct CUevent_st){.next = events, .context = context, .alive = 1, .has_time = flags == CUDA_EVENT_WITH_TIME};
  *event = events = e;
  return leave(CUDA_OK);
}

CudaResult cuEventDestroy_v2(CudaEvent event) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  check_event(__func__, event)->alive = 0;
  let_go(event->marker);
  event->marker = NULL;
  return leave(result);
}

CudaResult cuEventRecord(CudaEvent event, CudaStream stream) {
  CudaResult result = enter_stream(__func__, stream);
  if (check_event(__func__, event)->context != stream->context) wrong(__func__, "event and stream are of two contexts");
  if (result) return leave(result);
  let_go(event->marker);
  event->marker = calloc(1, sizeof *event->marker);
  event->marker->holders = 2;
  put(stream, (Work){.kind = WORK_MARK, .marker = event->marker});
  return leave(CUDA_OK);
}

CudaResult cuEventSynchronize(CudaEvent event) {
  CudaContext context;
  CudaResult result = enter(__func__, NEEDS_CONTEXT, &context);
  Marker *marker = check_event(__func__, event)->marker;
  while (!result && marker && !marker->done && do_one()) continue;
  if (!result && marker && !marker->done) wrong(__func__, "the event waits for ever");
  return leave(result ? result : event->context->failed);
}

CudaResult cuEventElapsedTime(float *milliseconds, CudaEvent start, CudaEvent end) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  const CudaEvent both[] = {check_event(__func__, start), check_event(__func__, end)};
  for (int i = 0; i < 2; i++) {
    if (!both[i]->has_time) wrong(__func__, "an event was created without its time");
    if (!both[i]->marker || !both[i]->marker->done) wrong(__func__, "an event was not recorded, or its place in the stream not reached");
  }
  *milliseconds = (float)(end->marker->at - start->marker->at);
  return leave(result);
}

// Work --------------------------------------------------------------------------------------------------------------

void put_launch(CudaStream stream, Launch *launch) {
  put(stream, (Work){.kind = WORK_LAUNCH, .launch = launch, .fails = fails_now("launch")});
}

CudaResult emulated_library_call(const char *name, CudaStream stream, const LibraryCall *call) {
  CudaResult result = enter_stream(name, stream);
  LibraryCall *c = memcpy(malloc(sizeof *c), call, sizeof *c);
  for (int i = 0; i < c->operands; i++) c->own[i] = device_bytes(name, c->operand[i].at, c->operand[i].bytes);
  if (!result) put(stream, (Work){.kind = WORK_CALL, .call = c, .fails = fails_now("launch")});
  else free(c);
  return leave(result);
}

static void put_copy(CudaStream stream, char *to, char *from, size_t bytes) {
  put(stream, (Work){.kind = WORK_COPY, .to = to, .from = from, .bytes = bytes, .fails = fails_now("copy")});
}

// Of memory that is not pinned a driver may copy everything before it returns, or nothing.
CudaResult cuMemcpyHtoDAsync_v2(CudaPointer to, const void *from, size_t bytes, CudaStream stream) {
  CudaResult result = enter_stream(__func__, stream);
  char *at = device_bytes(__func__, to, bytes), *memory = host_bytes(__func__, from, bytes), *early = NULL;
  count_call("copy from the host");
  if (result) return leave(result);
  if (!is_pinned(from) && !draw(EARLY)) early = memcpy(malloc(bytes + 1), memory, bytes);
  put(stream, (Work){.kind = WORK_COPY, .to = at, .from = memory, .bytes = bytes, .early = early, .fails = fails_now("copy")});
  return leave(CUDA_OK);
}

CudaResult cuMemcpyDtoHAsync_v2(void *to, CudaPointer from, size_t bytes, CudaStream stream) {
  CudaResult result = enter_stream(__func__, stream);
  char *at = device_bytes(__func__, from, bytes), *memory = host_bytes(__func__, to, bytes);
  count_call("copy to the host");
  if (!result) put_copy(stream, memory, at, bytes);
  return leave(result);
}

CudaResult cuMemcpyDtoDAsync_v2(CudaPointer to, CudaPointer from, size_t bytes, CudaStream stream) {
  CudaResult result = enter_stream(__func__, stream);
  char *at = device_bytes(__func__, to, bytes), *source = device_bytes(__func__, from, bytes);
  if (at < source + bytes && source < at + bytes && at != source) wrong(__func__, "%zu bytes are copied onto themselves", bytes);
  count_call("copy on the device");
  if (!result) put_copy(stream, at, source, bytes);
  return leave(result);
}

CudaResult cuMemsetD8Async(CudaPointer at, unsigned char byte, size_t bytes, CudaStream stream) {
  CudaResult result = enter_stream(__func__, stream);
  char *to = device_bytes(__func__, at, bytes);
  count_call("fill");
  if (!result) put(stream, (Work){.kind = WORK_FILL, .to = to, .byte = byte, .bytes = bytes, .fails = fails_now("fill")});
  return leave(result);
}

int stream_leaks(char *text, size_t size) {
  int count = 0;
  for (CudaStream s = streams; s; s = s->next)
    if (s->alive) count++, snprintf(text, size, "a stream");
  for (CudaEvent e = events; e; e = e->next)
    if (e->alive) count++, snprintf(text, size, "an event");
  return count;
}
