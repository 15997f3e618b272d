// Which experts tokens went to. Between two runs that round differently, a token whose k-th and next expert are nearly
// alike may change from one to the other (a flip), and then the runs compute different things. So a run records its
// choices, and another one follows them; where it would have chosen otherwise by itself, it says so.
#pragma once
#include "device/device.h"
#include "ir/graph.h"

typedef struct Routing Routing;

// A token whose own choice was another one.
typedef struct RoutingFlip {
  double gap;            // see below; the widest of the run
  uint64_t step;         // 0: the evaluation
  char node[64];
  int64_t sample, position;
  uint32_t here, there;  // sets of experts: this run's own choice, and the one that it followed
} RoutingFlip;
typedef struct RoutingFlips { int64_t count; RoutingFlip widest; } RoutingFlips;

// A gap is the difference between the scores (probability + bias) of the last expert that is chosen and the first that
// is not, over the larger of their probabilities, which is nearly the difference of their logits; and that over the
// standard deviation of the token's logits: what rounding of logits is compared with. At most 32 experts.
Routing *routing_create(void);
void routing_destroy(Routing *r);
double routing_smallest_gap(const Routing *r); // of all that was recorded; infinite: nothing was

// A device like `base`, valid until the next call, with which ROUTE records its choices in `record`, or makes those of
// `follow` and counts flips; one of both is NULL. One run at a time.
const Device *routing_device(const Device *base, Routing *record, const Routing *follow);
// Which nodes these are: a layer that is computed again makes the same choices.
void routing_learn(const Graph *g);
RoutingFlips routing_flips(void); // of the run that routing_device was for
