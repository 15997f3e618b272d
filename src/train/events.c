// TensorBoard's files: TFRecord framing around protocol buffers. The messages have five fields that we write (time,
// step, version or session mark, and a summary of tag and value), so they are encoded by hand: protobuf-c and a
// generated Event.proto would be a build dependency, and larger than this file. ONNX, when it comes, is another matter.
#include "train/events.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."

// A record: u64 length, masked CRC of it, the message, masked CRC of it; all little endian.
enum { HEAD = 12, TAIL = 4 };

// Fields of event.proto and summary.proto, as their number and wire type.
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum {
  EVENT_WALL_TIME = 1 << 3 | FIXED64, // double
  EVENT_STEP = 2 << 3 | VARINT,       // int64
  EVENT_FILE_VERSION = 3 << 3 | BYTES,
  EVENT_SUMMARY = 5 << 3 | BYTES,     // Summary
  EVENT_SESSION_LOG = 7 << 3 | BYTES, // SessionLog
  SESSION_STATUS = 1 << 3 | VARINT,   // 1: START
  SUMMARY_VALUE = 1 << 3 | BYTES,     // Summary.Value, repeated
  VALUE_TAG = 1 << 3 | BYTES,
  VALUE_SIMPLE = 2 << 3 | FIXED32, // float
};

uint32_t events_crc32c(const void *data, size_t bytes) {
  const uint8_t *p = data;
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

// TFRecord's mask: a CRC over data that holds CRCs would be weak.
static uint32_t masked(const void *data, size_t bytes) {
  uint32_t crc = events_crc32c(data, bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Encoding ------------------------------------------------------------------------------------------------------------

static void put_byte(Events *e, unsigned byte) {
  if (e->length >= (int)sizeof e->record - TAIL) e->overflow = true;
  else e->record[e->length++] = (uint8_t)byte;
}

static void put_fixed(Events *e, uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; i++) put_byte(e, bits >> 8 * i & 255);
}

static void put_varint(Events *e, uint64_t value) {
  for (; value > 127; value >>= 7) put_byte(e, (unsigned)(value & 127) | 128);
  put_byte(e, (unsigned)value);
}

static void put_text(Events *e, unsigned field, const char *text) {
  size_t n = strlen(text);
  put_byte(e, field);
  put_varint(e, n);
  for (size_t i = 0; i < n; i++) put_byte(e, (uint8_t)text[i]);
}

static void begin_event(Events *e, int64_t step, double wall_time) {
  uint64_t bits;
  memcpy(&bits, &wall_time, 8);
  e->length = HEAD;
  e->overflow = false;
  put_byte(e, EVENT_WALL_TIME);
  put_fixed(e, bits, 8);
  if (step) put_byte(e, EVENT_STEP), put_varint(e, (uint64_t)step);
}

static int write_event(Events *e, Error *error) {
  CHECK(!e->overflow, "an event is longer than %zu bytes", sizeof e->record);
  int end = e->length, size = end - HEAD;
  e->length = 0;
  put_fixed(e, (uint64_t)size, 8);
  put_fixed(e, masked(e->record, 8), 4);
  uint32_t crc = masked(e->record + HEAD, (size_t)size);
  for (int i = 0; i < TAIL; i++) e->record[end + i] = (uint8_t)(crc >> 8 * i);
  off_t before = lseek(e->fd, 0, SEEK_END);
  ssize_t wrote;
  do wrote = write(e->fd, e->record, (size_t)(end + TAIL));
  while (wrote < 0 && errno == EINTR);
  if (wrote == end + TAIL) return PLAIT_OK;
  int why = wrote < 0 ? errno : ENOSPC;
  if (wrote > 0 && before >= 0 && ftruncate(e->fd, before)) why = errno; // no half record stays
  return file_write_failed(e->path, why, 0, error);
}

// Files ---------------------------------------------------------------------------------------------------------------

// Readers take files in the order of their names, so a new one's seconds must be later than all others', even when a
// run is resumed within a second or after a clock was set back.
static long long later_than_all(const char *folder, long long seconds) {
  DIR *d = opendir(folder);
  for (struct dirent *entry; d && (entry = readdir(d));) {
    if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1)) continue;
    long long other = strtoll(entry->d_name + sizeof PREFIX - 1, NULL, 10);
    if (other >= seconds && other < 9999999999) seconds = other + 1;
  }
  if (d) closedir(d);
  return seconds;
}

int events_open(Events *e, const char *folder, int64_t first_step, double wall_time, Error *error) {
  char host[64] = "";
  memset(e, 0, sizeof *e);
  if (gethostname(host, sizeof host - 1) || !*host) strcpy(host, "localhost");
  for (char *c = host; *c; c++)
    if (*c == '/') *c = '-';
  e->path = xformat("%s/" PREFIX "%010lld.%s.%ld", folder, later_than_all(folder, (long long)wall_time), host,
                    (long)getpid());
  e->fd = file_open(e->path, O_WRONLY | O_CREAT | O_EXCL);
  if (e->fd < 0) {
    int code = file_write_failed(e->path, errno, 0, error);
    free(e->path);
    e->path = NULL;
    return code;
  }
  begin_event(e, 0, wall_time);
  put_text(e, EVENT_FILE_VERSION, "brain.Event:2"); // the first record says so, else readers ignore the start mark
  int code = write_event(e, error);
  if (!code) {
    begin_event(e, first_step, wall_time);
    put_byte(e, EVENT_SESSION_LOG), put_varint(e, 2), put_byte(e, SESSION_STATUS), put_varint(e, 1);
    code = write_event(e, error);
  }
  if (code) events_close(e);
  return code;
}

void events_close(Events *e) {
  if (!e->path) return;
  close(e->fd);
  free(e->path);
  memset(e, 0, sizeof *e);
}

// The summary's length stands before its values, which are not known yet: two bytes are kept for it, as a varint may
// have leading zeros.
void events_begin(Events *e, int64_t step, double wall_time) {
  if (!e->path) return;
  e->open = step >= 0;
  begin_event(e, step, wall_time);
  put_byte(e, EVENT_SUMMARY);
  e->summary = e->length;
  e->empty = true;
  put_fixed(e, 0, 2);
}

void events_scalar(Events *e, const char *tag, double value) {
  if (!e->path || !e->open) return;
  float f = (float)value;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  size_t n = strlen(tag), varint = n < 128 ? 1 : 2;
  e->empty = false;
  put_byte(e, SUMMARY_VALUE);
  put_varint(e, 1 + varint + n + 5);
  put_text(e, VALUE_TAG, tag);
  put_byte(e, VALUE_SIMPLE);
  put_fixed(e, bits, 4);
}

int events_end(Events *e, Error *error) {
  bool wanted = e->path && e->open && !e->empty;
  e->open = false;
  if (!wanted) return PLAIT_OK;
  int size = e->length - e->summary - 2;
  CHECK(size < 1 << 14);
  e->record[e->summary] = (uint8_t)((size & 127) | 128);
  e->record[e->summary + 1] = (uint8_t)(size >> 7);
  return write_event(e, error);
}
