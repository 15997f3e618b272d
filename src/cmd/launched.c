// Leaving a launcher's world.
#include "cmd/launched.h"
#include "base/signals.h"
#include "cli/options.h"
#include "comm/comm.h"
#include "comm/launcher.h"
#include "worker/notice.h"

// Under plait launch the supervisor prints the sentence, with what it knows itself of the failure.
static int fail(const char *name, const Error *error, bool ranks_are_processes) {
  Error notice = *error;
  if (!ranks_are_processes) notice.rank = notice.blamed = (ErrorRank){0}; // threads: the supervisor does not know them
  bool told = error->code != PLAIT_INTERRUPTED && worker_notice_failure(launcher_find().rank, &notice);
  return told ? error_exit_status(error->code) : command_fail(name, error);
}

int command_end(const char *name, int code, Launch *launch, const Error *error) {
  int status = 0;
  if (!launch->world || !world_will_end(launch->world)) status = code ? fail(name, error, launch->world != NULL) : 0;
  launch->outcome = code;
  launch_end(launch); // says itself why a world has failed
  return code == PLAIT_INTERRUPTED ? signals_exit_status() : status;
}
