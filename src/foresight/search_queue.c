// The queue of a search: a binary heap.
#include "foresight/search_queue.h"

static int is_before(const QueuedPlan *a, const QueuedPlan *b) {
  double x = a->seconds * (1 + a->doubt), y = b->seconds * (1 + b->doubt);
  return x != y ? x < y : a->number < b->number;
}

void queue_push(PlanQueue *q, QueuedPlan plan) {
  vec_push(&q->heap, plan);
  QueuedPlan *heap = q->heap.data;
  for (int i = q->heap.count - 1; i && is_before(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2) {
    QueuedPlan t = heap[i];
    heap[i] = heap[(i - 1) / 2], heap[(i - 1) / 2] = t;
  }
}

void queue_add(PlanQueue *q, QueuedPlan plan) {
  plan.number = q->added++;
  queue_push(q, plan);
}

QueuedPlan queue_pop(PlanQueue *q) {
  QueuedPlan *heap = q->heap.data, first = heap[0];
  int n = --q->heap.count;
  heap[0] = heap[n];
  for (int i = 0, child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && is_before(&heap[child + 1], &heap[child])) child++;
    if (!is_before(&heap[child], &heap[i])) break;
    QueuedPlan t = heap[i];
    heap[i] = heap[child], heap[child] = t;
  }
  return first;
}

void queue_free(PlanQueue *q) { vec_free(&q->heap); }
