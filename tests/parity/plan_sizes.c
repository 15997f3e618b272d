// Measures memory plans.
#include "plan_sizes.h"
#include "base/clock.h"
#include "program/lives.h"
#include "program/memory.h"
#include <inttypes.h>

// A line for each time of an item. Owners of one set are told apart by number.
static void write_problem(Program *p, const char *folder, int number) {
  Lives l;
  char path[512];
  snprintf(path, sizeof path, "%s/%05d.csv", folder, number);
  FILE *file = fopen(path, "w");
  if (!file) return perror(path);
  lives_make(p, &l);
  fprintf(file, "id,lower,upper,size,owners,owner\n");
  for (int i = 0; i < l.problem.item.count; i++) {
    const PackItem *x = &l.problem.item.data[i];
    for (int t = 0; t < x->count; t++)
      fprintf(file, "%d,%d,%d,%" PRId64 ",%u,%d\n", i, l.problem.time.data[x->first + t].lower,
              l.problem.time.data[x->first + t].upper, x->size, x->owners, x->owner);
  }
  lives_free(&l);
  fclose(file);
}

static void measure(Program *p, const char *name, const char *kind, int all, const char *folder, FILE *out,
                    PlanSizes *s) {
  static const char *const modes[] = {"bodies", "slots", "microbatches"};
  double begin = clock_process_seconds();
  memory_pack(p); // once more
  double took = clock_process_seconds() - begin;
  memory_total(p);
  const MemoryPlan *m = &p->memory;
  double ratio = m->live ? (double)p->arena_bytes / (double)m->live : 1;
  int tight = p->arena_bytes <= m->live + m->live / 100;
  if (all || !tight)
    fprintf(out, "%05d %.4f %6.1f ms, %5d instances by %-12s bound %12" PRId64 " arena %12" PRId64 " %s, pp %d, %s\n",
            s->plans, ratio, 1e3 * took, p->instances, modes[p->packed], m->live, p->arena_bytes, kind, p->coordinate,
            name);
  if (folder && p->packed) write_problem(p, folder, s->plans);
  s->plans++;
  s->tight += tight;
  s->seconds += took;
  if (ratio > s->worst) s->worst = ratio;
  if (took > s->slowest) {
    s->slowest = took;
    snprintf(s->slowest_name, sizeof s->slowest_name, "%05d: %s, pp %d, %s", s->plans - 1, kind, p->coordinate, name);
  }
}

void plan_sizes_of_job(const Job *job, const char *name, int all, const char *folder, FILE *out, PlanSizes *sizes) {
  for (int k = 0; k < job->list.count; k++)
    for (int c = 0; c < job_pipeline_ranks(job); c++)
      measure(job->list.data[k]->program[c], name, job->list.data[k]->role->name, all, folder, out, sizes);
}

void plan_sizes_print(const PlanSizes *s, FILE *out) {
  fprintf(out,
          "%d plans: %d (%.2f%%) within 1%% of their bound, the worst %.3f times it; %.2f ms on average, at most %.1f "
          "ms (%s)\n",
          s->plans, s->tight, s->plans ? 100.0 * s->tight / s->plans : 100.0, s->worst,
          s->plans ? 1e3 * s->seconds / s->plans : 0.0, 1e3 * s->slowest, s->slowest_name);
}
