// Memory that a worker of plait launch shares with its supervisor: what it does, so that a supervisor knows it of one
// that was killed. It costs the worker a store where something changes, and the supervisor nothing until it looks.
#pragma once
#include "worker/last_call.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum WorkerPhase {
#define PHASE(name, ...) WORKER_PHASE_##name,
#include "worker/phases.def"
#undef PHASE
  WORKER_PHASE_COUNT
} WorkerPhase;

// A file without a name has one for each worker of the machine; Supervised says which is whose.
typedef struct WorkerPage {
  _Alignas(128) uint64_t magic;
  _Atomic uint64_t doing; // a WorkerPhase, and its step << 8
  atomic_bool continues; // set by the supervisor: this round ends because machines join or leave, and another follows
  LastCall last;          // of its rank, where its world is one of processes
} WorkerPage;

typedef struct WorkerPages { WorkerPage *page; int count; } WorkerPages; // page NULL: the system has none to give

// Of the supervisor: pages for `count` workers, and the descriptor that they inherit; -1: there are none.
WorkerPages worker_pages_create(int count, int *descriptor);
void worker_pages_destroy(WorkerPages *pages); // safe on a zeroed one
// "in training step 12"; "" where the worker has not said.
void worker_page_describe_phase(const WorkerPage *page, char *text, size_t size);
void worker_pages_set_continues(const WorkerPages *pages, bool continues);

// Of a worker; all of it does nothing in a process that plait launch has not started. From any thread.
void worker_enter(WorkerPhase phase, int64_t step);
bool worker_job_continues(void); // in another round after this process has ended, because machines join or leave
// For the calls of its world; NULL: there is no page, or another world has it.
LastCall *worker_take_last_call(void);
void worker_give_last_call(LastCall *last);
