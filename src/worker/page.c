// The page of a worker: made by the supervisor, found by the worker in its environment.
#include "worker/page.h"
#include "base/fault.h"
#include "worker/worker.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t magic = 0x65676170746c7031; // a descriptor may be another file's by now

static const struct { const char *words; int has_step; } phases[] = {
#define PHASE(name, words, has_step) {words, has_step},
#include "worker/phases.def"
#undef PHASE
};

// The supervisor ------------------------------------------------------------------------------------------------------

// Sealed: a worker that made it shorter would end the supervisor by SIGBUS.
WorkerPages worker_pages_create(int count, int *descriptor) {
  size_t bytes = (size_t)count * sizeof(WorkerPage);
  WorkerPage *pages = MAP_FAILED;
  int fd = memfd_create("plait-workers", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && !ftruncate(fd, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
    pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  *descriptor = -1;
  if (pages == MAP_FAILED) {
    if (fd >= 0) close(fd);
    return (WorkerPages){0};
  }
  for (int i = 0; i < count; i++) pages[i].magic = magic;
  *descriptor = fd;
  return (WorkerPages){pages, count};
}

void worker_pages_destroy(WorkerPages *pages) {
  if (pages->page) munmap(pages->page, (size_t)pages->count * sizeof *pages->page);
  *pages = (WorkerPages){0};
}

void worker_page_describe_phase(const WorkerPage *page, char *text, size_t size) {
  uint64_t doing = atomic_load(&page->doing), phase = doing & 255;
  if (phase >= WORKER_PHASE_COUNT) phase = WORKER_PHASE_UNKNOWN;
  if (phases[phase].has_step && doing >> 8)
    snprintf(text, size, "%s %llu", phases[phase].words, (unsigned long long)(doing >> 8));
  else snprintf(text, size, "%s", phases[phase].words);
}

void worker_pages_set_continues(const WorkerPages *pages, bool continues) {
  for (int i = 0; i < pages->count; i++) atomic_store(&pages->page[i].continues, continues);
}

// A worker ------------------------------------------------------------------------------------------------------------

// The process's, as the environment that names it.
static struct { pthread_once_t once; WorkerPage *page; atomic_flag taken; } own = {
    PTHREAD_ONCE_INIT, NULL, ATOMIC_FLAG_INIT};

static void find(void) {
  const Supervised *me = worker_supervised();
  struct stat file;
  if (me->pages < 0 || fstat(me->pages, &file) || (size_t)file.st_size % sizeof(WorkerPage)) return;
  if ((size_t)me->page >= (size_t)file.st_size / sizeof(WorkerPage)) return;
  WorkerPage *pages = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, me->pages, 0);
  if (pages != MAP_FAILED && pages[me->page].magic == magic) own.page = &pages[me->page];
}

static WorkerPage *own_page(void) {
  pthread_once(&own.once, find);
  return own.page;
}

void worker_enter(WorkerPhase phase, int64_t step) {
  WorkerPage *page = own_page();
  if (FAULT(phase_is_not_shown, page != NULL, 0))
    atomic_store_explicit(&page->doing, (uint64_t)step << 8 | phase, memory_order_relaxed);
}

bool worker_job_continues(void) {
  WorkerPage *page = own_page();
  return FAULT(rounds_end_like_runs, page && atomic_load(&page->continues), false);
}

LastCall *worker_take_last_call(void) {
  WorkerPage *page = own_page();
  return page && !atomic_flag_test_and_set(&own.taken) ? &page->last : NULL;
}

void worker_give_last_call(LastCall *last) {
  if (own.page && last == &own.page->last) atomic_flag_clear(&own.taken);
}
