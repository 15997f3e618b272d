// Notices of a worker to its supervisor, through the pipe whose descriptor it has (Supervised.notices): its first step,
// and why it ends. A notice is one record of a fixed size, written at once, so that those of several workers do not
// mix. A worker is any program, so the reader takes nothing on trust.
#pragma once
#include "base/error.h"
#include <limits.h>
#include <stdint.h>

typedef enum NoticeKind { NOTICE_STEP = 1, NOTICE_FAILURE, NOTICE_KINDS } NoticeKind;

typedef struct WorkerNotice {
  uint64_t magic;
  int32_t kind, rank;
  int64_t step; // of NOTICE_STEP: the first that this process has done since it started
  Error error;  // of NOTICE_FAILURE
} WorkerNotice;
_Static_assert(sizeof(WorkerNotice) <= PIPE_BUF, "the system writes it at once");

// Of a worker; without a pipe they do nothing. From the first step the supervisor knows that the run advances.
void worker_notice_step(int64_t step);
// Why this rank ends. The ranks of the error are those of the round. true: the supervisor will print it, once for all.
bool worker_notice_failure(int rank, const Error *error);

// Of the supervisor: what has come through the pipe and is not a whole notice yet.
typedef struct NoticeReader { size_t bytes; unsigned char data[2 * sizeof(WorkerNotice)]; } NoticeReader;

// Takes the next notice of a round of `ranks` out of what has come; false: there is none. It leaves out bytes that are
// not a notice.
bool worker_notice_take(NoticeReader *reader, int ranks, WorkerNotice *notice);
