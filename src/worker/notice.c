// Writing and reading notices.
#include "worker/notice.h"
#include "base/fault.h"
#include "worker/worker.h"
#include <string.h>
#include <unistd.h>

static const uint64_t magic = 0x6563697465746f4e;

static bool say(const WorkerNotice *notice) {
  int fd = worker_supervised()->notices;
  return fd >= 0 && write(fd, notice, sizeof *notice) == sizeof *notice;
}

void worker_notice_step(int64_t step) {
  const WorkerNotice notice = {.magic = magic, .kind = NOTICE_STEP, .step = step};
  say(&notice);
}

bool worker_notice_failure(int rank, const Error *error) {
  WorkerNotice notice = {.magic = magic, .kind = NOTICE_FAILURE, .rank = rank, .error = *error};
  return error->code && error->message[0] && rank >= 0 && say(&notice);
}

static bool is_valid(const WorkerNotice *n, int ranks) {
  if (n->rank < 0 || n->rank >= ranks) return false;
  if (n->kind == NOTICE_STEP) return n->step > 0;
  return n->kind == NOTICE_FAILURE && n->error.message[0] && error_is_valid(&n->error, ranks);
}

static void drop(NoticeReader *r, size_t bytes) {
  r->bytes -= bytes;
  memmove(r->data, r->data + bytes, r->bytes);
}

// Where a notice may begin: its magic number, or the first bytes of one at the end of what has come.
static size_t find(const NoticeReader *r) {
  size_t at = 0;
  while (at < r->bytes) {
    size_t left = r->bytes - at, compared = left < sizeof magic ? left : sizeof magic;
    if (!memcmp(r->data + at, &magic, compared)) break;
    at++;
  }
  return at;
}

bool worker_notice_take(NoticeReader *r, int ranks, WorkerNotice *notice) {
  for (;;) {
    drop(r, find(r));
    if (r->bytes < sizeof *notice) return false;
    memcpy(notice, r->data, sizeof *notice);
    bool good = is_valid(notice, ranks);
    drop(r, good ? sizeof *notice : 1);
    if (FAULT(any_notice_of_a_worker_is_believed, good, true)) return true;
  }
}
