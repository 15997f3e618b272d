// Prometheus' text format, by the table in metrics.def.
#include "serve/metrics.h"
#include <stdio.h>
#include <string.h>

static const double first_token_bound[METRICS_BUCKETS] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60};
static const double delivery_bound[METRICS_BUCKETS] = {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.05, 0.25, 1};

void metrics_create(Metrics *m) {
  *m = (Metrics){0};
  pthread_mutex_init(&m->mutex, NULL);
}

void metrics_destroy(Metrics *m) {
  pthread_mutex_destroy(&m->mutex);
  vec_free(&m->answered);
}

void metrics_answered(Metrics *m, int endpoint, int status) {
  pthread_mutex_lock(&m->mutex);
  int i = 0;
  while (i < m->answered.count && (m->answered.data[i].endpoint != endpoint || m->answered.data[i].status != status))
    i++;
  if (i == m->answered.count) vec_push(&m->answered, (StatusCount){endpoint, status, 0});
  m->answered.data[i].count++;
  pthread_mutex_unlock(&m->mutex);
}

static void count(Metrics *m, Histogram *h, const double *bound, double seconds) {
  int i = 0;
  while (i < METRICS_BUCKETS && seconds > bound[i]) i++;
  pthread_mutex_lock(&m->mutex);
  h->count[i]++;
  h->sum += seconds;
  pthread_mutex_unlock(&m->mutex);
}

void metrics_first_token(Metrics *m, double seconds) { count(m, &m->first_token, first_token_bound, seconds); }
void metrics_delivery(Metrics *m, double seconds) { count(m, &m->delivery, delivery_bound, seconds); }

void metrics_ignored(Metrics *m, int64_t fields) {
  pthread_mutex_lock(&m->mutex);
  m->ignored += fields;
  pthread_mutex_unlock(&m->mutex);
}

// ---- text

__attribute__((format(printf, 2, 3))) static void put(ByteVector *out, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  bytes_append(out, line, (size_t)n);
}

typedef struct Values {
#define METRIC(name, kind, meaning) double name;
#include "serve/metrics.def"
#undef METRIC
} Values;

static Values values_of(const Metrics *m, TicketQueue *q) {
  pthread_mutex_lock(&q->mutex);
  const EngineTimes *t = &q->times;
  Values v = {.requests_running = q->load.running,
              .requests_waiting = q->open - q->load.running,
              .requests_abandoned_total = (double)q->abandoned,
              .prompt_tokens_total = (double)t->prompt_tokens,
              .cached_tokens_total = (double)t->reused_tokens,
              .drawn_tokens_total = (double)t->drawn_tokens,
              .guessed_tokens_total = (double)t->guessed,
              .accepted_tokens_total = (double)t->accepted,
              .preempted_total = (double)t->preempted,
              .pages = q->load.pages,
              .pages_used = q->load.pages_used,
              .ticks_total = (double)t->ticks,
              .tick_seconds_total = t->seconds,
              .ignored_fields_total = (double)m->ignored};
  pthread_mutex_unlock(&q->mutex);
  if (v.requests_waiting < 0) v.requests_waiting = 0; // of those that run one has just ended
  return v;
}

static void put_answered(const Metrics *m, const char *const *names, ByteVector *out) {
  for (int i = 0; i < m->answered.count; i++) {
    const StatusCount *s = &m->answered.data[i];
    put(out, "plait_requests_total{endpoint=\"%s\",status=\"%d\"} %lld\n", names[s->endpoint], s->status,
        (long long)s->count);
  }
}

static void put_histogram(ByteVector *out, const char *name, const Histogram *h, const double *bound) {
  int64_t count_to = 0;
  for (int i = 0; i <= METRICS_BUCKETS; i++) {
    count_to += h->count[i];
    if (i < METRICS_BUCKETS) put(out, "plait_%s_bucket{le=\"%g\"} %lld\n", name, bound[i], (long long)count_to);
  }
  put(out, "plait_%s_bucket{le=\"+Inf\"} %lld\n", name, (long long)count_to);
  put(out, "plait_%s_sum %.9g\nplait_%s_count %lld\n", name, h->sum, name, (long long)count_to);
}

static void put_head(ByteVector *out, const char *name, const char *kind, const char *meaning) {
  put(out, "# HELP plait_%s %s\n# TYPE plait_%s %s\n", name, meaning, name, kind);
}

void metrics_print(Metrics *m, TicketQueue *q, const char *const *names, ByteVector *out) {
  static const char *const COUNTER = "counter", *const GAUGE = "gauge", *const HISTOGRAM = "histogram";
  pthread_mutex_lock(&m->mutex);
  Values v = values_of(m, q);
#define METRIC(name, kind, meaning)                                                                                    \
  put_head(out, #name, kind, meaning);                                                                                 \
  if (!strcmp(#name, "requests_total")) put_answered(m, names, out);                                                   \
  else if (!strcmp(#name, "first_token_seconds")) put_histogram(out, #name, &m->first_token, first_token_bound);       \
  else if (kind == HISTOGRAM) put_histogram(out, #name, &m->delivery, delivery_bound);                                 \
  else put(out, "plait_" #name " %.15g\n", v.name);
#include "serve/metrics.def"
#undef METRIC
  pthread_mutex_unlock(&m->mutex);
}
