// The ZeRO table (Rajbhandari et al., "ZeRO", SC 2020), for who cuts and for who predicts what is cut.
#pragma once

// What of a parameter is cut over the data axes: its storage, with the optimizer's states; what MICRO finds of it
// between its readers; its gradient, which is then scattered in every microbatch.
typedef struct ZeroCuts { int storage, resident, gradient; } ZeroCuts;

// reshard, local_gradients: as in Storage (sharding/layout.h).
static inline ZeroCuts zero_cuts(int stage, int reshard, int local_gradients) {
  return (ZeroCuts){stage >= 1, stage >= 3 && reshard, stage >= 2 && !local_gradients};
}
