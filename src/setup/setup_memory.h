// Bytes of memory that a rank of a job takes, all that `plait plan` adds up.
#pragma once
#include "recipe/recipe.h"
#include "runtime/job.h"

// All of a rank of a pipeline coordinate, of the one that takes the most.
int64_t setup_rank_bytes(const Recipe *recipe, const ModelConfig *config, const Job *job, int coordinate);

// Parts of it. The loaders of a rank: training's, and that of an evaluation, which lives beside it.
int64_t setup_loader_bytes(const Recipe *recipe, const ModelConfig *config, const Job *job);
// The copies that checkpoints are written from, of the rank of a coordinate that writes the most; *sum: of all its
// ranks.
int64_t setup_copy_bytes(const Recipe *recipe, const Job *job, int coordinate, int64_t *sum);
// How many of them there are of a rank, as far as the recipe says: one for checkpoint.async, two for
// checkpoint.memory_every, and two more on another machine for checkpoint.copies.
int setup_copies(const Recipe *recipe);
bool setup_keeps(const Recipe *recipe); // checkpoint.memory_every, and there are such steps before the end
bool setup_saves_later(const Recipe *recipe); // checkpoint.async, and there are checkpoints before the end
