// Reading descriptors with poll, and unpacking with zlib and libzstd.
#include "tokenizer/text_stream.h"
#include "base/signals.h"
#include "base/vec.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT_BYTES = 256 << 10, POLL_MS = 200, LONGEST_WINDOW = 31 };

typedef enum Packing { PLAIN, GZIP, ZSTD } Packing;

struct TextStream {
  const char *name; // for messages; the path, which the caller keeps
  int fd;
  bool waits;       // a pipe or a terminal, for whose data a signal must not have to wait
  bool begun, ended, complete; // the packing is known; there is no more input; the packed data has come to its end
  Packing packing;
  z_stream gzip;
  ZSTD_DStream *zstd;
  size_t at, filled; // of input
  uint8_t input[INPUT_BYTES];
};

const char *text_stream_name(const char *path) { return strcmp(path, "-") ? path : "standard input"; }

static size_t without(const char *path, size_t length, const char *suffix) {
  size_t n = strlen(suffix);
  return length > n && !strncasecmp(path + length - n, suffix, n) ? length - n : length;
}

static Packing packing_of_name(const char *path) {
  size_t n = strlen(path);
  return without(path, n, ".gz") < n ? GZIP : without(path, n, ".zst") < n ? ZSTD : PLAIN;
}

bool text_stream_packed_name(const char *path) { return packing_of_name(path) != PLAIN; }

bool text_stream_holds_lines(const char *path) {
  size_t n = without(path, without(path, strlen(path), ".gz"), ".zst");
  return without(path, n, ".jsonl") < n || without(path, n, ".jsonlines") < n || without(path, n, ".ndjson") < n;
}

static Packing packing_of(const uint8_t *bytes, size_t n) {
  if (n >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) return GZIP;
  if (n < 4) return PLAIN;
  if (bytes[0] == 0x28 && bytes[1] == 0xb5 && bytes[2] == 0x2f && bytes[3] == 0xfd) return ZSTD;
  return (bytes[0] & 0xf0) == 0x50 && bytes[1] == 0x2a && bytes[2] == 0x4d && bytes[3] == 0x18 ? ZSTD
                                                                                               : PLAIN; // skippable
}

static int bad_name(const char *path, Error *error) {
  return error_set(error, PLAIT_BAD_INPUT, "%s: is not %s, although its name says so", path,
                   packing_of_name(path) == GZIP ? "gzip data" : "zstd data");
}

int text_stream_open(TextStream **stream, const char *path, Error *error) {
  struct stat st;
  uint8_t first[4];
  *stream = NULL;
  // Without O_NONBLOCK opening a pipe waits for who writes to it, and a signal would have to wait, too.
  int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : fcntl(0, F_DUPFD_CLOEXEC, 3);
  if (fd < 0 || fstat(fd, &st) < 0) {
    int code = error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", text_stream_name(path), strerror(errno));
    if (fd >= 0) close(fd);
    return code;
  }
  int code = 1;
  if (S_ISDIR(st.st_mode)) code = error_set(error, PLAIT_BAD_INPUT, "%s: is a folder; name the files in it", path);
  if (S_ISREG(st.st_mode) && strcmp(path, "-")) {
    ssize_t n = pread(fd, first, sizeof first, 0);
    if (packing_of(first, n > 0 ? (size_t)n : 0) == PLAIN)
      code = text_stream_packed_name(path) ? bad_name(path, error) : 0;
  }
  if (code <= 0) {
    close(fd);
    return code;
  }
  TextStream *s = xcalloc(1, sizeof *s);
  s->name = text_stream_name(path);
  s->fd = fd;
  s->waits = !S_ISREG(st.st_mode);
  *stream = s;
  return 1;
}

void text_stream_close(TextStream *s) {
  if (!s) return;
  if (s->packing == GZIP) inflateEnd(&s->gzip);
  ZSTD_freeDStream(s->zstd);
  close(s->fd);
  free(s);
}

// Reads more input after the rest of it; at the end sets `ended`.
static int fill(TextStream *s, Error *error) {
  memmove(s->input, s->input + s->at, s->filled - s->at);
  s->filled -= s->at;
  s->at = 0;
  for (;;) {
    if (s->waits) {
      struct pollfd pipe = {s->fd, POLLIN, 0};
      int ready = poll(&pipe, 1, POLL_MS);
      if (signals_stop())
        return error_set(error, PLAIT_INTERRUPTED, "stopped by %s, nothing was written",
                         signals_name(signals_number()));
      if (ready <= 0) continue;
    }
    ssize_t n = read(s->fd, s->input + s->filled, sizeof s->input - s->filled);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", s->name, strerror(errno));
    s->filled += (size_t)n;
    s->ended = n == 0;
    return PLAIT_OK;
  }
}

// Until there are `bytes` of input, or no more of them.
static int need(TextStream *s, size_t bytes, Error *error) {
  int code = PLAIT_OK;
  while (!code && !s->ended && s->filled - s->at < bytes) code = fill(s, error);
  return code;
}

static int begin(TextStream *s, Error *error) {
  int code = need(s, 4, error);
  if (code) return code;
  s->begun = true;
  s->packing = packing_of(s->input, s->filled);
  if (s->packing == ZSTD) {
    s->zstd = ZSTD_createDStream();
    CHECK(s->zstd, "out of memory");
    ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, LONGEST_WINDOW); // zstd --long=31
  }
  if (s->packing == GZIP) CHECK(inflateInit2(&s->gzip, 16 + MAX_WBITS) == Z_OK, "out of memory");
  return PLAIT_OK;
}

static int truncated(const TextStream *s, Error *error) {
  return error_set(error, PLAIT_BAD_INPUT, "%s: the %s data ends too early: the file is truncated", s->name,
                   s->packing == GZIP ? "gzip" : "zstd");
}

// Reads on after a member of a gzip file: another one, or zeros as a tape has them.
static int next_member(TextStream *s, Error *error) {
  int code = need(s, 2, error);
  while (!code && s->filled > s->at && !s->input[s->at]) {
    s->at++;
    code = need(s, 2, error);
  }
  if (code || s->filled == s->at) return code;
  if (packing_of(s->input + s->at, s->filled - s->at) != GZIP)
    return error_set(error, PLAIT_BAD_INPUT, "%s: something follows the end of its gzip data", s->name);
  inflateReset(&s->gzip);
  s->complete = false;
  return PLAIT_OK;
}

static int unpack_gzip(TextStream *s, char *out, size_t room, size_t *got, Error *error) {
  z_stream *z = &s->gzip;
  size_t most = room > 1 << 30 ? 1 << 30 : room; // its counts are unsigned int
  z->next_in = s->input + s->at;
  z->avail_in = (unsigned)(s->filled - s->at);
  z->next_out = (uint8_t *)out;
  z->avail_out = (unsigned)most;
  int result = inflate(z, Z_NO_FLUSH);
  s->at = s->filled - z->avail_in;
  *got = most - z->avail_out;
  s->complete = result == Z_STREAM_END;
  if (result == Z_OK || result == Z_BUF_ERROR) return PLAIT_OK;
  if (s->complete) return next_member(s, error);
  return error_set(error, PLAIT_BAD_INPUT, "%s: the gzip data is damaged: %s", s->name, z->msg ? z->msg : "unknown");
}

static int unpack_zstd(TextStream *s, char *out, size_t room, size_t *got, Error *error) {
  ZSTD_inBuffer in = {s->input + s->at, s->filled - s->at, 0};
  ZSTD_outBuffer unpacked = {out, room, 0};
  size_t result = ZSTD_decompressStream(s->zstd, &unpacked, &in);
  if (ZSTD_isError(result))
    return error_set(error, PLAIT_BAD_INPUT, "%s: the zstd data is damaged: %s", s->name, ZSTD_getErrorName(result));
  if (in.pos || unpacked.pos) s->complete = result == 0; // of one frame; another may follow
  s->at += in.pos;
  *got = unpacked.pos;
  return PLAIT_OK;
}

static void copy_plain(TextStream *s, char *out, size_t room, size_t *got) {
  size_t n = s->filled - s->at;
  *got = n < room ? n : room;
  memcpy(out, s->input + s->at, *got);
  s->at += *got;
}

int text_stream_read(TextStream *s, char *out, size_t room, size_t *got, Error *error) {
  int code = s->begun ? PLAIT_OK : begin(s, error);
  *got = 0;
  while (!code && *got < room) {
    size_t n = 0;
    if (s->packing == PLAIN) copy_plain(s, out + *got, room - *got, &n);
    else if (s->packing == GZIP && s->complete) return PLAIT_OK;
    else if (s->packing == GZIP) code = unpack_gzip(s, out + *got, room - *got, &n, error);
    else code = unpack_zstd(s, out + *got, room - *got, &n, error);
    *got += n;
    if (code || n || s->at < s->filled) continue;
    if (s->ended) return s->packing == PLAIN || s->complete ? PLAIT_OK : truncated(s, error);
    code = fill(s, error);
  }
  return code;
}
