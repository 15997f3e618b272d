// Seconds of kernels on a device that nobody here has, from its facts. docs/foresight.md explains the model; every
// number that is not the device's stands in constants.def with its source. constants may be NULL: the defaults.
#pragma once
#include "op/work.h"
#include "machine/constants.h"
#include "machine/facts.h"

// A product of (m, k) and (k, n), c times: the least over tiles and over splits of k of
//   max(waves · 2·Tm·Tn·(k/s + k0) · units/(peak·sustained·e), bytes / (share · bandwidth)) + launch,
// waves = ⌈c·⌈m/Tm⌉·⌈n/Tn⌉·s / (units − held)⌉. held: units that collectives in flight hold. bytes: that it reads and
// writes in memory, less what is in the cache; parts of k add theirs. A dtype without a rate of products takes that of
// vectors; without both the time is infinite.
double product_seconds(const DeviceFacts *device, Dtype dtype, const OpProduct *product, double bytes, int held,
                       const Constants *constants);

// Attention by blocks (flash), by a table of rates over width, length, mask and direction; materialised: its
// products and passes over the scores. software NULL: FlashAttention-2.
double attention_seconds(const DeviceFacts *device, const SoftwareFacts *software, Dtype dtype,
                         const OpAttention *attention, double bytes, int held, const Constants *constants);

// FLOP/s of attention by blocks: forward, or of a backward pass (2.5 times the FLOPs).
double attention_rate(const DeviceFacts *device, const SoftwareFacts *software, Dtype dtype,
                      const OpAttention *attention, const Constants *constants);

// One call of an op on a device. in_cache: bytes of its operands that the cache still holds. held: units that
// collectives in flight hold; more than 0 also slows whatever waits for memory. software may be NULL. Fusions are not
// known here: the simulator leaves out the kernels that a fusion takes in. FLOPs of `matrix` that are neither products
// nor attention of the op count at the rate of products.
double kernel_seconds(const DeviceFacts *device, const SoftwareFacts *software, Dtype dtype, const OpWork *work,
                      double in_cache, int held, const Constants *constants);

// Seconds to move bytes between memory and the units, while collectives hold `held` of them.
double memory_seconds(const DeviceFacts *device, double bytes, int held, const Constants *constants);
// FLOP/s of products: the data sheet's, that of vectors where there is none, 0 without both.
double product_rate(const DeviceFacts *device, Dtype dtype);

// Slower than its mean by the spread: of n devices the slowest is 1 + σ√(2 ln n) times slower (1 for one).
double slowest_of(double sigma, double n);
