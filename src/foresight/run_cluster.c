// The cluster of a run of several processes is that of rank 0.
#include "foresight/run_cluster.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/yaml.h"
#include "machine/cluster_find.h"
#include <stdlib.h>

static int read_text(const Recipe *recipe, char **text, Error *error) {
  char *path = NULL;
  size_t size;
  int code = cluster_find(recipe->run.cluster, &path, error);
  if (!code) code = file_read(path, YAML_MAX_BYTES, text, &size, error);
  free(path);
  return code ? error_prefix(error, "%srun.cluster", recipe_where(recipe, "run.cluster")) : PLAIT_OK;
}

int run_cluster(const Recipe *recipe, const Launch *launch, Cluster **cluster, Error *error) {
  char *text = NULL;
  *cluster = NULL;
  if (!launch || !launch->world || !recipe->run.cluster) return PLAIT_OK;
  if (recipe->mesh.pp == 1 || recipe->parallel.layers.count || FAULT(stages_of_every_file, 0, 1)) return PLAIT_OK;
  int code = launch->rank ? PLAIT_OK : read_text(recipe, &text, error);
  code = launch_agree(launch, code, error);
  if (!code) code = launch_tell(launch, &text, error);
  if (!code) code = launch_agree(launch, cluster_parse(text, recipe->run.cluster, cluster, error), error);
  free(text);
  return code;
}
