// Host memory beside a device's first space, as large, through which communicators of the host come to memory that they
// cannot reach: a byte of it stands for the byte at the same offset there. Pages are taken when they are touched, and
// pinned when something is first copied to or from them, so that copies run beside kernels and at full speed.
#pragma once
#include "base/vec.h"
#include "program/program.h"
#include <pthread.h>

typedef struct MirrorRun { char *at; int64_t bytes; } MirrorRun;
typedef struct Mirror {
  const Device *device;
  char *memory;
  int64_t bytes;
  pthread_mutex_t mutex; // of what follows: streams of communicators copy, too
  uint8_t *pinned;       // by page of MIRROR_PAGE
  Vec(MirrorRun) runs;   // of pages that were pinned together
  int refused;           // the device does not pin, or no more
} Mirror;
enum { MIRROR_PAGE = 2 << 20 };

int mirror_create(const Device *device, int64_t bytes, Mirror **out, Error *error); // PLAIT_NO_MEMORY
void mirror_destroy(Mirror *mirror); // NULL is fine; nothing is copied any more
// Before a copy to or from these bytes.
void mirror_pin(Mirror *mirror, int64_t offset, int64_t bytes);

// Bytes of all pages that collectives and messages of these Programs will touch in a mirror of `bytes`, where working
// memory begins at `work`.
int64_t mirror_touched(Program *const *program, int count, int64_t work, int64_t bytes);
