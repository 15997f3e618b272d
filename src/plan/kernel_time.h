// Seconds of kernels on a device that nobody here has, from its facts. docs/foresight.md explains the model; every
// number that is not the device's stands in constants.def with its source.
#pragma once
#include "op/work.h"
#include "plan/facts.h"

// A product: the least over tiles and over splits of k of
//   max(waves · 2·Tm·Tn·(k/s + k0) · units/(peak·sustained·e), bytes / (share · bandwidth)) + launch,
// waves = ⌈c·⌈m/Tm⌉·⌈n/Tn⌉·s / (units − held)⌉. held: units that collectives in flight hold. bytes: that it reads and
// writes in memory, less what is in the cache.
double product_seconds(const DeviceFacts *device, Dtype dtype, const OpProduct *product, double bytes, int held);

// Attention by blocks (flash), by a table of rates over width, length and direction; where `materialised`, its products
// and passes over the scores.
double attention_seconds(const DeviceFacts *device, Dtype dtype, const OpAttention *attention, double bytes,
                         int materialised, int held);

// One call of an op on a device. in_cache: bytes of its operands that the cache still holds. software may be NULL.
double kernel_seconds(const DeviceFacts *device, const SoftwareFacts *software, Dtype dtype, const OpWork *work,
                      double in_cache, int held);

// Slower than its mean by the spread: of n devices the slowest is 1 + σ√(2 ln n) times slower (1 for one).
double slowest_of(double sigma, double n);
