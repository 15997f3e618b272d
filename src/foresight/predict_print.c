// A prediction as text.
#include "foresight/predict.h"
#include "base/units.h"
#include "machine/devices.h"
#include <jansson.h>
#include <math.h>

static void print_head(const Prediction *p, const Cluster *cluster, FILE *out) {
  const Simulation *s = p->simulation;
  const Mesh *mesh = &p->job->options.parallel.mesh;
  char devices[256];
  devices_text(cluster, mesh->ranks, devices, sizeof devices);
  fprintf(out, "%s (%s)\n", devices, cluster->name);
  fprintf(out, "  %-22s %s\n", "a step", units_seconds(s->step).s);
  fprintf(out, "  %-22s %s\n", "tokens/s", units_count(p->tokens_per_s).s);
  if (isfinite(p->mfu))
    fprintf(out, "  %-22s %.1f %% of the model's FLOPs at the %s rate of products in %s\n", "MFU", 100 * p->mfu,
            devices_share_cores(cluster) ? "measured" : "data sheet's",
            dtype_name((Dtype)p->recipe.precision));
  fprintf(out, "  %-22s %s, %lld steps\n", "the run", units_duration(p->run_seconds).s,
          (long long)p->recipe.schedule.steps);
  fprintf(out, "  %-22s %s of %s%s\n", "memory", units_bytes(p->bytes).s, units_bytes(p->room).s,
          p->bytes > p->room ? ": does not fit" : "");
}

// Of the rank with the most (docs/foresight.md, "Transfers that meet").
static double most_met(const Simulation *s) {
  double met = 0;
  for (int r = 0; r < s->ranks; r++) met = fmax(met, s->rank[r].met);
  return met;
}

static void print_parts(const Simulation *s, FILE *out) {
  const RankTime *t = &s->rank[s->busiest];
  fprintf(out, "\nwhere the time of %s %d goes, which waits least\n",
          s->all_ranks ? "rank" : "pipeline rank", s->busiest);
  for (int i = 0; i < TIME_PARTS; i++)
    if (t->part[i] > 0)
      fprintf(out, "  %-22s %10s %6.1f %%   %s\n", time_part_names[i], units_seconds(t->part[i]).s,
              100 * t->part[i] / s->step, time_part_meanings[i]);
}

// Bytes of a text beyond its characters: printf pads by bytes.
static int multibyte(const char *text) {
  int n = 0;
  for (; *text; text++) n += (*text & 0xc0) == 0x80;
  return n;
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
    fprintf(out, "  %-*s %-14s %10s %10s %10s %8.0f\n", 14 + multibyte(axes), axes,
            l->level >= 0 && l->level < cluster->levels ? cluster->level[l->level].name : "-",
            units_seconds(l->exposed).s, units_seconds(l->all).s, units_bytes(l->bytes).s, l->calls);
  }
  double met = most_met(s);
  if (met > 0.001 * s->step)
    fprintf(out, "  a rank's transfers meet on a link for %s (%.1f %%) at most, %s\n", units_seconds(met).s,
            100 * met / s->step, s->shared ? "and share it" : "as if each had it alone");
}

static void print_critical(const Prediction *p, FILE *out) {
  const Simulation *s = p->simulation;
  char axes[64];
  if (!s->critical.count) return;
  fprintf(out, "\nwhat holds most of the critical path\n");
  for (int i = 0; i < s->critical.count; i++) {
    const CriticalItem *item = &s->critical.data[i];
    axes_text(&p->job->options.parallel.mesh, item->axes, axes, sizeof axes);
    fprintf(out, "  %-52s %10s %6.1f %% %8d calls%s%s\n", item->name, units_seconds(item->seconds).s,
            100 * item->seconds / s->step, item->calls, *axes ? ", over " : "", axes);
  }
}

void prediction_print(const Prediction *p, const Cluster *cluster, FILE *out) {
  print_head(p, cluster, out);
  print_parts(p->simulation, out);
  print_links(p, cluster, out);
  print_critical(p, out);
  if (p->simulation->guessed)
    fprintf(out,
            "\nnote: %s was never measured on this machine in this precision, so its time is estimated from other ops; "
            "plait probe --for RECIPE measures it\n",
            p->simulation->guessed);
}

static json_t *parts_json(const RankTime *t) {
  json_t *parts = json_object();
  for (int i = 0; i < TIME_PARTS; i++) json_object_set_new(parts, time_part_names[i], json_real(t->part[i]));
  return parts;
}

static json_t *links_json(const Prediction *p, const Cluster *cluster, const RankTime *t) {
  json_t *links = json_array();
  char axes[64];
  for (int i = 0; i < t->link.count; i++) {
    const LinkTime *l = &t->link.data[i];
    axes_text(&p->job->options.parallel.mesh, l->axes, axes, sizeof axes);
    json_array_append_new(links,
                          json_pack("{s:s, s:s, s:b, s:f, s:f, s:f, s:f}", "axes", axes, "level",
                                    l->level >= 0 && l->level < cluster->levels ? cluster->level[l->level].name : "",
                                    "messages", l->messages, "exposed_seconds", l->exposed, "seconds", l->all, "bytes",
                                    l->bytes, "calls", l->calls));
  }
  return links;
}

static json_t *critical_json(const Prediction *p) {
  json_t *items = json_array();
  char axes[64];
  for (int i = 0; i < p->simulation->critical.count; i++) {
    const CriticalItem *item = &p->simulation->critical.data[i];
    axes_text(&p->job->options.parallel.mesh, item->axes, axes, sizeof axes);
    json_array_append_new(items, json_pack("{s:s, s:s, s:f, s:i}", "name", item->name, "axes", axes, "seconds",
                                           item->seconds, "calls", item->calls));
  }
  return items;
}

json_t *prediction_json(const Prediction *p, const Cluster *cluster) {
  const Simulation *s = p->simulation;
  const RankTime *t = &s->rank[s->busiest];
  return json_pack("{s:s, s:i, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:i, s:o, s:o, s:o}", "cluster", cluster->name,
                   "ranks", p->job->options.parallel.mesh.ranks, "step_seconds", s->step, "tokens_per_s",
                   p->tokens_per_s, "mfu", isfinite(p->mfu) ? json_real(p->mfu) : json_null(), "run_seconds",
                   p->run_seconds, "memory_bytes", p->bytes, "room_bytes", p->room, "met_seconds", most_met(s),
                   "busiest", s->busiest, "parts", parts_json(t), "links", links_json(p, cluster, t), "critical",
                   critical_json(p));
}

json_t *limits_json(const Limit *limit, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++)
    json_array_append_new(list, json_pack("{s:s, s:f}", "resource", limit[i].resource, "gain", limit[i].gain));
  return list;
}
