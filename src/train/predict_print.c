// A prediction as text.
#include "train/predict.h"
#include "base/units.h"
#include <math.h>

static void print_head(const Prediction *p, const Cluster *cluster, FILE *out) {
  const Simulation *s = p->simulation;
  const Mesh *mesh = &p->job->options.parallel.mesh;
  fprintf(out, "%d ranks of %s (%s)\n", mesh->ranks, cluster->device.name, cluster->name);
  fprintf(out, "  %-22s %s\n", "a step", units_duration(s->step).s);
  fprintf(out, "  %-22s %s\n", "tokens/s", units_count(p->tokens_per_s).s);
  if (isfinite(p->mfu))
    fprintf(out, "  %-22s %.1f %% of the model's FLOPs at the data sheet's rate of products in %s\n", "MFU",
            100 * p->mfu, dtype_name((Dtype)p->recipe.precision));
  fprintf(out, "  %-22s %s, %lld steps\n", "the run", units_duration(p->run_seconds).s,
          (long long)p->recipe.schedule.steps);
  fprintf(out, "  %-22s %s of %s%s\n", "memory", units_bytes(p->bytes).s, units_bytes(p->room).s,
          p->bytes > p->room ? ": does not fit" : "");
}

static void print_parts(const Simulation *s, FILE *out) {
  const RankTime *t = &s->rank[s->busiest];
  fprintf(out, "\nwhere the time of pipeline rank %d goes, which waits least\n", s->busiest);
  for (int i = 0; i < TIME_PARTS; i++)
    if (t->part[i] > 0)
      fprintf(out, "  %-22s %10s %6.1f %%   %s\n", time_part_names[i], units_duration(t->part[i]).s,
              100 * t->part[i] / s->step, time_part_meanings[i]);
}

static void print_links(const Prediction *p, const Cluster *cluster, FILE *out) {
  const Simulation *s = p->simulation;
  const RankTime *t = &s->rank[s->busiest];
  char axes[64];
  if (!t->link.count) return;
  fprintf(out, "\ncommunication of that rank\n  %-14s %-14s %10s %10s %10s %8s\n", "over", "bounded by", "exposed",
          "in all", "sent", "calls");
  for (int i = 0; i < t->link.count; i++) {
    const LinkTime *l = &t->link.data[i];
    axes_text(&p->job->options.parallel.mesh, l->axes, axes, sizeof axes);
    fprintf(out, "  %-14s %-14s %10s %10s %10s %8.0f\n", axes,
            l->level >= 0 && l->level < cluster->levels ? cluster->level[l->level].name : "-",
            units_duration(l->exposed).s, units_duration(l->all).s, units_bytes(l->bytes).s, l->calls);
  }
}

static void print_critical(const Prediction *p, FILE *out) {
  const Simulation *s = p->simulation;
  char axes[64];
  if (!s->critical.count) return;
  fprintf(out, "\nwhat holds most of the critical path\n");
  for (int i = 0; i < s->critical.count; i++) {
    const CriticalItem *item = &s->critical.data[i];
    axes_text(&p->job->options.parallel.mesh, item->axes, axes, sizeof axes);
    fprintf(out, "  %-52s %10s %6.1f %% %8d calls%s%s\n", item->name, units_duration(item->seconds).s,
            100 * item->seconds / s->step, item->calls, *axes ? ", over " : "", axes);
  }
}

void prediction_print(const Prediction *p, const Cluster *cluster, FILE *out) {
  print_head(p, cluster, out);
  print_parts(p->simulation, out);
  print_links(p, cluster, out);
  print_critical(p, out);
}
