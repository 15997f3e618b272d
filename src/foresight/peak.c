// The measured peak, which is kept with what else is measured of this machine (machine/cluster_machine.h).
#include "foresight/peak.h"
#include "base/cores.h"
#include "machine/cluster_machine.h"
#include <stdlib.h>
#include <unistd.h>

static char *key_of(const Device *device, Dtype dtype, int threads, int processes) {
  char host[80] = "", together[40] = "";
  if (gethostname(host, sizeof host - 1)) *host = 0;
  if (processes > 1) snprintf(together, sizeof together, ", %d processes", processes);
  return xformat("%s; plait %s, %s %s, %s, %d threads%s", host, PLAIT_VERSION, device->name,
                 device->variant ? device->variant : "", dtype_name(dtype), threads, together);
}

static double measure(const Device *device, Dtype dtype, int threads) {
  Team *team;
  if (team_create(threads, &team, NULL)) return 0; // refused: the ranks will say why
  double flops = device->peak_flops(device, dtype, team);
  team_destroy(team);
  return flops;
}

static double peak(const Device *device, Dtype dtype, int threads, int processes, bool again) {
  if (threads > cores_available()) threads = cores_available();
  char *key = key_of(device, dtype, threads, processes);
  double known = cluster_machine_peak(key), measured = again || !(known > 0) ? measure(device, dtype, threads) : 0;
  if (measured > known) cluster_machine_keep_peak(key, measured);
  free(key);
  return measured > known ? measured : known;
}

double peak_flops(const Device *device, Dtype dtype, int threads, int processes) {
  return peak(device, dtype, threads, processes, false);
}

double peak_flops_again(const Device *device, Dtype dtype, int threads, int processes) {
  return peak(device, dtype, threads, processes, true);
}
