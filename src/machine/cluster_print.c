// Prints a cluster, for people, and the list of those that come with plait.
#include "base/fault.h"
#include "base/units.h"
#include "machine/cluster_find.h"
#include "machine/cluster_keys.h"
#include <string.h>

// Seconds that are far below one: "3.4 µs".
static UnitText small_time(double seconds) {
  UnitText text;
  if (seconds < 1e-3) snprintf(text.s, sizeof text.s, "%.4g µs", seconds * 1e6);
  else snprintf(text.s, sizeof text.s, "%.4g ms", seconds * 1e3);
  return text;
}

static void print_rates(const char *label, const double *rates, FILE *out) {
  int count = 0;
  fprintf(out, "  %-10s", label);
  for (int d = 0; d < DTYPE_COUNT; d++)
    if (rates[d] > 0) fprintf(out, "%s%s %s", count++ ? ", " : "", dtype_name((Dtype)d), units_flops(rates[d]).s);
}

static void print_device(const DeviceFacts *d, FILE *out) {
  fprintf(out, "  %-10s%s: %d units, %s of cache\n", "device", d->name, d->units, units_bytes(d->cache).s);
  fprintf(out, "  %-10s%s at %s/s, of which %s are reserved\n", "memory", units_bytes(d->memory).s,
          units_bytes(d->bandwidth).s, units_bytes(d->reserved).s);
  print_rates("products", d->matrix, out);
  if (d->sustained < 1) fprintf(out, "; in long runs × %.4g", d->sustained);
  fputc('\n', out);
  print_rates("other ops", d->vector, out);
  fprintf(out, "\n  %-10s%s on the device, %s on the host\n", "a kernel", small_time(d->launch).s,
          small_time(d->host).s);
}

// Bytes a second that leave one unit of the level below, by all its ports. In a mesh it has at least one to each of
// the others.
static double unit_bandwidth(const LevelFacts *level) {
  double port = FAULT(cluster_counts_one_port, level->ports, 1) * level->bandwidth;
  if (level->kind == LEVEL_BUS) return level->bandwidth;
  int others = level->count - 1;
  return level->kind == LEVEL_MESH && others > level->ports ? others * level->bandwidth : port;
}

// Of all links of the level in the whole cluster.
static double all_bandwidth(const LevelFacts *level, int64_t units) {
  if (level->kind == LEVEL_BUS) return (double)(units / level->count) * level->bandwidth;
  return (double)units * unit_bandwidth(level);
}

static void print_levels(const Cluster *c, FILE *out) {
  int64_t units = cluster_devices(c);
  if (c->levels)
    fprintf(out, "\n  %-12s %-22s %-7s %5s  %-11s %-11s %-11s %s\n", "level", "connects", "kind", "ports", "a port",
            "a unit", "all ports", "a hop");
  for (int i = 0; i < c->levels; i++) {
    const LevelFacts *level = &c->level[i];
    char connects[80], port[40], unit[40], all[40];
    if (i) snprintf(connects, sizeof connects, "%d × %s", level->count, c->level[i - 1].name);
    else snprintf(connects, sizeof connects, "%d devices", level->count);
    const char *kinds[LEVEL_KINDS] = {"switch", "ring", "mesh", "bus"};
    snprintf(port, sizeof port, "%s/s", units_bytes(level->bandwidth).s);
    snprintf(unit, sizeof unit, "%s/s", units_bytes(unit_bandwidth(level)).s);
    snprintf(all, sizeof all, "%s/s", units_bytes(all_bandwidth(level, units)).s);
    int columns = 22 + (i ? 1 : 0); // × has two bytes
    fprintf(out, "  %-12s %-*s %-7s %5d  %-11s %-11s %-11s %s", level->name, columns, connects, kinds[level->kind],
            level->ports, port, unit, all, small_time(level->latency).s);
    if (level->oversubscription > 1) fprintf(out, "; %.4g : 1 oversubscribed", level->oversubscription);
    if (level->reduces) fputs("; the switch adds", out);
    fputc('\n', out);
    units /= level->count;
  }
}

void cluster_print(const Cluster *c, FILE *out) {
  int64_t devices = cluster_devices(c);
  fprintf(out, "%s\n%s: %lld device%s\n\n", c->name, c->path, (long long)devices, devices == 1 ? "" : "s");
  print_device(&c->device, out);
  for (int i = 0; i < c->island.count; i++) {
    const IslandFacts *island = &c->island.data[i];
    fprintf(out, "\ndevices %d to %d:\n", island->first, island->first + island->count - 1);
    print_device(&island->device, out);
  }
  for (int i = 0; i < c->spaces; i++) {
    const SpaceFacts *space = &c->space[i];
    fprintf(out, "  %-10s%s at %s/s, shared by %d; a copy %s\n", space->name, units_bytes(space->memory).s,
            units_bytes(space->bandwidth).s, space->shared_by, small_time(space->latency).s);
  }
  print_levels(c, out);
  fputs("\n", out);
  if (c->base[0] >= 0)
    fprintf(out, "  a collective takes %s within the innermost level and %s beyond it, plus its hops and bytes\n",
            small_time(c->base[0]).s, small_time(c->base[1]).s);
  if (c->spread > 0) fprintf(out, "  the speed of devices varies by %.4g%% (σ)\n", c->spread * 100);
  if (c->measured.count) fprintf(out, "  %d measured collectives go before formulas\n", c->measured.count);
  const char *attention = cluster_key_words(cluster_key_find(CLUSTER_SOFTWARE, "attention"))[c->software.attention];
  if (c->software.source)
    fprintf(out, "  software: attention %s, fusions %s, %.4g launches per op, %s sends, %.4g bytes a parameter more\n",
            attention, c->software.fusions ? "true" : "false", c->software.launches_per_op,
            c->software.blocking_sends ? "blocking" : "asynchronous", c->software.parameter_bytes);
}

int cluster_print_list(FILE *out, Error *error) {
  ClusterList list = cluster_list();
  int code = PLAIT_OK;
  if (!list.count) {
    Cluster *none;
    code = cluster_load("", &none, error); // the sentence
  }
  for (int i = 0; i < list.count && !code; i++) {
    Cluster *cluster;
    code = cluster_load(list.names[i], &cluster, error);
    if (!code)
      fprintf(out, "%-18s %5lld device%s  %s\n", list.names[i], (long long)cluster_devices(cluster),
              cluster_devices(cluster) == 1 ? " " : "s", cluster->name);
    cluster_free(cluster);
  }
  cluster_list_free(&list);
  return code;
}
