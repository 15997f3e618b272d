// Devices of several kinds.
#include "machine/devices.h"
#include "device/device.h"
#include "machine/kernel_time.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const DeviceFacts *kind(const Cluster *c, int i) { return i ? &c->island.data[i - 1].device : &c->device; }

const DeviceFacts *devices_fastest(const Cluster *c, Dtype dtype) {
  const DeviceFacts *best = &c->device;
  for (int i = 1; i <= c->island.count; i++)
    if (product_rate(kind(c, i), dtype) * kind(c, i)->sustained > product_rate(best, dtype) * best->sustained)
      best = kind(c, i);
  return best;
}

double devices_room(const Cluster *c, int ranks, const Mesh *mesh, int coordinate) {
  double least = INFINITY;
  double room = c->device.memory - c->device.reserved;
  if (devices_share_cores(c)) return room / fmin(ranks, (double)cluster_devices(c)); // shared by all
  if (!c->island.count) return room;
  for (int r = 0; r < ranks; r++) {
    const DeviceFacts *d = cluster_device(c, r);
    if (mesh && mesh_pipeline_coordinate(mesh, r) != coordinate) continue;
    least = fmin(least, d->memory - d->reserved);
  }
  return least;
}

int devices_share_cores(const Cluster *c) { return device_shares_host((DeviceKind)c->device.backend); }

double devices_at_once(const Cluster *c, int ranks) {
  return devices_share_cores(c) ? (double)cluster_devices(c) : ranks;
}

double devices_rate(const Cluster *c, int ranks, Dtype dtype) {
  double sum = 0;
  for (int r = 0; r < ranks; r++) {
    double rate = product_rate(cluster_device(c, r), dtype);
    if (rate <= 0) return 0;
    sum += rate;
  }
  return sum;
}

void devices_text(const Cluster *c, int ranks, char *text, size_t size) {
  size_t n = 0;
  text[0] = 0;
  for (int i = 0; i <= c->island.count && n < size; i++) {
    int count = 0, known = 0; // of devices of this name, counted where it comes first
    for (int k = 0; k < i; k++) known |= !strcmp(kind(c, k)->name, kind(c, i)->name);
    for (int r = 0; r < ranks && !known; r++) count += !strcmp(cluster_device(c, r)->name, kind(c, i)->name);
    if (count)
      n += (size_t)snprintf(text + n, size - n, "%s%d%s of %s", n ? " and " : "", count,
                            n           ? ""
                            : count > 1 ? " ranks"
                                        : " rank",
                            kind(c, i)->name);
  }
}
