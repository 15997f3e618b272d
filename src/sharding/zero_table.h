// The ZeRO table (Rajbhandari et al., "ZeRO", SC 2020), for who cuts and for who predicts what is cut.
#pragma once

// What of a parameter is cut over the data axes: its storage, with the optimizer's states; what MICRO finds of it
// between its readers; its gradient, which is then scattered in every microbatch.
typedef struct ZeroCuts { int storage, resident, gradient; } ZeroCuts;

// reshard, local_gradients: as in Storage (sharding/layout.h).
static inline ZeroCuts zero_cuts(int stage, int reshard, int local_gradients) {
  return (ZeroCuts){stage >= 1, stage >= 3 && reshard, stage >= 2 && !local_gradients};
}

// Bytes of an element of a parameter. stored: with its master and the optimizer's states; read: as MICRO reads it.
// converted: in another dtype than it is stored in, so that MICRO reads a copy of it anyway.
typedef struct ZeroBytes { double stored, gradient, read; int converted; } ZeroBytes;

// Of them what each of `shards` ranks has between steps. MICRO's copy is there where storage is not what MICRO finds.
static inline double zero_bytes(ZeroCuts cuts, const ZeroBytes *b, double shards) {
  int copied = b->converted || (shards > 1 && cuts.storage && !cuts.resident);
  return b->stored / (cuts.storage ? shards : 1) + b->gradient / (cuts.gradient ? shards : 1) +
         copied * b->read / (cuts.resident ? shards : 1);
}
