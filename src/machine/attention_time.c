// Seconds of attention: by blocks, from a table of what FlashAttention-2 and cuDNN reach (Shah et al., 2024), or with
// scores in memory.
#include "base/fault.h"
#include "machine/kernel_time.h"
#include <math.h>

enum { SHORTEST = 512, LENGTHS = 6, NARROWEST = 64, WIDTHS = 32 }; // kernels are for multiples of WIDTHS
// The tables of a kind, by width 64, 128, 256. Backward has none of 256: that of 128 stands for it.
typedef struct Tables { ConstantId full[3], causal[3], backward[3]; } Tables;
static const Tables flash = {{CONSTANT_FLASH_64, CONSTANT_FLASH_128, CONSTANT_FLASH_256},
                             {CONSTANT_FLASH_CAUSAL_64, CONSTANT_FLASH_CAUSAL_128, CONSTANT_FLASH_CAUSAL_256},
                             {CONSTANT_FLASH_BACK_64, CONSTANT_FLASH_BACK_128, CONSTANT_FLASH_BACK_128}};
static const Tables cudnn = {{CONSTANT_CUDNN_64, CONSTANT_CUDNN_128, CONSTANT_CUDNN_256},
                             {CONSTANT_CUDNN_CAUSAL_64, CONSTANT_CUDNN_CAUSAL_128, CONSTANT_CUDNN_CAUSAL_256},
                             {CONSTANT_CUDNN_BACK_64, CONSTANT_CUDNN_BACK_128, CONSTANT_CUDNN_BACK_128}};

// Between the table's points, linear over the logarithms of length and width; beyond them the last value. Other widths
// than kernels are for take as long for a pair as the next that they are for, narrower heads than 64 as 64 do.
static double table_at(const ConstantId tables[3], double length, double own, const Constants *constants) {
  double width = fmax(FAULT(heads_of_any_width, ceil(own / WIDTHS) * WIDTHS, own), NARROWEST),
         at = fmin(fmax(log2(fmax(length, 1) / SHORTEST), 0), LENGTHS - 1);
  double column = fmin(fmax(log2(fmax(width, 1) / NARROWEST), 0), 2);
  int i = (int)fmin(floor(at), LENGTHS - 2), j = (int)fmin(floor(column), 1);
  double value[2];
  for (int w = 0; w < 2; w++) {
    double low = constant(constants, tables[j + w] + i), high = constant(constants, tables[j + w] + i + 1);
    value[w] = low + (high - low) * (at - i);
  }
  return (value[0] + (value[1] - value[0]) * (column - j)) * own / width;
}

double attention_rate(const DeviceFacts *device, const SoftwareFacts *software, Dtype dtype,
                      const OpAttention *attention, const Constants *constants) {
  const Tables *tables = software && software->attention == ATTENTION_CUDNN ? &cudnn : &flash;
  double length = attention->length, width = attention->width;
  double rate = table_at(tables->full, length, width, constants);
  double causal = attention->causal ? table_at(tables->causal, length, width, constants) / rate : 1;
  if (attention->backward) rate = table_at(tables->backward, length, width, constants);
  double share = rate * causal / constant(constants, CONSTANT_ATTENTION_PEAK);
  if (device->attention > 0) // this device's kernels reach another share than those of an H100
    share *= device->attention * constant(constants, CONSTANT_ATTENTION_PEAK) /
             constant(constants, CONSTANT_ATTENTION_BEST);
  return fmin(share, device->sustained) * product_rate(device, dtype);
}

// Forward QKᵀ makes scores and PV takes them. Backward dO·Vᵀ makes them, and dV, dQ and dK take them. Softmax and its
// gradient pass over them. A mask saves nothing.
static double materialised_seconds(const DeviceFacts *device, Dtype dtype, const OpAttention *a, double bytes, int held,
                                   const Constants *constants) {
  double size = (double)dtype_size(dtype), length = fmax(a->length, 1);
  double scores = a->scores > 0 ? a->scores / size : a->pairs;
  OpProduct make = {length, length, a->width, scores / (length * length)};
  OpProduct take = {length, a->width, length, scores / (length * length)};
  int takes = a->backward ? 3 : 1;
  double each = bytes / (1 + takes) + scores * size;
  double products = product_seconds(device, dtype, &make, each, held, constants) +
                    takes * product_seconds(device, dtype, &take, each, held, constants);
  ConstantId passes = a->backward ? CONSTANT_ATTENTION_BACKWARD_PASSES : CONSTANT_ATTENTION_FORWARD_PASSES;
  double passed = constant(constants, passes) * scores * size;
  return products + memory_seconds(device, passed, held, constants) + device->launch;
}

double attention_seconds(const DeviceFacts *device, const SoftwareFacts *software, Dtype dtype,
                         const OpAttention *attention, double bytes, int held, const Constants *constants) {
  if (software && software->attention == ATTENTION_MATERIALISED)
    return materialised_seconds(device, dtype, attention, bytes, held, constants);
  double rate = attention_rate(device, software, dtype, attention, constants);
  if (rate <= 0) return INFINITY;
  // QKᵀ and PV forward; those of dV, dP, dQ, dK and once more QKᵀ backward
  double flops = (attention->backward ? 10 : 4) * attention->pairs * attention->width;
  double units = device->units > 0 ? device->units : 1;
  double compute = flops / rate * units / fmax(1, units - held);
  return fmax(compute, memory_seconds(device, bytes, held, constants)) + device->launch;
}
