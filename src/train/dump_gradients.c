// run.dump_gradients: the reduced gradients of the first steps, gathered on rank 0 into DIR/step-N.safetensors.
#include "base/file.h"
#include "runtime/gather.h"
#include "runtime/state_tensors.h"
#include "train/trainer.h"
#include <stdlib.h>

static int write_gathered(const Training *x, const Gathered *all, Error *error) {
  const char *folder = x->trainer->recipe->run.dump_gradients;
  char *path = xformat("%s/step-%lld.safetensors", folder, (long long)x->step);
  int code = folder_create(folder, error);
  if (!code) code = safetensors_write_gathered(path, all->boxes, all->count, error);
  free(path);
  return code;
}

static int after(Training *x, Error *error) {
  const Recipe *recipe = x->trainer->recipe;
  CheckpointTensor *boxes;
  Gathered all = {0};
  if (!recipe->run.dump_gradients || x->step > recipe->run.dump_steps) return PLAIT_OK;
  int n = state_tensors_of(x->rank->state, OF_DUMP, &boxes);
  int code = gather_boxes(x->rank->world, boxes, n, &all, error);
  free(boxes);
  if (!code && x->rank->rank == 0) code = write_gathered(x, &all, error);
  gather_free(&all);
  return code ? code : rank_barrier(x->rank, error);
}

const Hook hook_dump_gradients = {.on = {[HOOK_AFTER] = after}};
