// What workers say: their output with --tee, and their notices (runtime/launch_notice.h).
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

// "step 12", "failed 3 SENTENCE", "lasting 3 SENTENCE"
static void take_notice(Workers *w, const char *line) {
  long long number = 0;
  int at = 0;
  if (sscanf(line, "step %lld", &number) == 1 && !w->step) w->step = number;
  bool lasts = !strncmp(line, "lasting ", 8);
  if (sscanf(line, lasts ? "lasting %lld %n" : "failed %lld %n", &number, &at) != 1 || !at) return;
  for (int i = 0; i < w->count; i++) {
    Worker *worker = &w->worker[i];
    if (worker->rank != number || worker->sentence[0]) continue;
    snprintf(worker->sentence, sizeof worker->sentence, "%s", line + at);
    worker->lasts = lasts;
  }
}

void workers_read_notices(Workers *w) {
  for (;;) {
    ssize_t n = read(w->notices, w->notice + w->pending, sizeof w->notice - (size_t)w->pending);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) close(w->notices), w->notices = -1;
    if (n <= 0) return;
    w->pending += (int)n;
    for (char *end; (end = memchr(w->notice, '\n', (size_t)w->pending));) {
      *end++ = 0;
      take_notice(w, w->notice);
      w->pending -= (int)(end - w->notice);
      memmove(w->notice, end, (size_t)w->pending);
    }
    if (w->pending == sizeof w->notice) w->pending = 0; // no notice is that long
  }
}
