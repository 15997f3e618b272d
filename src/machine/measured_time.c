// Interpolates measured collectives.
#include "machine/measured_time.h"
#include <math.h>
#include <string.h>

static double between(const MeasuredCollective *low, const MeasuredCollective *high, double bytes) {
  if (high->bytes <= low->bytes || low->bytes <= 0) return high->seconds;
  double at = log(bytes / low->bytes) / log(high->bytes / low->bytes);
  return low->seconds * pow(high->seconds / low->seconds, at);
}

int measured_seconds(const Cluster *c, const char *kind, int ranks, int nodes, double bytes, double *seconds) {
  const MeasuredCollective *low = NULL, *high = NULL;
  double slowest = 0; // of the rows with no more bytes
  for (int i = 0; i < c->measured.count; i++) {
    const MeasuredCollective *row = &c->measured.data[i];
    if (row->ranks != ranks || row->nodes != nodes || strcmp(row->kind, kind)) continue;
    if (row->bytes <= bytes) {
      slowest = fmax(slowest, row->seconds);
      if (!low || row->bytes > low->bytes) low = row;
    } else if (!high || row->bytes < high->bytes) {
      high = row;
    }
  }
  if (!low && !high) return 0;
  if (!low) *seconds = high->seconds;
  else if (!high) *seconds = low->bytes > 0 ? low->seconds * bytes / low->bytes : low->seconds;
  else *seconds = between(low, high, bytes);
  *seconds = fmax(*seconds, slowest);
  return 1;
}
