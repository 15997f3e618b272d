// Reads the output of workers (--tee) and their notices.
#include "elastic/workers.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A pipe that nobody reads, or a full disk, must not end the run.
static void put(int fd, const char *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t n = write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    data += n;
    bytes -= (size_t)n;
  }
}

// Whole lines, each after its rank, so that those of several workers do not mix.
static void put_line(const Worker *worker, WorkerStream *s, int length) {
  char text[WORKER_LINE + 32];
  int n = snprintf(text, sizeof text, "[%d] ", worker->rank);
  memcpy(text + n, s->line, (size_t)length);
  put(s->to_console, text, (size_t)(n + length));
  put(s->to_log, s->line, (size_t)length);
  memmove(s->line, s->line + length, (size_t)(s->length - length));
  s->length -= length;
}

// What has come by now; at the end of the stream also a line without its end.
void workers_read_output(Worker *worker, int stream) {
  WorkerStream *s = &worker->stream[stream];
  fcntl(s->from, F_SETFL, O_NONBLOCK);
  for (;;) {
    ssize_t n = read(s->from, s->line + s->length, sizeof s->line - (size_t)s->length - 1);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) s->length += (int)n;
    for (char *end; (end = memchr(s->line, '\n', (size_t)s->length));) put_line(worker, s, (int)(end - s->line) + 1);
    if (s->length && (s->length == sizeof s->line - 1 || n == 0)) {
      s->line[s->length++] = '\n';
      put_line(worker, s, s->length);
    }
    if (n > 0) continue;
    if (n == 0) close(s->from), s->from = -1;
    return;
  }
}

static void take_notice(Workers *w, const WorkerNotice *notice) {
  if (notice->kind == NOTICE_STEP && !w->step) w->step = notice->step;
  for (int i = 0; i < w->count && notice->kind == NOTICE_FAILURE; i++)
    if (w->worker[i].rank == notice->rank) error_take(&w->worker[i].said, &notice->error);
}

void workers_read_notices(Workers *w) {
  NoticeReader *heard = &w->heard;
  for (;;) {
    WorkerNotice notice;
    ssize_t n = read(w->notices, heard->data + heard->bytes, sizeof heard->data - heard->bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) close(w->notices), w->notices = -1;
    if (n <= 0) return;
    heard->bytes += (size_t)n;
    while (worker_notice_take(heard, w->ranks, &notice)) take_notice(w, &notice);
  }
}
