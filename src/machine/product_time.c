// Seconds of matrix products: tiles, waves and splits of k, as cuBLAS and CUTLASS compute them (NVIDIA, Matrix
// Multiplication Background User's Guide, 2023; Osama et al., Stream-K, 2023, section 2).
#include "base/fault.h"
#include "op/attributes.h"
#include "machine/kernel_time.h"
#include <math.h>

typedef struct Tile { int m, n; ConstantId efficiency; } Tile;
static const Tile tiles[] = {
    {256, 128, CONSTANT_TILE_256_128}, {128, 256, CONSTANT_TILE_256_128}, {128, 128, CONSTANT_TILE_128_128},
    {128, 64, CONSTANT_TILE_128_64},   {64, 128, CONSTANT_TILE_128_64},   {64, 64, CONSTANT_TILE_64_64},
};
enum { TILES = sizeof tiles / sizeof *tiles };

// The least time over splits of k for a tile whose loop takes per_k seconds for an element of k, if it is below `best`.
static double least_over_splits(const OpProduct *p, double count, double per_k, double units, double per_byte,
                                double bytes, double best, const Constants *constants) {
  double start = constant(constants, CONSTANT_TILE_START), part_bytes = constant(constants, CONSTANT_SPLIT_BYTES);
  double parts = fmin(constant(constants, CONSTANT_TILE_SPLITS), fmax(1, floor(p->k / start)));
  if (count * p->k * per_k / units >= best) return best; // even with all units busy
  for (double s = 1; s <= parts; s++) {
    double waves = FAULT(waves_not_rounded_up, ceil(count * s / units), count * s / units);
    double compute = waves * per_k * (p->k / s + start);
    double moved = bytes + (s > 1 ? part_bytes * s * p->c * p->m * p->n : 0);
    best = fmin(best, fmax(compute, moved * per_byte));
  }
  return best;
}

// How often 16 bytes have to be halved until whole elements of a dim fill them: 0 (aligned) … 3 for an odd number of
// bf16. Of a mean over experts nothing is known.
static double halvings(double elements, Dtype dtype) {
  double bytes = elements * (double)dtype_size(dtype), h = 0;
  for (double unit = 16; floor(elements) == elements && fmod(bytes, unit) > 0; unit /= 2) h++;
  return h;
}

// The part of the rate that is left where the dims in which operands and result are contiguous are not multiples of 16
// bytes: the fast ways to load a tile need those. Transposed on the left, rows are contiguous and not the depth.
static double aligned_share(const OpProduct *p, Dtype dtype, const Constants *constants) {
  int transposed = p->kind == MATMUL_TN;
  double worst = fmax(halvings(p->n, dtype), transposed ? 0 : halvings(p->k, dtype)),
         rows = transposed ? halvings(p->m, dtype) : 0, odd = halvings(1, DTYPE_BF16), share = 1;
  if (worst > 0 || rows > 0) share = constant(constants, CONSTANT_HALF_ALIGNED);
  if (rows >= odd) share = fmin(share, constant(constants, CONSTANT_UNALIGNED_ROWS));
  if (worst >= odd) share = fmin(share, constant(constants, CONSTANT_UNALIGNED));
  return share;
}

double product_seconds(const DeviceFacts *device, Dtype dtype, const OpProduct *p, double bytes, int held,
                       const Constants *constants) {
  double rate = product_rate(device, dtype) * device->sustained; // of all units
  rate *= FAULT(odd_products_are_fast, aligned_share(p, dtype, constants), 1);
  if (rate <= 0) return INFINITY;
  double units = device->units > 0 ? device->units : 1;
  double free_units = FAULT(held_units_compute, fmax(1, units - held), units);
  double per_byte = memory_seconds(device, 1, held, constants), best = INFINITY;
  for (int t = 0; t < TILES; t++) {
    double count = p->c * ceil(p->m / tiles[t].m) * ceil(p->n / tiles[t].n);
    double per_k = 2. * tiles[t].m * tiles[t].n * units / (rate * constant(constants, tiles[t].efficiency));
    best = least_over_splits(p, count, per_k, free_units, per_byte, bytes, best, constants);
  }
  return best + device->launch;
}
