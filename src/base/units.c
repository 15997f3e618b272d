// Formatting of numbers with three digits and a prefix.
#include "base/units.h"
#include <math.h>
#include <stdio.h>

// Three significant digits, but never fewer than those before the point: 1.5, 12.3, 312.
static UnitText scaled(double value, const char *const *suffixes, int count) {
  UnitText text;
  if (!isfinite(value)) {
    snprintf(text.s, sizeof text.s, "?");
    return text;
  }
  int i = 0;
  double size = fabs(value);
  while (i + 1 < count && size >= (i ? 999.5 : 1000)) size /= 1000, i++;
  int decimals = i == 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  snprintf(text.s, sizeof text.s, "%s%.*f%s", value < 0 ? "-" : "", decimals, size, suffixes[i]);
  return text;
}

UnitText units_bytes(double bytes) {
  static const char *const suffixes[] = {" B", " kB", " MB", " GB", " TB", " PB", " EB"};
  return scaled(bytes, suffixes, 7);
}

UnitText units_count(double count) {
  static const char *const suffixes[] = {"", "k", "M", "B", "T", "P", "E"};
  return scaled(count, suffixes, 7);
}

UnitText units_flops(double flops) {
  static const char *const suffixes[] = {" FLOP/s",  " kFLOP/s", " MFLOP/s", " GFLOP/s",
                                         " TFLOP/s", " PFLOP/s", " EFLOP/s"};
  return scaled(flops, suffixes, 7);
}

UnitText units_duration(double seconds) {
  UnitText text;
  if (!isfinite(seconds) || seconds < 0 || seconds > 1e10) {
    snprintf(text.s, sizeof text.s, "?");
    return text;
  }
  long long whole = (long long)(seconds + 0.5);
  if (seconds < 0.9995) snprintf(text.s, sizeof text.s, "%.0f ms", seconds * 1e3);
  else if (seconds < 59.95) snprintf(text.s, sizeof text.s, "%.1f s", seconds);
  else if (whole < 3600) snprintf(text.s, sizeof text.s, "%lldm %02llds", whole / 60, whole % 60);
  else if (whole < 86400) snprintf(text.s, sizeof text.s, "%lldh %02lldm", whole / 3600, whole / 60 % 60);
  else snprintf(text.s, sizeof text.s, "%lldd %02lldh", whole / 86400, whole / 3600 % 24);
  return text;
}

UnitText units_seconds(double seconds) {
  static const char *const suffixes[] = {" ns", " us", " ms", " s"};
  UnitText zero = {"0 s"};
  if (seconds >= 0 && seconds < 0.5e-9) return zero;
  return seconds > 0 && seconds < 59.95 ? scaled(1e9 * seconds, suffixes, 4) : units_duration(seconds);
}
