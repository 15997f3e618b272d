// Inputs of a test's own with ranks as processes: steps with a float input that comes late, on the mesh of the keys,
// beside one rank in every process; then from a checkpoint with the other keys.
// Usage: process_own_inputs FOLDER KEYS OTHER_KEYS   FOLDER: for checkpoints, the same in all processes
#include "own_inputs.h"

static int run(const char *keys, PlaitComm *comm, OwnRun *out, const char *save, const char *load, Error *error) {
  int64_t step;
  char *warnings = NULL;
  Session *session = NULL;
  int code = own_open(out, keys, true, error);
  if (!code && load && checkpoint_latest_valid(load, &step, &out->from, &warnings, error) != 1)
    code = error_set(error, PLAIT_FAILED, "there is no checkpoint");
  if (!code && load) out->first = step + 1;
  if (!code && save) out->last = OWN_STEPS - 1, out->checkpoints = xstrdup(save);
  SessionOptions options = comm ? (SessionOptions){.comm = comm} : (SessionOptions){.ranks = 1};
  if (!code) code = session_open(&options, &session, error);
  if (!code) code = session_run(session, own_train, out, error);
  session_close(session);
  free(out->checkpoints);
  free(warnings);
  own_close(out);
  return code;
}

static double off(const OwnRun *a, const OwnRun *b, int64_t first, int64_t last) {
  double worst = 0;
  for (int64_t i = first; i <= last; i++)
    worst = fmax(worst, fmax(fabs(a->loss[i] / b->loss[i] - 1), fmax(fabs(a->norm[i] / b->norm[i] - 1),
                                                                    fabs(a->size[i] / b->size[i] - 1))));
  return worst;
}

int main(int argc, char **argv) {
  Error error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  OwnRun one, begun, resumed;
  if (argc != 4) return fprintf(stderr, "usage: process_own_inputs FOLDER KEYS OTHER_KEYS\n"), 2;
  if (plait_world_launched_create(&world, &error) || plait_comm_world(world, plait_world_rank(world), &comm, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  int rank = plait_comm_rank(comm), code = run("mesh.dp=1", NULL, &one, NULL, NULL, &error);
  if (!code) code = run(argv[2], comm, &begun, argv[1], NULL, &error);
  if (!code) code = run(argv[3], comm, &resumed, NULL, argv[1], &error);
  if (code) fprintf(stderr, "%s\n", error.message);
  double worst = 0;
  if (!code && !rank) worst = fmax(off(&begun, &one, 1, OWN_STEPS - 1), off(&resumed, &one, OWN_STEPS, OWN_STEPS));
  if (!code && !rank)
    printf("loss %.6f to %.6f, off by %.1e: %s\n", one.loss[1], one.loss[OWN_STEPS], worst,
           worst <= 1e-6 ? "agree" : "DIFFER");
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return code ? 2 : !(worst <= 1e-6);
}
