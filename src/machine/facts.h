// The simulator's facts of machines: plain numbers in SI units (seconds, bytes, FLOP/s), as a cluster file gives them
// (machine/cluster.h) or a probe measures them.
#pragma once
#include "base/arena.h"
#include "base/dtype.h"
#include "base/fault.h"
#include "base/vec.h"
#include "machine/constants.h"
#include <stdint.h>

// A device: where a rank computes. Rates are those of the data sheet; `sustained` is the part of the rate of products
// that is left inside of a tile in a run of minutes, of which the power limit takes most: product_seconds comes to the
// measured time of a large product with it. A rate of 0: not given.
typedef struct DeviceFacts {
  const char *name;            // "A100-SXM4-80GB"
  int backend;                 // DeviceKind: which of plait's devices Programs are compiled for
  double matrix[DTYPE_COUNT];  // FLOP/s of products, dense
  double vector[DTYPE_COUNT];  // FLOP/s of everything else
  double sustained;            // 0 … 1
  double attention;            // part of the rate of products that attention by blocks reaches at most, forward; 0: as
                               // on an H100 (0.374, FlashAttention-2)
  int units;                   // multiprocessors (or cores)
  double cache;                // bytes of the last-level cache
  double memory;               // bytes
  double bandwidth;            // bytes/s of memory, reading or writing
  double reserved;             // bytes of memory that a run cannot have: context, libraries, communicators
  double launch;               // seconds that a kernel takes on the device beside its work
  double host;                 // seconds that the host takes to launch a kernel
  double helping;              // of a CPU: what a thread of another rank adds that helps, over one of the rank's own
  const char *source;          // of the numbers above; NULL: none is known
} DeviceFacts;

// Memory beside the device's: of the host, or a disk.
typedef struct SpaceFacts {
  const char *name;    // "host", "disk"
  double memory;       // bytes
  double bandwidth;    // bytes/s between it and a device
  double latency;      // seconds
  int shared_by;       // devices that share the bandwidth
  const char *source;
} SpaceFacts;

typedef enum LevelKind { LEVEL_SWITCH, LEVEL_RING, LEVEL_MESH, LEVEL_BUS, LEVEL_KINDS } LevelKind;
// How devices are connected, from the inside out: `count` units of the level below are one unit of this level.
// A bandwidth is what one port sends in a second, while it receives as much.
//   switch  every unit has `ports` ports to a switch that does not block, but for `oversubscription`
//   ring    every unit is connected with its two neighbours
//   mesh    every pair of units has its own link
//   bus     all share one link
typedef struct LevelFacts {
  const char *name;        // "nvlink"
  LevelKind kind;
  int count;
  int ports;               // that a unit of the level below has
  double bandwidth;        // bytes/s of a port, one direction
  double latency;          // seconds of a hop
  double oversubscription; // 1: none; 2: half of the bandwidth where all send out of their unit at once
  int reduces;             // the switch adds and copies itself (NVLink SHARP, NVLS)
  const char *source;
} LevelFacts;
enum { MAX_LEVELS = 4, MAX_SPACES = 2 };

// Devices of another kind: those from `first` on, `count` of them.
typedef struct IslandFacts { DeviceFacts device; int first, count; } IslandFacts;

// In blocks that stay in the cache, as FlashAttention-2 or cuDNN; or with the scores in memory.
typedef enum AttentionKind { ATTENTION_FLASH, ATTENTION_MATERIALISED, ATTENTION_CUDNN, ATTENTION_KINDS } AttentionKind;

// How other systems' runs compute, for predictions of these.
typedef struct SoftwareFacts {
  AttentionKind attention;
  int fusions; // elementwise ops run inside of the kernel before them
  double launches_per_op;  // kernels of an op that is not a product
  int blocking_sends;      // devices of both stages wait while a message between them is under way
  double parameter_bytes;  // that passes over the gradients move for each parameter, beside the optimizer's own
  const char *source;
} SoftwareFacts;

// A row of measured collectives: `ranks` ranks on `nodes` nodes moved `bytes` bytes each.
typedef struct MeasuredCollective { const char *kind; int ranks, nodes; double bytes, seconds; } MeasuredCollective;

// A kernel as a probe measured it: one call of an op on a rank with a number of threads, while `active` threads of the
// machine (its own among them) compute. Its sizes are those of OpWork, as machine/kernel_table.h compares calls.
enum { KERNEL_FEATURES = 4 };
typedef struct MeasuredKernel {
  const char *op;
  Dtype dtype;             // that it computes in
  int threads, active;
  int kind;                // of a product: how its operands lie; else what distinguishes calls that cost otherwise
  double size[KERNEL_FEATURES];
  double flops, bytes;     // of one call
  double seconds;
  int calls;               // by a probe, so far: how many were measured
} MeasuredKernel;
typedef struct KernelTable KernelTable; // machine/kernel_table.h

typedef struct Cluster {
  Arena arena;
  const char *name, *path;
  DeviceFacts device;
  SpaceFacts space[MAX_SPACES];
  int spaces;
  LevelFacts level[MAX_LEVELS]; // from the inside out; the product of their counts is the number of devices
  int levels;
  SoftwareFacts software;
  double spread;                // σ of the devices' speed, relative
  double base[2]; // seconds of a collective beside its hops: within the innermost level, and beyond; below
                  // 0: collective.base of constants.def
  const Constants *constants;   // of the models; NULL: the defaults
  Vec(MeasuredCollective) measured;
  Vec(MeasuredKernel) kernel;   // of a CPU, by a probe
  int kernel_rows;              // how many these should be; 0: nobody says
  KernelTable *table;           // of these; NULL: there are none
  Vec(IslandFacts) island;
  const char *source;           // of spread, base and measured
} Cluster;

// Of a device by its number.
static inline const DeviceFacts *cluster_device(const Cluster *c, int number) {
  for (int i = 0; i < FAULT(islands_are_like_the_rest, c->island.count, 0); i++)
    if (number >= c->island.data[i].first && number < c->island.data[i].first + c->island.data[i].count)
      return &c->island.data[i].device;
  return &c->device;
}

// Devices of the whole cluster; 0 levels: one.
static inline int64_t cluster_devices(const Cluster *c) {
  int64_t n = 1;
  for (int i = 0; i < c->levels; i++) n *= c->level[i].count;
  return n;
}
