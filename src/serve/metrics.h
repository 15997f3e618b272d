// Counters of a server, as Prometheus reads them.
#pragma once
#include "serve/ticket_queue.h"

enum { METRICS_BUCKETS = 10 };
typedef struct Histogram {
  int64_t count[METRICS_BUCKETS + 1]; // by their upper bounds; the last one: any larger
  double sum;
} Histogram;
typedef struct StatusCount { int endpoint, status; int64_t count; } StatusCount;

typedef struct Metrics {
  pthread_mutex_t mutex; // guards all
  Vec(StatusCount) answered;
  int64_t ignored;
  Histogram first_token, delivery; // seconds
} Metrics;

void metrics_create(Metrics *metrics);
void metrics_destroy(Metrics *metrics);
void metrics_answered(Metrics *metrics, int endpoint, int status);
void metrics_first_token(Metrics *metrics, double seconds);
void metrics_delivery(Metrics *metrics, double seconds);
void metrics_ignored(Metrics *metrics, int64_t fields);
// names: of the endpoints. Appends the text.
void metrics_print(Metrics *metrics, TicketQueue *queue, const char *const *names, ByteVector *out);
