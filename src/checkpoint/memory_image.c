// Images of a rank's part of a checkpoint: header, elements, text.
#include "checkpoint/memory_image.h"
#include "base/fault.h"
#include "base/file.h"
#include "checkpoint/checksum.h"
#include "checkpoint/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 4096, ALIGNMENT = 64 }; // bytes: of the header, with the padding up to the first piece; of a piece
enum { EMPTY, BEING_WRITTEN, COMPLETE };

static const char magic[8] = "plaitimg";
enum { VERSION = 1 };

typedef struct Header {
  char magic[8];
  uint32_t version;
  _Atomic uint32_t state;
  // From here to the checksum is what the checksum is of:
  char run[WORKER_RUN];
  int64_t step, data_bytes, text_bytes;
  int32_t rank, ranks, alone, made;
  uint64_t text_checksum;
  uint64_t checksum;
} Header;
_Static_assert(sizeof(Header) <= HEADER, "the elements lie after the header");

struct MemoryImage {
  int fd;        // -1: memory of this process alone
  char *base;    // the map; NULL: there is nothing to hold
  int64_t bytes; // of the map
  Header *header;
  CheckpointTensor *pieces;
  int count;
  char *boxes;   // text of the pieces, by who writes
  json_t *text;  // by who reads; owns what the label and the pieces name
  MemoryImageLabel label;
};

static int64_t piece_bytes(const CheckpointTensor *t) {
  Box box = checkpoint_box(t);
  return t->primary || t->spare ? box_elements(&box) * (int64_t)dtype_size(t->dtype) : 0;
}

static int64_t round_to(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t memory_image_bytes(const CheckpointTensor *pieces, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += round_to(piece_bytes(&pieces[i]), ALIGNMENT);
  return round_to(bytes, (int64_t)sysconf(_SC_PAGESIZE));
}

// Of the header after its state.
static uint64_t header_checksum(const Header *h) {
  return checksum_of((const char *)h + offsetof(Header, run), offsetof(Header, checksum) - offsetof(Header, run));
}

// Writing ------------------------------------------------------------------------------------------------------------

// All pages now: a write to a page that the system cannot give ends a process.
static int take_memory(MemoryImage *m, Error *error) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  int failed = 0;
  if (!m->bytes) return PLAIT_OK;
  if (m->fd >= 0) {
    flags = MAP_SHARED | MAP_POPULATE;
    failed = posix_fallocate(m->fd, 0, m->bytes);
  }
  void *p = failed ? MAP_FAILED : mmap(NULL, (size_t)m->bytes, PROT_READ | PROT_WRITE, flags, m->fd, 0);
  if (p == MAP_FAILED)
    return error_set(error, PLAIT_NO_MEMORY, "no %lld bytes of memory for a copy of the state: %s",
                     (long long)m->bytes, strerror(failed ? failed : errno));
  m->base = p;
  return PLAIT_OK;
}

// Row-major, one after the other.
static void place_pieces(MemoryImage *m, const CheckpointTensor *pieces, int64_t at) {
  json_t *boxes = json_array();
  m->pieces = xcalloc((size_t)m->count + 1, sizeof *m->pieces);
  for (int i = 0; i < m->count; i++) {
    const CheckpointTensor *t = &pieces[i];
    int64_t bytes = piece_bytes(t);
    m->pieces[i] = *t;
    m->pieces[i].access = NULL;
    m->pieces[i].owner = NULL;
    memset(m->pieces[i].stride, 0, sizeof t->stride);
    m->pieces[i].data = bytes ? m->base + at : NULL;
    if (m->fd >= 0 && (t->primary || t->spare))
      json_array_append_new(
          boxes, json_pack("{s:s, s:s, s:o, s:o, s:o, s:I, s:b}", "name", t->name, "dtype", dtype_file_name(t->dtype),
                           "global", manifest_dims(t->rank, t->global), "offset", manifest_dims(t->rank, t->offset),
                           "local", manifest_dims(t->rank, t->local), "at", (json_int_t)at, "spare", t->spare));
    at += round_to(bytes, ALIGNMENT);
  }
  if (m->fd >= 0) m->boxes = json_dumps(boxes, JSON_COMPACT);
  json_decref(boxes);
}

int memory_image_create(int fd, const CheckpointTensor *pieces, int count, MemoryImage **out, Error *error) {
  MemoryImage *m = xcalloc(1, sizeof *m);
  int64_t header = fd >= 0 ? HEADER : 0;
  *m = (MemoryImage){.fd = fd, .count = count, .bytes = header + memory_image_bytes(pieces, count)};
  int code = take_memory(m, error);
  if (code) {
    memory_image_close(m);
    return code;
  }
  place_pieces(m, pieces, header);
  if (fd >= 0) {
    m->header = (Header *)m->base;
    memcpy(m->header->magic, magic, sizeof magic);
    m->header->version = VERSION;
  }
  *out = m;
  return PLAIT_OK;
}

const CheckpointTensor *memory_image_pieces(const MemoryImage *m, int *count) {
  *count = m->count;
  return m->pieces;
}

void memory_image_begin(MemoryImage *m) {
  if (!m->header) return;
  atomic_store(&m->header->state, BEING_WRITTEN);
  atomic_thread_fence(memory_order_seq_cst); // before any byte of the copy
}

static int write_text(const MemoryImage *m, const char *text, size_t bytes, Error *error) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pwrite(m->fd, text + done, bytes - done, (off_t)(m->bytes + (int64_t)done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return error_set(error, PLAIT_NO_MEMORY, "no memory for a copy of the state: %s", strerror(errno));
    done += (size_t)n;
  }
  return PLAIT_OK;
}

int memory_image_complete(MemoryImage *m, const MemoryImageLabel *label, Error *error) {
  Header *h = m->header;
  if (!h) return PLAIT_OK;
  json_t *own = json_pack("{s:s, s:i, s:s*, s:s*}", "dir", label->dir, "keep", label->keep, "log", label->log, "extra",
                          label->extra);
  char *rest = own ? json_dumps(own, JSON_COMPACT) : NULL;
  json_decref(own);
  if (!rest)
    return error_set(error, PLAIT_FAILED, "step %lld: the label of its copy in memory cannot be written as JSON",
                     (long long)label->step);
  char *text = xformat("{\"boxes\":%s,\"label\":%s}", m->boxes, rest);
  size_t bytes = strlen(text);
  int code = write_text(m, text, bytes, error);
  memset(h->run, 0, sizeof h->run);
  snprintf(h->run, sizeof h->run, "%s", label->run);
  h->step = label->step;
  h->rank = label->rank;
  h->ranks = label->ranks;
  h->alone = label->alone;
  h->made++;
  h->data_bytes = m->bytes - HEADER;
  h->text_bytes = (int64_t)bytes;
  h->text_checksum = checksum_of(text, bytes);
  h->checksum = header_checksum(h);
  if (!code) atomic_store(&h->state, COMPLETE);
  free(text);
  free(rest);
  return code;
}

void memory_image_close(MemoryImage *m) {
  if (!m) return;
  if (m->base) munmap(m->base, (size_t)m->bytes);
  json_decref(m->text);
  free(m->boxes);
  free(m->pieces);
  free(m);
}

// Reading ------------------------------------------------------------------------------------------------------------

// Of an image in a file of `bytes` bytes, whatever its state.
static bool is_header(const Header *h, const char *run, int64_t bytes) {
  return !memcmp(h->magic, magic, sizeof magic) && h->version == VERSION && header_checksum(h) == h->checksum &&
         memchr(h->run, 0, sizeof h->run) && !strcmp(h->run, run) && h->step >= 0 && h->ranks > 0 && h->rank >= 0 &&
         h->rank < h->ranks && h->alone >= 0 && h->data_bytes >= 0 && h->text_bytes > 0 &&
         h->data_bytes <= bytes - HEADER && h->text_bytes <= bytes - HEADER - h->data_bytes;
}

static bool is_whole(const MemoryImage *m, const char *run) {
  uint32_t state = atomic_load(&m->header->state);
  if (FAULT(half_written_image_is_used, state != COMPLETE, state == EMPTY)) return false;
  return is_header(m->header, run, m->bytes);
}

static bool read_piece(const MemoryImage *m, const json_t *json, CheckpointTensor *t) {
  const char *name = json_string_value(json_object_get(json, "name"));
  const char *dtype = json_string_value(json_object_get(json, "dtype"));
  int known = dtype ? dtype_from_file_name(dtype) : -1;
  int64_t at = json_integer_value(json_object_get(json, "at"));
  if (!name || !*name || known < 0) return false;
  int spare = json_is_true(json_object_get(json, "spare"));
  *t = (CheckpointTensor){.name = name, .dtype = (Dtype)known, .primary = !spare, .spare = spare};
  t->rank = manifest_parse_dims(json_object_get(json, "global"), t->global);
  if (t->rank < 0 || manifest_parse_dims(json_object_get(json, "offset"), t->offset) != t->rank ||
      manifest_parse_dims(json_object_get(json, "local"), t->local) != t->rank)
    return false;
  Box box = checkpoint_box(t);
  int64_t all, own, end = HEADER + m->header->data_bytes;
  if (!box_inside(&box, t->global) || dims_elements(t->rank, t->global, &all) || dims_elements(t->rank, t->local, &own))
    return false;
  if (at < HEADER || at > end || at % ALIGNMENT) return false;
  bool fits = own <= (end - at) / (int64_t)dtype_size(t->dtype); // own · size may be more than an int64_t holds
  if (!FAULT(pieces_lie_anywhere, fits, true)) return false;
  int64_t bytes = own * (int64_t)dtype_size(t->dtype);
  t->data = bytes ? m->base + at : NULL;
  return true;
}

static bool read_text(MemoryImage *m) {
  const Header *h = m->header;
  const char *text = m->base + HEADER + h->data_bytes;
  if (checksum_of(text, (size_t)h->text_bytes) != h->text_checksum) return false;
  m->text = json_loadb(text, (size_t)h->text_bytes, JSON_REJECT_DUPLICATES, NULL);
  json_t *boxes = json_object_get(m->text, "boxes"), *label = json_object_get(m->text, "label");
  json_int_t keep = json_integer_value(json_object_get(label, "keep"));
  m->label = (MemoryImageLabel){.run = h->run,
                                .step = h->step,
                                .rank = h->rank,
                                .ranks = h->ranks,
                                .alone = h->alone,
                                .dir = json_string_value(json_object_get(label, "dir")),
                                .keep = (int)keep,
                                .log = json_string_value(json_object_get(label, "log")),
                                .extra = json_string_value(json_object_get(label, "extra"))};
  if (!m->label.dir || !json_is_array(boxes) || keep != m->label.keep)
    return false; // a smaller number would remove more checkpoints
  m->pieces = xcalloc(json_array_size(boxes) + 1, sizeof *m->pieces);
  for (size_t i = 0; i < json_array_size(boxes); i++)
    if (!read_piece(m, json_array_get(boxes, i), &m->pieces[m->count++])) return false;
  return true;
}

bool memory_image_open(int fd, const char *run, MemoryImage **out) {
  struct stat status;
  if (fd < 0 || fstat(fd, &status) || status.st_size <= HEADER) return false;
  void *base = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return false;
  MemoryImage *m = xcalloc(1, sizeof *m);
  *m = (MemoryImage){.fd = fd, .base = base, .bytes = (int64_t)status.st_size, .header = base};
  if (is_whole(m, run) && read_text(m)) return *out = m, true;
  memory_image_close(m);
  return false;
}

const MemoryImageLabel *memory_image_label(const MemoryImage *m) { return &m->label; }

// Copies in another file ----------------------------------------------------------------------------------------------

static bool read_header(int fd, Header *h, int64_t *bytes) {
  struct stat status;
  if (fd < 0 || fstat(fd, &status) || status.st_size <= HEADER) return false;
  *bytes = (int64_t)status.st_size;
  return pread(fd, h, sizeof *h, 0) == sizeof *h;
}

static MemoryImageHead head_of(const Header *h) {
  return (MemoryImageHead){.step = h->step, .bytes = HEADER + h->data_bytes + h->text_bytes, .rank = h->rank,
                           .ranks = h->ranks, .alone = h->alone, .made = h->made};
}

bool memory_image_same(const MemoryImageHead *a, const MemoryImageHead *b) {
  return a->step == b->step && a->bytes == b->bytes && a->rank == b->rank && a->ranks == b->ranks && a->made == b->made;
}

bool memory_image_peek(int fd, const char *run, MemoryImageHead *head) {
  Header h;
  int64_t bytes;
  atomic_thread_fence(memory_order_seq_cst); // after the bytes that were read before
  if (!read_header(fd, &h, &bytes) || h.state != COMPLETE || !is_header(&h, run, bytes)) return false;
  *head = head_of(&h);
  atomic_thread_fence(memory_order_seq_cst);
  return true;
}

static bool set_state(int fd, uint32_t state) {
  return pwrite(fd, &state, sizeof state, offsetof(Header, state)) == sizeof state;
}

int memory_copy_begin(int fd, int64_t bytes, Error *error) {
  int failed = posix_fallocate(fd, 0, bytes);
  if (!failed && set_state(fd, BEING_WRITTEN)) return PLAIT_OK;
  return error_set(error, PLAIT_NO_MEMORY, "no %lld bytes of memory: %s", (long long)bytes,
                   strerror(failed ? failed : errno));
}

int memory_copy_write(int fd, int64_t at, const void *data, size_t bytes, Error *error) {
  const char *from = data;
  while (bytes > 0) {
    int64_t state = (int64_t)offsetof(Header, state), state_end = state + (int64_t)sizeof(uint32_t);
    size_t n = bytes;
    if (at < state && at + (int64_t)n > state) n = (size_t)(state - at);
    if (at >= state && at < state_end) { // the one of the original is not the copy's
      size_t skip = (size_t)(state_end - at) < n ? (size_t)(state_end - at) : n;
      at += (int64_t)skip, from += skip, bytes -= skip;
      continue;
    }
    ssize_t done = pwrite(fd, from, n, (off_t)at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return error_set(error, PLAIT_NO_MEMORY, "a copy cannot be written: %s", strerror(errno));
    at += done, from += done, bytes -= (size_t)done;
  }
  return PLAIT_OK;
}

bool memory_copy_complete(int fd, const char *run, const MemoryImageHead *head) {
  Header h;
  int64_t bytes;
  if (!read_header(fd, &h, &bytes) || !is_header(&h, run, bytes)) return false;
  MemoryImageHead found = head_of(&h);
  return memory_image_same(&found, head) && set_state(fd, COMPLETE);
}
