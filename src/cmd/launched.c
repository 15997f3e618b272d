// Leaving a launcher's world.
#include "cmd/launched.h"
#include "base/signals.h"
#include "cmd/options.h"

int command_end(const char *name, int code, Launch *launch, const Error *error) {
  int status = 0, interrupted = code == PLAIT_INTERRUPTED;
  if (!launch->world || !*plait_comm_error(launch->comm)) status = code && !interrupted ? command_fail(name, error) : 0;
  launch_end(launch); // says itself why a world has failed
  return interrupted && signals_number() ? 128 + signals_number() : status;
}
