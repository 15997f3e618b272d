// Where no plan of a search fits.
#include "foresight/search_nearest.h"
#include "base/units.h"
#include "machine/cluster.h"
#include "machine/cluster_find.h"
#include "machine/devices.h"
#include <math.h>

void nearest_read(const Job *job, Nearest *n) {
  const MemoryPlan *most = NULL;
  for (int c = 0; c < job_pipeline_ranks(job); c++)
    if (!most || job_train(job)->program[c]->memory.total > most->total) most = &job_train(job)->program[c]->memory;
  const struct { const char *name; int64_t bytes; } parts[] = {
      {"parameters", most->parameters},   {"gradients", most->gradients}, {"optimizer state", most->optimizer},
      {"activations", most->activations}, {"workspace", most->workspace}, {"communication", most->communication}};
  *n = (Nearest){.bytes = (double)most->total};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if ((double)parts[i].bytes > n->largest_bytes) {
      n->largest_bytes = (double)parts[i].bytes;
      snprintf(n->largest, sizeof n->largest, "%s", parts[i].name);
    }
}

Cluster nearest_enlarged(const Cluster *cluster, int64_t devices) {
  Cluster more = *cluster;
  int64_t have = cluster_devices(cluster);
  if (cluster->levels && devices > have)
    more.level[more.levels - 1].count *= (int)((devices + have - 1) / have);
  return more;
}

int nearest_more_ranks(const Cluster *cluster, int ranks) {
  enum { TIMES = 8 };
  int64_t most = cluster_devices(cluster);
  if (!cluster->island.count && cluster->levels && !devices_share_cores(cluster)) most *= TIMES;
  return 2 * (int64_t)ranks <= most ? 2 * ranks : 0;
}

// The shipped cluster whose device has the least memory that does: "A100-SXM4-80GB (dgx-a100-superpod)"; "": none has.
static void device_that_does(const NothingFits *where, double bytes, char *text, size_t size) {
  ClusterList list = cluster_list();
  double least = INFINITY;
  *text = 0;
  for (int i = 0; i < list.count; i++) {
    Cluster *c = NULL;
    Error ignored = {0};
    if (cluster_load(list.names[i], &c, &ignored)) continue;
    const DeviceFacts *d = &c->device;
    bool does = d->memory - d->reserved >= bytes && d->memory < least && d->matrix[where->precision] > 0;
    if (does) snprintf(text, size, "%.60s (%.60s)", d->name, list.names[i]), least = d->memory;
    cluster_free(c);
  }
  cluster_list_free(&list);
}

// For as many ranks as were asked for.
static int say_machine(const Nearest *n, const NothingFits *where, Error *error) {
  char device[160];
  int all = devices_share_cores(where->cluster) ? where->ranks : 1; // ranks that have the memory in common
  double memory = all * n->bytes + where->cluster->device.reserved;
  error_append(error, "%d rank%s would do with %s of %s", where->ranks, where->ranks > 1 ? "s" : "",
               all > 1 ? "a machine" : where->ranks > 1 ? "devices" : "a device", units_bytes(memory).s);
  if (all > 1) return PLAIT_INFEASIBLE;
  device_that_does(where, n->bytes, device, sizeof device);
  return error_append(error, *device ? ", as %s" : ", which no cluster that comes with plait has", device);
}

int nearest_say(const Nearest *n, const NothingFits *where, Error *error) {
  char ranks[200];
  int64_t have = cluster_devices(where->cluster);
  if (n->ranks > have)
    snprintf(ranks, sizeof ranks, "%d ranks of %.60s would do, but this cluster has %lld", n->ranks,
             where->cluster->device.name, (long long)have);
  else if (n->ranks) snprintf(ranks, sizeof ranks, "%d ranks of this cluster would do", n->ranks);
  else
    snprintf(ranks, sizeof ranks, "no number of ranks that was tried would do with %s", where->given);
  error_set(error, PLAIT_INFEASIBLE,
            "%s on %d rank%s: the nearest plan (%s) takes %s of %s, %s too much, most of it %s (%s); %s; ",
            where->looked_at_all ? "nothing fits" : "nothing that was looked at fits", where->ranks,
            where->ranks > 1 ? "s" : "", where->plan, units_bytes(n->bytes).s, units_bytes(where->room).s,
            units_bytes(n->bytes - where->room).s, n->largest, units_bytes(n->largest_bytes).s, ranks);
  return say_machine(n, where, error);
}
