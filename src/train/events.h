// TensorBoard event files: scalars by step, as its readers expect them.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

// Writing allocates nothing.
//   events_begin(&e, step, time); events_scalar(&e, "loss", 2.5); code = events_end(&e, error);
// A zeroed one is closed: these three then do nothing.
typedef struct Events {
  int fd;
  char *path;
  int length;     // of the record being made
  int summary;    // where its summary's length stands
  bool open;      // between begin and end
  bool empty;     // no scalar yet
  bool overflow;
  uint8_t record[8192];
} Events;

// Creates FOLDER/events.out.tfevents.SECONDS.HOST.PID, after any that is there in the order of names. Its start mark
// tells readers to forget what earlier files say about `first_step` and later steps: a resumed run writes them again.
// wall_time: seconds since 1970.
int events_open(Events *events, const char *folder, int64_t first_step, double wall_time, Error *error);
void events_close(Events *events); // safe on a zeroed one, and twice

// A negative step opens nothing: what follows is dropped.
void events_begin(Events *events, int64_t step, double wall_time);
void events_scalar(Events *events, const char *tag, double value);
// Writes the scalars since events_begin as one record; a full disk leaves no half record, PLAIT_FAILED.
int events_end(Events *events, Error *error);

uint32_t events_crc32c(const void *data, size_t bytes); // CRC-32C (Castagnoli), as RFC 3720 defines it
