// Decimal numbers as digits: bounds that an automaton compares a number with, digit by digit.
#pragma once
#include <jansson.h>
#include <stdbool.h>

enum { DECIMAL_DIGITS = 700 };

// A number: digits before the point (no zeros in front; "0": none) and after it (no zeros at the end).
typedef struct Decimal {
  bool negative;
  char whole[DECIMAL_DIGITS], part[DECIMAL_DIGITS];
} Decimal;

void decimal_of_double(Decimal *d, double x); // the shortest that reads as x
int decimal_sign(const Decimal *d);           // -1, 0, 1
// The first digit, the point and the others: d.ddd × 10^exponent, of a number that is not 0.
void decimal_scientific(const Decimal *d, Decimal *mantissa, int *exponent);

// The least integer >= x (`above`: > x), or the greatest <= x (`below`: < x), in all its digits.
void decimal_ceiling(Decimal *d, const json_t *x, bool above);
void decimal_floor(Decimal *d, const json_t *x, bool below);
// The least double >= x (above: > x), the greatest <= x (below: < x).
double double_at_least(const json_t *x, bool above);
double double_at_most(const json_t *x, bool below);
