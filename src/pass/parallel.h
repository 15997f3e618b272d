// The parallel configuration: which ranks there are, which part of every tensor each of them holds, and in which order they compute and
// communicate. The model is written without it; passes read it.
#pragma once
#include "dist/layout.h"
#include "pipeline/schedule.h"

// How Variables are divided over data ranks, beside what the Layout says: see the table in pass/zero.c.
typedef struct Storage {
  int zero;            // stage 0 … 3
  int reshard;         // stage 3: gathered parameters are freed after each use and gathered again; 0: gathered once a step and kept
  int unsplit;         // tensors are not cut, each lies whole on one rank of shard_axes
  uint32_t shard_axes; // mesh axes (bits) of the ranks that divide; over the other data axes storage is replicated (hybrid sharding)
} Storage;

typedef struct Overlap {
  int on;               // collectives are in flight while the rank computes
  int64_t bucket_bytes; // collectives of a kind are joined up to this size; 0: none are
  int read_ahead;       // blocks by which gathers of parameters stand before their readers: 0 or 1
} Overlap;

typedef struct Pipeline {
  const ScheduleGenerator *schedule; // of training; evaluation and generation run forward only
  int stages;                        // virtual stages, over the ranks of axis "pp" in turn
  int cut_given;                     // the stages have `layers` layers each; else they are cut by cost
  int layers[MAX_STAGES];
} Pipeline;

typedef struct Parallel {
  Mesh mesh;
  Layout layout;
  Storage storage;
  Overlap overlap;
  Pipeline pipeline;
} Parallel;

// On a mesh with axes pp, dp and tp: the shipped Layout "tensor", ZeRO as said, 1F1B with one stage a pipeline rank, buckets of so many
// bytes (0: no overlap).
Parallel parallel_standard(const Mesh *mesh, int zero, int64_t bucket_bytes);

// Ranks of the pipeline.
int parallel_pipeline_ranks(const Parallel *parallel);
// Ranks that divide the samples of a microbatch among them: all that the Layout's batch is cut over, not dp alone.
int parallel_data_ranks(const Parallel *parallel);
