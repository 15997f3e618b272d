// Calling the hooks of a run.
#include "train/trainer.h"
#include <stdlib.h>

static const Hook *const hooks[] = {
#define HOOK(id, name) &hook_##name,
#include "train/hooks.def"
#undef HOOK
};

int hooks_open(Training *x, Error *error) {
  for (int i = 0; i < HOOK_COUNT; i++)
    if (hooks[i]->size) x->own[i] = xcalloc(1, hooks[i]->size);
  return hooks_call(x, HOOK_OPEN, error);
}

void hooks_close(Training *x) {
  for (int i = HOOK_COUNT - 1; i >= 0; i--) {
    if (hooks[i]->close) hooks[i]->close(x);
    free(x->own[i]);
    x->own[i] = NULL;
  }
}

int hooks_call(Training *x, HookEvent event, Error *error) {
  int code = PLAIT_OK;
  for (int i = 0; i < HOOK_COUNT && !code; i++)
    if (hooks[i]->on[event]) code = hooks[i]->on[event](x, error);
  return code;
}

bool hooks_pause(const Trainer *t, int64_t step) {
  for (int i = 0; i < HOOK_COUNT; i++)
    if (hooks[i]->pauses && hooks[i]->pauses(t, step)) return true;
  return false;
}
