// model.init is a folder with its own config.json: does model.config, where it is given as well, say the same?
#include "base/fault.h"
#include "base/file.h"
#include "setup/setup.h"
#include <stdlib.h>
#include <string.h>

// Numbers of a config that decide shapes of tensors.
static const struct { const char *name; size_t offset; } sizes[] = {
    {"layers", offsetof(ModelConfig, layers)},
    {"width", offsetof(ModelConfig, embed)},
    {"feed-forward width", offsetof(ModelConfig, ffn)},
    {"vocabulary", offsetof(ModelConfig, vocab)},
    {"heads", offsetof(ModelConfig, heads)},
    {"key and value heads", offsetof(ModelConfig, kv_heads)},
    {"head width", offsetof(ModelConfig, head_dim)},
    {"experts", offsetof(ModelConfig, experts)},
    {"experts' width", offsetof(ModelConfig, expert_ffn)},
};

static int64_t size_of(const ModelConfig *config, size_t offset) {
  return *(const int64_t *)(const void *)((const char *)config + offset);
}

// "gpt2", or of the same family "2 layers": the first in which they differ. False: in nothing.
static bool find_difference(const ModelConfig *given, const ModelConfig *own, char *ours, char *theirs, size_t size) {
  if (given->family != own->family) {
    snprintf(ours, size, "%s", model_family_name(given->family));
    snprintf(theirs, size, "%s", model_family_name(own->family));
    return true;
  }
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t a = size_of(given, sizes[i].offset), b = size_of(own, sizes[i].offset);
    if (a == b) continue;
    snprintf(ours, size, "%s %lld", sizes[i].name, (long long)a);
    snprintf(theirs, size, "%s %lld", sizes[i].name, (long long)b);
    return FAULT(folders_differ_in_family_only, true, false);
  }
  return false;
}

int setup_check_init(const Recipe *r, const ModelConfig *config, Error *error) {
  if (r->model.init[0] != '/') return PLAIT_OK;
  char *path = xformat("%s/config.json", r->model.init), ours[64], theirs[64];
  ModelConfig own = {0};
  Error unread = {0}; // model.config may be given because plait cannot read it, or it is missing
  int code = PLAIT_OK;
  if (file_exists(path) && !model_config_load(&own, path, &unread) &&
      find_difference(config, &own, ours, theirs, sizeof ours))
    code =
        error_set(error, PLAIT_BAD_INPUT,
                  "%smodel.config: %s says %s, but the folder of model.init, whose weights it should fit, says %s in "
                  "%s; leave model.config out%s",
                  recipe_where(r, "model.config"), r->model.config, ours, theirs, path,
                  recipe_is_given(r, "model.config") ? " (model.config=null)" : "");
  model_config_free(&own);
  free(path);
  return code;
}
