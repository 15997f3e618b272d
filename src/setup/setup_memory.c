// Memory of a rank of a job beside the Programs' own plan: loaders, bound instructions, the copy for checkpoints.
#include "setup/setup_memory.h"
#include "setup/setup.h"
#include "runtime/staging.h"
#include <stdlib.h>

int64_t setup_loader_bytes(const Recipe *r, const ModelConfig *config, const Job *job) {
  int64_t bytes = 0;
  for (int validation = 0; validation < 2; validation++) {
    const RecipeCorpora *list = recipe_corpora(r, validation);
    if (!list->count) continue;
    DataSource *sources = xcalloc((size_t)list->count, sizeof *sources);
    LoaderConfig c = setup_loader(r, config, validation, sources);
    c.shares = validation ? &job_find(job, &role_evaluate)->shares : &job_train(job)->shares;
    c.part = rank_window_part(job, 0);
    bytes += (int64_t)loader_bytes(&c);
    free(sources);
  }
  return bytes;
}

bool setup_saves_later(const Recipe *r) {
  bool any = (r->checkpoint.every && r->checkpoint.every < r->schedule.steps) || r->checkpoint.best;
  return any && r->checkpoint.async != RECIPE_ASYNC_OFF;
}

bool setup_keeps(const Recipe *r) {
  return r->checkpoint.memory_every && r->checkpoint.memory_every < r->schedule.steps;
}

int setup_copies(const Recipe *r) {
  enum { IN_TURN = 2 };
  return setup_keeps(r) ? IN_TURN * (1 + r->checkpoint.copies) : setup_saves_later(r);
}

int64_t setup_copy_bytes(const Recipe *recipe, const Job *job, int coordinate, int64_t *sum) {
  const Mesh *mesh = &job->options.parallel.mesh;
  int copies = setup_copies(recipe);
  int64_t most = 0;
  *sum = 0;
  for (int rank = 0; rank < mesh->ranks && copies; rank++) {
    if (mesh_pipeline_coordinate(mesh, rank) != coordinate) continue;
    int64_t bytes = copies * staging_bytes(job_program(job, coordinate), rank);
    *sum += bytes;
    most = bytes > most ? bytes : most;
  }
  return most;
}

int64_t setup_rank_bytes(const Recipe *recipe, const ModelConfig *config, const Job *job, int coordinate) {
  int64_t sum;
  bool is_host = device_shares_host(job->options.device->kind); // else its memory is another one than the mirror's
  return job_state_bytes(job, coordinate) + (is_host ? job_mirror_bytes(job, coordinate) : 0) +
         setup_loader_bytes(recipe, config, job) + rank_bound_bytes(job, coordinate) +
         setup_copy_bytes(recipe, job, coordinate, &sum);
}
