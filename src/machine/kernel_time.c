// Seconds of one call of an op on a device: its products, its attention, and what else waits for memory.
#include "base/fault.h"
#include "machine/kernel_time.h"
#include <math.h>

double product_rate(const DeviceFacts *device, Dtype dtype) {
  return device->matrix[dtype] > 0 ? device->matrix[dtype] : device->vector[dtype];
}

double memory_seconds(const DeviceFacts *device, double bytes, int held, const Constants *constants) {
  double seconds = bytes / (constant(constants, CONSTANT_MEMORY_SHARE) * device->bandwidth);
  return held > 0 ? seconds * (1 + constant(constants, CONSTANT_OVERLAP_SLOWDOWN)) : seconds;
}

// Bytes of a product's operands and result, as elements: its share of the op's bytes.
static double elements(const OpProduct *p) { return p->c * (p->m * p->k + p->k * p->n + p->m * p->n); }

// Seconds of FLOPs of products that the op names no product for.
static double rest_seconds(const DeviceFacts *device, Dtype dtype, const OpWork *work) {
  double rest = work->matrix, rate = product_rate(device, dtype) * device->sustained;
  for (int i = 0; i < work->products; i++) {
    const OpProduct *p = &work->product[i];
    rest -= 2 * p->c * p->m * p->n * p->k;
  }
  if (rest <= 1e-9 * work->matrix) return 0;
  return rate > 0 ? rest / rate : INFINITY;
}

static double products_seconds(const DeviceFacts *device, Dtype dtype, const OpWork *work, double bytes, int held,
                               const Constants *constants) {
  double all = 0, seconds = rest_seconds(device, dtype, work);
  for (int i = 0; i < work->products; i++) all += elements(&work->product[i]);
  for (int i = 0; i < work->products; i++) {
    double part = all > 0 ? bytes * elements(&work->product[i]) / all : 0;
    seconds += product_seconds(device, dtype, &work->product[i], part, held, constants);
  }
  return seconds;
}

// Passes of other kernels over rows of a product's result.
static double rows_seconds(const DeviceFacts *device, const OpWork *work, int held, const Constants *constants) {
  double bytes = FAULT(rows_of_logits_are_free, work->rows_read + work->rows_written, 0);
  if (bytes <= 0) return 0;
  double share = constant(constants, CONSTANT_MEMORY_SHARE) / constant(constants, CONSTANT_MEMORY_ROWS);
  return share * memory_seconds(device, bytes, held, constants) + device->launch;
}

double kernel_seconds(const DeviceFacts *device, const SoftwareFacts *software, Dtype dtype, const OpWork *work,
                      double in_cache, int held, const Constants *constants) {
  double bytes = fmax(0, work->read + work->written - fmax(0, in_cache));
  if (work->products > 0)
    return products_seconds(device, dtype, work, bytes, held, constants) + rows_seconds(device, work, held, constants);
  if (work->attention.pairs > 0)
    return attention_seconds(device, software, dtype, &work->attention, bytes, held, constants);
  double seconds = fmax(memory_seconds(device, bytes, held, constants), rest_seconds(device, dtype, work));
  double rate = device->vector[dtype];
  if (work->vector > 0 && rate > 0) seconds = fmax(seconds, work->vector / rate);
  double launches = software && software->launches_per_op > 0 ? software->launches_per_op : 1;
  return seconds + launches * device->launch;
}

double slowest_of(double sigma, double n) { return n > 1 ? 1 + sigma * sqrt(2 * log(n)) : 1; }
