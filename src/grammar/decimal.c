// Decimal numbers as digits.
#include "grammar/decimal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void trim(Decimal *d) {
  size_t zeros = strspn(d->whole, "0"), n = strlen(d->part);
  if (!d->whole[zeros] && zeros) zeros--;
  memmove(d->whole, d->whole + zeros, strlen(d->whole + zeros) + 1);
  while (n && d->part[n - 1] == '0') d->part[--n] = 0;
  if (!strcmp(d->whole, "0") && !n) d->negative = false;
}

// Digits and where the point stands: 0.DIGITS × 10^point.
static void from_digits(Decimal *d, const char *digits, int point) {
  int n = (int)strlen(digits), w = 0, p = 0;
  for (int i = 0; i < point; i++) d->whole[w++] = i < n ? digits[i] : '0';
  if (!w) d->whole[w++] = '0';
  for (int i = point; i < 0; i++) d->part[p++] = '0';
  for (int i = point > 0 ? point : 0; i < n; i++) d->part[p++] = digits[i];
  d->whole[w] = d->part[p] = 0;
  trim(d);
}

void decimal_of_double(Decimal *d, double x) {
  char text[64], digits[32];
  int n = 0;
  for (int precision = 1; precision <= 17; precision++) {
    snprintf(text, sizeof text, "%.*e", precision - 1, fabs(x));
    if (strtod(text, NULL) == fabs(x)) break;
  }
  for (const char *c = text; *c && *c != 'e'; c++)
    if (*c >= '0' && *c <= '9') digits[n++] = *c;
  digits[n] = 0;
  *d = (Decimal){.negative = signbit(x) != 0};
  from_digits(d, digits, atoi(strchr(text, 'e') + 1) + 1);
}

int decimal_sign(const Decimal *d) { return !strcmp(d->whole, "0") && !d->part[0] ? 0 : d->negative ? -1 : 1; }

void decimal_scientific(const Decimal *d, Decimal *mantissa, int *exponent) {
  char digits[2 * DECIMAL_DIGITS];
  snprintf(digits, sizeof digits, "%s%s", d->whole, d->part);
  int zeros = (int)strspn(digits, "0");
  *exponent = (int)strlen(d->whole) - 1 - zeros;
  *mantissa = (Decimal){.whole = {digits[zeros], 0}};
  snprintf(mantissa->part, sizeof mantissa->part, "%.*s", DECIMAL_DIGITS - 1, digits + zeros + 1);
  trim(mantissa);
}

// Adds 1 to the digits or takes 1 away; they are not "0" in the second case.
static void step_digits(char *digits, bool up) {
  int i = (int)strlen(digits) - 1;
  for (; i >= 0 && digits[i] == (up ? '9' : '0'); i--) digits[i] = up ? '0' : '9';
  if (i >= 0) digits[i] += up ? 1 : -1;
  else {
    memmove(digits + 1, digits, strlen(digits) + 1);
    digits[0] = '1';
  }
}

static void step_integer(Decimal *d, bool up) {
  if (decimal_sign(d) == 0) *d = (Decimal){.negative = !up, .whole = "1"};
  else step_digits(d->whole, d->negative != up);
  trim(d);
}

static void integer_of(Decimal *d, const json_t *x, double rounded) {
  *d = (Decimal){0};
  char text[DECIMAL_DIGITS];
  if (json_is_integer(x)) snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(x));
  else snprintf(text, sizeof text, "%.0f", rounded);
  d->negative = text[0] == '-';
  memcpy(d->whole, text + d->negative, strlen(text + d->negative) + 1);
  trim(d);
}

void decimal_ceiling(Decimal *d, const json_t *x, bool above) {
  double value = json_number_value(x);
  integer_of(d, x, ceil(value));
  if (above && (json_is_integer(x) || ceil(value) == value)) step_integer(d, true);
}

void decimal_floor(Decimal *d, const json_t *x, bool below) {
  double value = json_number_value(x);
  integer_of(d, x, floor(value));
  if (below && (json_is_integer(x) || floor(value) == value)) step_integer(d, false);
}

// The double next to a number, and how it compares with it.
static double nearest(const json_t *x, int *order) {
  double value = json_number_value(x);
  *order = 0;
  if (!json_is_integer(x)) return value;
  long long exact = json_integer_value(x);
  if (value >= 0x1p63) *order = 1;
  else *order = (long long)value < exact ? -1 : (long long)value > exact;
  return value;
}

double double_at_least(const json_t *x, bool above) {
  int order;
  double value = nearest(x, &order);
  return order < 0 || (order == 0 && above) ? nextafter(value, INFINITY) : value;
}

double double_at_most(const json_t *x, bool below) {
  int order;
  double value = nearest(x, &order);
  return order > 0 || (order == 0 && below) ? nextafter(value, -INFINITY) : value;
}
