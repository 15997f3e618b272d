// Leaving a launcher's world.
#include "cmd/launched.h"
#include "base/signals.h"
#include "cmd/options.h"

int command_end(const char *name, int code, Launch *launch, const Error *error) {
  int status = 0;
  if (!launch->world || !*plait_comm_error(launch->comm)) status = code ? command_fail(name, error) : 0;
  launch_end(launch); // says itself why a world has failed
  return code == PLAIT_INTERRUPTED ? signals_exit_status() : status;
}
