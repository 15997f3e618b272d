// A training step and how it is computed: the one shape of a parallel configuration. A recipe and a user's graph fill
// in a Step; the judge, the search and the passes read it. It knows nothing of devices or of one rank's memory.
#pragma once
#include "base/dtype.h"
#include "base/shares.h"
#include "ir/graph.h"
#include "op/algorithm.h"
#include "parallel/recompute_list.h"
#include "sharding/layout.h"
#include "schedule/schedule.h"

enum { GATHER_BLOCK = 0, GATHER_LAYER = -1 };
typedef struct Overlap {
  int on;               // collectives are in flight while the rank computes
  int64_t bucket_bytes; // collectives of a kind are joined up to this size; 0: none are
  int read_ahead;       // units by which gathers of parameters stand before their readers: 0 or 1
  int gather;           // such a unit: a block, a layer, or a number of MB (10^6 bytes)
} Overlap;

// Which ranks there are, and what each of them has and does.
typedef struct StepParallel {
  Mesh mesh;             // axes as users name them: pp and dp at least
  LayoutTable layout;    // rows of axes by name
  int sequence;          // its row seq is that of parallel.sequence: for sentences
  LayoutTensorKind tensor; // cuts tp into depth, rows and columns: see parallel_grid
  int rows, depth;         // of tp's ranks; 0: as near to a square as it goes
  int summa;               // blocks are broadcast instead of gathering both operands whole
  int annotations; // placements of a user's own graph: see Layout. With these no axis may be cut in two (shard_group,
                   // heads)
  const LayoutTensor *annotation;
  int propagate;
  int zero, reshard, unsplit, local_gradients; // see Storage
  int shard_group; // data ranks, neighbours, over which ZeRO divides storage; over the groups it replicates. 0: all
  int experts; // ranks that have different experts: the innermost of dp · cp · tp; 0: as the Layout's row expert says
  AlgorithmName context; // how attention is to cross cp; ALGORITHM_NONE: what moves least, see step_choose
  int ulysses; // ranks of cp, neighbours, that exchange positions for heads inside rings; 0: as `context` says
  Overlap overlap;
  const ScheduleGenerator *schedule;
  int stages_per_rank;   // virtual stages of a pipeline rank
  int cut;               // how many numbers `layers` has; 0: cut by cost
  const int *layers;     // (cut) layers of each stage; borrowed
} StepParallel;

typedef struct StepBatch {
  int64_t samples; // sequences of a step (global batch)
  int64_t micro;   // the most sequences of a microbatch that a data rank has
  int64_t length[DIM_COUNT]; // positions of each sequence of a sample, by its dim
  int one_document; // a sample is a part of one document (data.document_mask false)
  int64_t page;              // of MODEL_GENERATE: positions in a page of the cache
  Balance balance; // of the data ranks' shares of a step; its weights are borrowed
} StepBatch;

// optimizer.delay in steps: one number for all layers, or one for each. count 0: none. (compile/delay.h)
enum { MAX_DELAYS = 1024, MAX_DELAY = 64 };
typedef struct Delay { int count, of[MAX_DELAYS]; } Delay;
// Of a layer; before the first (-1) and after the last one it is that of the first and the last.
static inline int delay_of_layer(const Delay *d, int layer, int layers) {
  int i = layer < 0 ? 0 : layer >= layers ? layers - 1 : layer;
  return !d->count ? 0 : d->of[d->count == 1 || i < 0 ? 0 : i];
}

// Options of the BEGIN and END regions of a training step.
typedef struct StepUpdate {
  double count;     // what the loss is divided by instead of the number of targets; 0: these are counted
  Op optimizer;     // one of ir/optimizers.def; no other is taken
  double beta1, beta2, epsilon, decay, momentum;
  double clip;      // largest global gradient norm; 0: none
  int muon_scale;   // MuonScale
  int dump_gradients; // also write the reduced gradients, before clipping, to Variables "dump.NAME"
  double loss_scale;  // where dynamic loss scaling starts, or what it stays at; 0: none
  int64_t loss_scale_interval; // good steps before it doubles; 0: it stays
  int skips;        // a step whose gradients are not finite is skipped
  int trials;       // a step whose learning rate is not a number updates nothing; not in_backward
  double coefficient[LOSS_COUNT]; // of further losses; 0: it is only measured
  double bias_rate; // by which a step moves the biases of routers, where the graph has them
  Delay delay;      // gradients are taken at the weights of that many steps ago (compile/delay.h); not in_backward
  int in_backward;  // it is applied in MICRO, as soon as the gradient is made, which no Variable keeps; wants one
                    // microbatch
} StepUpdate;

// Which nodes backward computes again: none, those that are cheap beside products and attention, or all of a block.
typedef enum RecomputeMode { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL } RecomputeMode;
typedef struct StepRecompute {
  RecomputeMode mode;
  int layers;         // blocks of each stage that recompute; 0: all
  RecomputeList list; // of all blocks of the model, instead of these two; blocks 0: none
} StepRecompute;

// What changes the model's graph or the step by one pass: a field a row of transforms.def, zero in users' own graphs.
typedef struct Transforms {
#define TRANSFORM(section, type, name, ...) type name;
#include "parallel/transforms.def"
} Transforms;

typedef struct Step {
  StepParallel parallel;
  AlgorithmName algorithm[CHOICE_COUNT]; // by which ops that have several are computed; by step_choose
  StepBatch batch;
  StepUpdate update;
  StepRecompute recompute;
  Transforms transform;
  Dtype precision;
  Dtype cache;        // of keys and values that live between calls, where it is narrower than the precision
  int bf16_weights;   // matrices are stored in bf16, and fp32 products widen them; of fp32 where nothing trains
  int bf16_gradients; // accumulators, and what is reduced; 0: as wide as the parameters
} Step;

// The facts of a model that a Step must fit.
typedef struct StepModel {
  int known;               // 0: it is not known yet, and not judged
  char name[512];          // for sentences, "the model of config.json"
  char family[64];         // "the gpt2 model", for what a model does not have
  int64_t layers;
  int64_t size[DIM_COUNT]; // of the model's weights by dim, their common divisor; 0: none of them has it
  const struct ModelWidth *width; // (widths) which sizes of which weights these are, for sentences (model/config.h)
  int widths;
  int tied;                // the head is the embedding
  double balance_loss;     // coefficient of its routers' balance loss, as its config has it
} StepModel;
struct ModelConfig;
void step_model_of(const struct ModelConfig *config, StepModel *model); // borrows its widths; NULL: it is not known

// Decides what the Step leaves open: the row of the Layout that experts share with feed-forward layers, and the
// algorithms. Whoever fills in a Step calls it last. ALGORITHM_NONE of CHOICE_CONTEXT: no sequence is cut over cp, or
// none can be.
void step_choose(Step *step, const StepModel *model);
