// Memory of the host from and to which a device copies. The driver copies pinned memory directly. Any other it copies
// itself, a little at a time, while the caller waits: where the system refuses to pin more (ulimit -l), what is large
// goes through two pinned pieces in turn.
#include "base/vec.h"
#include "device/cuda/cuda_device.h"
#include <stdio.h>
#include <string.h>

enum { PIECE = 64 << 20, PIECES = 2, LEAST_IN_PIECES = 1 << 20 };

typedef struct PinnedPages { char *at; int64_t bytes; } PinnedPages;
static struct {
  pthread_mutex_t mutex;
  Vec(PinnedPages) list; // of this process: they are pinned for all devices
  int refused;
  pthread_mutex_t pieces_mutex; // of a copy through these
  char *piece[PIECES];          // NULL: nobody has needed them
  int queues;                   // that may; the last one frees them
} pinned = {.mutex = PTHREAD_MUTEX_INITIALIZER, .pieces_mutex = PTHREAD_MUTEX_INITIALIZER};

// With the lock of pieces. 0: there are none.
static int has_pieces(const CudaInstance *c) {
  void *memory = NULL;
  for (int k = 0; k < PIECES && !pinned.piece[k]; k++) {
    if (c->driver->cuMemHostAlloc(&memory, PIECE, CUDA_HOST_FOR_ALL)) return 0;
    pinned.piece[k] = memory;
  }
  return 1;
}

void cuda_pinned_open(void) {
  pthread_mutex_lock(&pinned.pieces_mutex);
  pinned.queues++;
  pthread_mutex_unlock(&pinned.pieces_mutex);
}

void cuda_pinned_close(const CudaInstance *c) {
  pthread_mutex_lock(&pinned.pieces_mutex);
  int last = !--pinned.queues;
  for (int k = 0; k < PIECES && last; k++) {
    if (pinned.piece[k]) c->driver->cuMemFreeHost(pinned.piece[k]);
    pinned.piece[k] = NULL;
  }
  pthread_mutex_unlock(&pinned.pieces_mutex);
}

// Once: nobody asks the driver again.
static void refuse(const CudaInstance *c, CudaResult result) {
  char text[256];
  pinned.refused = 1;
  fprintf(stderr,
          "note: CUDA device %d: the host's memory of collectives cannot be pinned (%s): they go through two pieces of "
          "64 MiB, which is slower; ulimit -l unlimited allows it\n",
          c->number, cuda_result_text(c->driver, result, text, sizeof text));
}

int cuda_pin(const Device *device, char *memory, int64_t bytes) {
  const CudaInstance *c = cuda_instance_of(device);
  cuda_enter(c);
  pthread_mutex_lock(&pinned.mutex);
  CudaResult result =
      pinned.refused ? CUDA_NO_MEMORY : c->driver->cuMemHostRegister_v2(memory, (size_t)bytes, CUDA_REGISTERED_FOR_ALL);
  if (!result) vec_push(&pinned.list, ((PinnedPages){memory, bytes}));
  else if (!pinned.refused) refuse(c, result);
  pthread_mutex_unlock(&pinned.mutex);
  return !result;
}

void cuda_unpin(const Device *device, char *memory) {
  const CudaInstance *c = cuda_instance_of(device);
  cuda_enter(c);
  pthread_mutex_lock(&pinned.mutex);
  for (int i = 0; i < pinned.list.count; i++) {
    if (pinned.list.data[i].at != memory) continue;
    UNLESS_FAULT(pages_stay_pinned) c->driver->cuMemHostUnregister(memory);
    pinned.list.data[i] = pinned.list.data[--pinned.list.count];
    break;
  }
  pthread_mutex_unlock(&pinned.mutex);
}

// How many of these bytes, which may begin in one region and end in another, can be copied at once; *direct: whether
// they are pinned.
static int64_t stretch_of(const char *at, int64_t bytes, int *direct, int *refused) {
  *direct = 0;
  pthread_mutex_lock(&pinned.mutex);
  *refused = pinned.refused;
  for (int i = 0; i < pinned.list.count && !*direct; i++) {
    const PinnedPages *r = &pinned.list.data[i];
    const int64_t before = r->at - at, left = r->at + r->bytes - at;
    if (before <= 0 && left > 0) bytes = FAULT(copies_cross_regions, left < bytes, 0) ? left : bytes, *direct = 1;
    else if (before > 0 && before < bytes) bytes = before;
  }
  pthread_mutex_unlock(&pinned.mutex);
  return bytes;
}

static int put_copy(CudaQueue *q, DeviceCopy kind, CudaPointer there, char *here, int64_t bytes) {
  const CudaDriver *driver = q->instance->driver;
  return kind == DEVICE_TO_HOST ? cuda_noted(q, driver->cuMemcpyDtoHAsync_v2(here, there, (size_t)bytes, q->stream),
                                             "cuMemcpyDtoHAsync", "a copy")
                                : cuda_noted(q, driver->cuMemcpyHtoDAsync_v2(there, here, (size_t)bytes, q->stream),
                                             "cuMemcpyHtoDAsync", "a copy");
}

static void await(CudaQueue *q, uint64_t event) {
  cuda_noted(q, q->instance->driver->cuEventSynchronize(q->event[event % CUDA_EVENTS]), "cuEventSynchronize", "a copy");
}

// The host copies one piece while the device copies the other. All is copied when it returns 1; 0: there are no pieces.
static int copy_in_pieces(CudaQueue *q, DeviceCopy kind, CudaPointer there, char *here, int64_t bytes) {
  const int out = kind == DEVICE_TO_HOST;
  const int64_t count = (bytes + PIECE - 1) / PIECE;
  uint64_t event[PIECES] = {0};
  pthread_mutex_lock(&pinned.pieces_mutex);
  const int has = has_pieces(q->instance);
  for (int64_t i = 0; has && i < count + PIECES && !cuda_has_failed(q); i++) {
    const int64_t last = i - PIECES, at = i * PIECE, size = bytes - at < PIECE ? bytes - at : PIECE;
    char *piece = pinned.piece[i % PIECES];
    if (last >= 0 && last < count) {
      UNLESS_FAULT(pieces_are_used_again) await(q, event[i % PIECES]);
      if (out)
        memcpy(here + last * PIECE, piece, (size_t)(bytes - last * PIECE < PIECE ? bytes - last * PIECE : PIECE));
    }
    if (i >= count || cuda_has_failed(q)) continue;
    if (!out) memcpy(piece, here + at, (size_t)size);
    if (!put_copy(q, kind, there + (CudaPointer)at, piece, size)) event[i % PIECES] = cuda_record(q);
  }
  pthread_mutex_unlock(&pinned.pieces_mutex);
  return has;
}

void cuda_copy_host(CudaQueue *q, DeviceCopy kind, CudaPointer there, char *here, int64_t bytes) {
  while (bytes > 0 && !cuda_has_failed(q)) {
    int direct, refused;
    const int64_t n = stretch_of(here, bytes, &direct, &refused);
    if (direct || !refused || n < LEAST_IN_PIECES || !copy_in_pieces(q, kind, there, here, n))
      put_copy(q, kind, there, here, n);
    there += (CudaPointer)n;
    here += n;
    bytes -= n;
  }
}
