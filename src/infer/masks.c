// One thread, which takes masks in the order in which they were begun.
#include "infer/masks.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/thread.h"
#include <stdlib.h>

typedef enum MaskStage { MASK_WAITS, MASK_RUNS, MASK_IS_DONE } MaskStage;
typedef struct Mask { const RequestRules *rules; MaskStage stage; const uint8_t *allowed; } Mask;

struct Masks {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Vec(Mask) list; // in the order of masks_begin
  pthread_t thread;
  bool started, stop;
};

Masks *masks_create(void) {
  Masks *m = xcalloc(1, sizeof *m);
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->changed, NULL);
  return m;
}

static Mask *find(const Masks *m, const RequestRules *rules) {
  for (int i = 0; i < m->list.count; i++)
    if (m->list.data[i].rules == rules) return &m->list.data[i];
  return NULL;
}

static Mask *first_waiting(const Masks *m) {
  for (int i = 0; i < m->list.count; i++)
    if (m->list.data[i].stage == MASK_WAITS) return &m->list.data[i];
  return NULL;
}

static void forget(Masks *m, const Mask *mask) {
  int at = (int)(mask - m->list.data);
  for (m->list.count--; at < m->list.count; at++) m->list.data[at] = m->list.data[at + 1];
}

static void *compute_masks(void *masks) {
  Masks *m = masks;
  pthread_mutex_lock(&m->lock);
  while (!m->stop) {
    Mask *next = first_waiting(m);
    if (!next) {
      pthread_cond_wait(&m->changed, &m->lock);
      continue;
    }
    const RequestRules *rules = next->rules;
    next->stage = MASK_RUNS;
    pthread_mutex_unlock(&m->lock);
    const uint8_t *allowed = rules->allowed(rules->context);
    pthread_mutex_lock(&m->lock);
    Mask *done = find(m, rules); // the list may have moved
    done->allowed = allowed;
    done->stage = MASK_IS_DONE;
    pthread_cond_broadcast(&m->changed);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

// Without a thread masks are computed when they are taken.
static bool start(Masks *m) {
  Error ignored = {0};
  m->started = m->started || !thread_start(&m->thread, compute_masks, m, &ignored, "the thread of masks");
  return m->started;
}

void masks_begin(Masks *m, const RequestRules *rules) {
  pthread_mutex_lock(&m->lock);
  if (start(m) && !find(m, rules)) vec_push(&m->list, (Mask){.rules = rules});
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

const uint8_t *masks_take(Masks *m, const RequestRules *rules) {
  const uint8_t *allowed = NULL;
  pthread_mutex_lock(&m->lock);
  Mask *mask = find(m, rules);
  while (mask && mask->stage == MASK_RUNS) {
    pthread_cond_wait(&m->changed, &m->lock);
    mask = find(m, rules);
  }
  if (mask && mask->stage == MASK_IS_DONE) allowed = mask->allowed;
  if (mask && FAULT(masks_are_kept, true, !allowed)) forget(m, mask);
  pthread_mutex_unlock(&m->lock);
  return allowed ? allowed : rules->allowed(rules->context);
}

void masks_drop(Masks *m, const RequestRules *rules) {
  pthread_mutex_lock(&m->lock);
  for (int i = 0; i < m->list.count;) {
    const Mask *mask = &m->list.data[i];
    bool dropped = !rules || mask->rules == rules;
    if (dropped && mask->stage == MASK_RUNS) {
      pthread_cond_wait(&m->changed, &m->lock);
      i = 0;
    } else if (dropped) forget(m, mask);
    else i++;
  }
  pthread_mutex_unlock(&m->lock);
}

void masks_destroy(Masks *m) {
  if (!m) return;
  pthread_mutex_lock(&m->lock);
  m->stop = true;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  if (m->started) pthread_join(m->thread, NULL);
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->changed);
  vec_free(&m->list);
  free(m);
}
