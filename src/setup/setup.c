// Recipe and model config → compile options, job, loader.
#include "setup/setup.h"
#include "base/cores.h"
#include "base/fault.h"
#include "base/file.h"
#include "tokenizer/folder_check.h"
#include "machine/cluster.h"
#include "machine/kernel_time.h"
#include "machine/simulate.h"
#include "recipe/recipe_device.h"
#include "recipe/recipe_keys.h"
#include "runtime/chaos.h"
#include "worker/worker.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int setup_helpers(const Recipe *recipe, int threads) {
  int ranks = recipe_rank_count(recipe);
  if (!recipe->run.work_stealing || ranks == 1 || recipe_has_processes(recipe) ||
      threads * ranks > cores_available())
    return 0;
  return threads < TEAM_MOST_HELPERS ? threads : TEAM_MOST_HELPERS;
}

int setup_describe_lend(const Recipe *recipe, int threads, bool processes, char *text, size_t size) {
  int ranks = recipe_rank_count(recipe), cores = cores_available();
  text[0] = 0;
  if (!recipe->run.work_stealing || !recipe_is_given(recipe, "run.work_stealing") || ranks == 1) return 0;
  const char *where = recipe_where(recipe, "run.work_stealing");
  if (processes)
    return snprintf(
        text, size,
        "note: %srun.work_stealing is true, but it works between threads only, and ranks are processes here\n", where);
  if (threads * ranks <= cores) return 0;
  return snprintf(
      text, size,
      "note: %srun.work_stealing is true, but %d ranks of %d thread%s share %d core%s, so there is no idle core to "
      "use\n",
      where, ranks, threads, threads > 1 ? "s" : "", cores, cores > 1 ? "s" : "");
}

int setup_model_config(const Recipe *recipe, ModelConfig *config, Error *error) {
  const char *init = recipe->model.init;
  int code = init[0] == '/' ? folder_check_model(init, false, error) : PLAIT_OK;
  if (code) return error_prefix(error, "%smodel.init", recipe_where(recipe, "model.init"));
  code = model_config_load(config, recipe->model.config, error);
  if (code) return error_prefix(error, "%smodel.config", recipe_where(recipe, "model.config"));
  return setup_check_init(recipe, config, error);
}

void setup_note_model(const Recipe *r, const ModelConfig *c, FILE *out) {
  char *unread = model_config_unread(c);
  if (unread)
    fprintf(out, "note: %smodel.config: plait does not read these keys of %s, which change nothing here: %s\n",
            recipe_where(r, "model.config"), c->path, unread);
  free(unread);
  if (r->data.seq_len > c->positions)
    fprintf(out,
            "note: %sdata.seq_len is %d, but %s is made for %lld positions (max_position_embeddings): the run uses the "
            "longer sequences all the same, and an export still says %lld; raise the number there if that is meant\n",
            recipe_where(r, "data.seq_len"), r->data.seq_len, c->path, (long long)c->positions,
            (long long)c->positions);
}

// The Layout: its name, and the recipe's own rows.
static size_t describe_layout(const Recipe *r, char *text, size_t size) {
  static const char *const names[] = {"auto",
#define LAYOUT_SHIPPED(id, name, ...) name,
#include "sharding/layout_rows.def"
  };
  static const char *const rows[] = {
#define LAYOUT_ROW(id, name, meaning) name,
#include "sharding/layout_rows.def"
  };
  int name = r->layout.name         ? r->layout.name
             : r->parallel.sequence ? RECIPE_LAYOUT_SEQUENCE
             : r->mesh.tp > 1       ? RECIPE_LAYOUT_TENSOR
                                    : RECIPE_LAYOUT_DATA;
  static const char *const tensors[] = {
#define LAYOUT_TENSOR(id, name, ...) name,
#include "sharding/layout_rows.def"
  };
  size_t n = (size_t)snprintf(text, size, "layout %s",
                              r->parallel.tensor != LAYOUT_TENSOR_1D ? tensors[r->parallel.tensor] : names[name]);
  for (int row = 0, said = 0; row < LAYOUT_ROWS && n < size; row++) {
    const LayoutWords *axes = &r->layout.rows.row[row];
    if (axes->count < 0) continue;
    n += (size_t)snprintf(text + n, size - n, "%s%s [", said++ ? ", " : " with ", rows[row]);
    for (int i = 0; i < axes->count && n < size; i++)
      n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", axis_names[axes->axis[i]]);
    if (n < size) n += (size_t)snprintf(text + n, size - n, "]");
  }
  return n;
}

// How attention crosses cp, and whether plait chose it.
static void describe_context(const Step *step, char *text, size_t size) {
  AlgorithmName taken = step->algorithm[CHOICE_CONTEXT];
  text[0] = 0;
  if (taken) snprintf(text, size, ", context %s%s", algorithm_text(taken), step->parallel.context ? "" : " (auto)");
  if (taken == ALGORITHM_RING && step->parallel.ulysses > 1)
    snprintf(text + strlen(text), size - strlen(text), " over groups of %d by ulysses", step->parallel.ulysses);
}

void setup_describe(const Recipe *r, const Step *step, char *text, size_t size) {
  char hybrid[48] = "", pipeline[80] = "", layout[160], context[64], recompute[96] = "";
  char *again = recipe_value_text(r, "parallel.recompute");
  if (r->parallel.recompute.word != RECIPE_RECOMPUTE_NONE)
    snprintf(recompute, sizeof recompute, strlen(again) > 80 ? ", recompute %.77s…" : ", recompute %s", again);
  free(again);
  if (r->parallel.shard_group) snprintf(hybrid, sizeof hybrid, " over groups of %d (hybrid)", r->parallel.shard_group);
  if (r->mesh.pp > 1) snprintf(pipeline, sizeof pipeline, ", pipeline %s", schedules[r->parallel.pipeline].name);
  if (r->mesh.pp > 1 && recipe_virtual_stages(r) > 1)
    snprintf(pipeline, sizeof pipeline, ", pipeline %s of %d stages a rank", schedules[r->parallel.pipeline].name,
             recipe_virtual_stages(r));
  bool logits_again = *pipeline && schedules[r->parallel.pipeline].splits && r->transform.logits;
  describe_layout(r, layout, sizeof layout);
  describe_context(step, context, sizeof context);
  snprintf(text, size, "zero %d%s%s%s%s%s%s%s%s, %s%s", r->parallel.zero,
           r->parallel.unsplit_tensors ? " by whole tensors" : "", r->parallel.reshard ? "" : " without reshard",
           r->parallel.accumulate == RECIPE_ACCUMULATE_LOCAL ? ", gradients added locally" : "", hybrid, pipeline,
           logits_again ? ", logits recomputed" : "", recompute,
           r->parallel.update == RECIPE_UPDATE_IN_BACKWARD ? ", update in backward" : "", layout, context);
}

WatchdogLimits setup_watchdog(const Recipe *r) {
  return (WatchdogLimits){.seconds = {[ACTIVITY_START] = r->watchdog.start,
                                      [ACTIVITY_DATA] = r->watchdog.data,
                                      [ACTIVITY_STEP] = r->watchdog.step,
                                      [ACTIVITY_EVALUATION_DATA] = r->watchdog.data,
                                      [ACTIVITY_EVALUATION] = r->watchdog.step,
                                      [ACTIVITY_CHECKPOINT] = r->watchdog.checkpoint}};
}

static LaunchComm launch_comm(const Recipe *r) {
  static const LaunchComm comm[] = {
      [RECIPE_COMM_AUTO] = LAUNCH_AUTO, [RECIPE_COMM_LOCAL] = LAUNCH_LOCAL, [RECIPE_COMM_MPI] = LAUNCH_MPI,
      [RECIPE_COMM_NET] = LAUNCH_NET};
  return worker_supervised()->net ? LAUNCH_NET : comm[r->run.comm]; // plait launch decides before the recipe
}

int setup_launch(Launch *launch, const Recipe *r, Error *error) {
  char mesh[96];
  snprintf(mesh, sizeof mesh, "pp %d × dp %d × cp %d × tp %d", r->mesh.pp, r->mesh.dp, r->mesh.cp, r->mesh.tp);
  int code = recipe_check_ready(r, error);
  if (!code && r->dp_is_auto && launch_comm(r) != LAUNCH_LOCAL)
    code = launch_use(launch, recipe_rank_count(r), error);
  if (launch->idle) return code;
  return code ? code : launch_choose(launch, launch_comm(r), recipe_rank_count(r), mesh, error);
}

LaunchWish setup_wish(const Recipe *r) {
  static const NetWireChoice wire[] = {
      [RECIPE_WIRE_AUTO] = NET_WIRE_AUTO, [RECIPE_WIRE_SOCKETS] = NET_WIRE_SOCKETS, [RECIPE_WIRE_UCX] = NET_WIRE_UCX};
  return (LaunchWish){launch_comm(r), r->run.silence, wire[r->run.wire]};
}

LaunchWish setup_wish_of_keys(int count, char **keys) {
  static const struct { const char *key; LaunchComm comm; } words[] = {
      {"run.comm=mpi", LAUNCH_MPI}, {"run.comm=net", LAUNCH_NET}, {"run.comm=local", LAUNCH_LOCAL}};
  static const struct { const char *key; NetWireChoice wire; } wires[] = {{"run.wire=sockets", NET_WIRE_SOCKETS},
                                                                          {"run.wire=ucx", NET_WIRE_UCX}};
  LaunchWish wish = {0};
  for (int k = 0; k < count; k++) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (!strcmp(keys[k], words[i].key)) wish.comm = words[i].comm;
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
      if (!strcmp(keys[k], wires[i].key)) wish.wire = wires[i].wire;
  }
  return wish;
}
