#include "setup/device_room.h"
#include "base/fault.h"
#include "base/units.h"
#include <stdlib.h>

static int64_t bytes_of(const Job *job, int rank) {
  return job_state_bytes(job, mesh_pipeline_coordinate(&job->options.parallel.mesh, rank));
}

int64_t device_bytes_here(const Job *job, int first, int count) {
  int64_t bytes = 0;
  for (int r = 0; r < count && !device_shares_host(job->options.device->kind); r++) bytes += bytes_of(job, first + r);
  return bytes;
}

// Of one device: all ranks that it is the device of.
static int check_one(const Job *job, int first, const Device *const *of, int count, int r, Error *error) {
  int64_t bytes = 0, available, total;
  int sharing = 0;
  for (int i = 0; i < count; i++)
    if (of[i] == of[r]) bytes += bytes_of(job, first + i), sharing++;
  int code = of[r]->implementation->room(of[r], &available, &total, error);
  if (code || FAULT(device_memory_is_not_compared, bytes <= available, 1)) return code;
  return error_set(
      error, PLAIT_NO_MEMORY,
      "%d rank%s on the %s device of rank %d need%s %s of its memory, but only %s of %s are free (plait plan "
      "shows for what)",
      sharing, sharing == 1 ? "" : "s", of[r]->name, first + r, sharing == 1 ? "s" : "", units_bytes((double)bytes).s,
      units_bytes((double)available).s, units_bytes((double)total).s);
}

int device_check_room(const Job *job, int first, int count, Error *error) {
  int code = PLAIT_OK;
  if (device_shares_host(job->options.device->kind)) return code;
  const Device **of = xcalloc((size_t)count, sizeof *of);
  for (int r = 0; r < count && !code; r++)
    code = device_instance(job->options.device, device_number(&job->run.devices, r), &of[r], error);
  for (int r = 0; r < count && !code; r++) {
    int before = 0;
    for (int i = 0; i < r; i++) before |= of[i] == of[r];
    if (!before && of[r]->implementation->room) code = check_one(job, first, of, count, r, error);
  }
  free(of);
  return code;
}
