// Which numbers a schema allows: an automaton whose states remember how the digits so far compare with the bounds.
#include "grammar/number_automaton.h"
#include "base/error.h"
#include "base/vec.h"
#include "grammar/decimal.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { INTEGER, POINT, POWER, FORMS }; // how a number is written: each form has bounds of its own
enum { MOST_PART = 20, MOST_MANTISSA = 16, LEAST_POWER = -324, MOST_POWER = 308 };

// The numbers of one sign in one form, without their sign: low … high.
typedef struct Interval {
  bool none, open; // open: no bound above
  Decimal low, high;
  int low_power, high_power; // of POWER, whose low and high are mantissas
} Interval;
typedef struct Sign { Interval form[FORMS]; } Sign;

// How digits compare with those of a bound: LESS, SAME so far, MORE.
enum { LESS, SAME, MORE };
typedef enum Phase { AT_SIGN, AT_FIRST, IN_WHOLE, AT_PART, IN_PART, AT_POWER, AT_POWER_DIGIT, IN_POWER } Phase;

typedef struct Place {
  uint8_t phase, negative, zero; // zero: the digits before the point are one 0
  uint8_t low[FORMS], high[FORMS];
  uint8_t power_negative, power_digits, all_zero;
  int16_t digits; // before the point, up to those that matter; then after it
  int16_t power;  // so far
  int16_t low_power, high_power;
} Place;

typedef struct Maker {
  bool integer;
  Sign sign[2]; // positive, negative
  int longest;  // digits before the point that bounds have
  Vec(Place) places;
  Vec(int) next;
  int *heads; // places by hash; -1: none
  Vec(int) links;
} Maker;

static int compare_digit(int so_far, char digit, const char *bound, int at) {
  int n = (int)strlen(bound), b = at < n ? bound[at] : '0';
  if (so_far != SAME || at < 0) return so_far;
  return digit < b ? LESS : digit > b ? MORE : SAME;
}

// The whole part is complete: by its length first.
static int compare_length(int so_far, int digits, const char *bound) {
  int n = (int)strlen(bound);
  return digits < n ? LESS : digits > n ? MORE : so_far;
}

static bool at_least(int order, const Decimal *low, int part) { // part: digits after the point so far
  return order == MORE || (order == SAME && part >= (int)strlen(low->part));
}
static bool at_most(int order, const Interval *i) { return i->open || order != MORE; }

static const Interval *interval(const Maker *m, const Place *p, int form) { return &m->sign[p->negative].form[form]; }

static bool whole_may_end(const Maker *m, const Place *p, int form) {
  const Interval *i = interval(m, p, form);
  if (i->none) return false;
  return at_least(compare_length(p->low[form], p->digits, i->low.whole), &i->low, 0) &&
         at_most(compare_length(p->high[form], p->digits, i->high.whole), i);
}

static bool place_ends(const Maker *m, const Place *p) {
  const Interval *i = interval(m, p, POINT);
  switch ((Phase)p->phase) {
  case IN_WHOLE: return !(p->zero && p->negative) && whole_may_end(m, p, INTEGER);
  case IN_PART: return !i->none && at_least(p->low[POINT], &i->low, p->digits) && at_most(p->high[POINT], i);
  case IN_POWER: {
    int power = p->power_negative ? -p->power : p->power;
    return power >= p->low_power && power <= p->high_power;
  }
  default: return false;
  }
}

static bool step_whole(const Maker *m, Place *p, int digit) {
  char c = (char)('0' + digit);
  if (p->phase == IN_WHOLE && p->zero) return false;
  p->zero = p->phase != IN_WHOLE && !digit;
  p->phase = IN_WHOLE;
  for (int f = 0; f < FORMS; f++) {
    const Interval *i = interval(m, p, f);
    if (i->none) continue;
    p->low[f] =
        (uint8_t)compare_digit(p->low[f], c, i->low.whole, p->digits < (int)strlen(i->low.whole) ? p->digits : -1);
    p->high[f] =
        (uint8_t)compare_digit(p->high[f], c, i->high.whole, p->digits < (int)strlen(i->high.whole) ? p->digits : -1);
  }
  if (p->digits <= m->longest + 1) p->digits++;
  return true;
}

static bool step_point(const Maker *m, Place *p) {
  if (m->integer || p->phase != IN_WHOLE) return false;
  for (int f = POINT; f < FORMS; f++) {
    const Interval *i = interval(m, p, f);
    if (i->none || (f == POWER && (p->zero || p->digits > 1))) {
      p->low[f] = LESS; // never enough
      p->high[f] = MORE;
      continue;
    }
    p->low[f] = (uint8_t)compare_length(p->low[f], p->digits, i->low.whole);
    p->high[f] = (uint8_t)compare_length(p->high[f], p->digits, i->high.whole);
  }
  bool scientific = !p->zero && p->digits == 1;
  p->low[INTEGER] = p->high[INTEGER] = 0;
  p->zero = !scientific; // now: no exponent may follow
  p->digits = 0;
  p->phase = AT_PART;
  return true;
}

static bool step_part(const Maker *m, Place *p, int digit) {
  if (p->digits >= MOST_PART) return false;
  for (int f = POINT; f < FORMS; f++) {
    const Interval *i = interval(m, p, f);
    if (i->none) continue;
    p->low[f] = (uint8_t)compare_digit(p->low[f], (char)('0' + digit), i->low.part, p->digits);
    p->high[f] = (uint8_t)compare_digit(p->high[f], (char)('0' + digit), i->high.part, p->digits);
  }
  p->digits++;
  p->phase = IN_PART;
  if (p->digits > MOST_MANTISSA) {
    p->zero = 1;
    p->low[POWER] = p->high[POWER] = 0;
  }
  return true;
}

// After the mantissa: which exponents make the number lie between its bounds.
static bool step_power(const Maker *m, Place *p) {
  const Interval *i = interval(m, p, POWER);
  if (m->integer || i->none || p->zero || (p->phase == IN_WHOLE ? p->digits != 1 : p->phase != IN_PART)) return false;
  int part = p->phase == IN_PART ? p->digits : 0;
  Place next = {.phase = AT_POWER, .negative = p->negative};
  next.low_power = (int16_t)(i->low_power + !at_least(p->low[POWER], &i->low, part));
  next.high_power = (int16_t)(i->high_power - (p->high[POWER] == MORE));
  *p = next;
  return next.low_power <= next.high_power;
}

static bool step_power_digit(Place *p, int digit) {
  if (p->power_digits == 3 || (p->power_digits == 2 && p->power < 10)) return false; // 1, 01 and 001: the last is not
  p->power = (int16_t)(p->power * 10 + digit);
  p->power_digits++;
  p->phase = IN_POWER;
  return true;
}

static bool step(const Maker *m, Place *p, int class) {
  Phase phase = (Phase)p->phase;
  if (class == 10) {
    if (phase == AT_SIGN) return p->negative = 1, p->phase = AT_FIRST, true;
    return phase == AT_POWER ? p->power_negative = 1, p->phase = AT_POWER_DIGIT, true : false;
  }
  if (class == 11) return phase == AT_POWER ? p->phase = AT_POWER_DIGIT, true : false;
  if (class == 12) return step_point(m, p);
  if (class == 13) return step_power(m, p);
  if (phase <= IN_WHOLE) return step_whole(m, p, class);
  return phase <= IN_PART ? step_part(m, p, class) : step_power_digit(p, class);
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

// 1, 0, -1: a is greater, equal, less.
static int compare(const json_t *a, const json_t *b) {
  if (json_is_integer(a) && json_is_integer(b)) {
    json_int_t x = json_integer_value(a), y = json_integer_value(b);
    return (x > y) - (x < y);
  }
  double x = json_number_value(a), y = json_number_value(b);
  return (x > y) - (x < y);
}

// Of two bounds on one side, the stricter one.
static NumberBounds strictest(const NumberBounds *b) {
  NumberBounds all = *b;
  if (b->minimum && b->above) *(compare(b->above, b->minimum) >= 0 ? &all.minimum : &all.above) = NULL;
  if (b->maximum && b->below) *(compare(b->below, b->maximum) <= 0 ? &all.maximum : &all.below) = NULL;
  return all;
}

static void set_integers(Maker *m, const NumberBounds *b) {
  Decimal low = {0}, high = {0};
  bool has_low = b->minimum || b->above, has_high = b->maximum || b->below;
  if (has_low) decimal_ceiling(&low, b->above ? b->above : b->minimum, b->above != NULL);
  if (has_high) decimal_floor(&high, b->below ? b->below : b->maximum, b->below != NULL);
  Interval *up = &m->sign[0].form[INTEGER], *down = &m->sign[1].form[INTEGER];
  *up = (Interval){.none = has_high && decimal_sign(&high) < 0, .open = !has_high, .low = {.whole = "0"}, .high = high};
  if (has_low && decimal_sign(&low) > 0) up->low = low;
  *down = (Interval){.none = has_low && decimal_sign(&low) >= 0, .open = !has_low, .low = {.whole = "1"}, .high = low};
  if (has_high && decimal_sign(&high) < 0) down->low = high;
  if (up->open) up->high = (Decimal){.whole = "0"};
  if (down->open) down->high = (Decimal){.whole = "0"};
}

static void set_interval(Interval *point, Interval *power, double low, double high, bool open) {
  *point = *power = (Interval){.none = high < low || high < 0 || low > DBL_MAX, .open = open};
  if (point->none) return;
  decimal_of_double(&point->low, fmax(low, 0));
  decimal_of_double(&point->high, open ? 0 : high);
  Decimal d;
  power->open = false;
  power->none = high < 0x1p-1074;
  if (power->none) return;
  decimal_of_double(&d, fmax(low, 0x1p-1074)); // 4.9e-324, the least there is
  decimal_scientific(&d, &power->low, &power->low_power);
  decimal_of_double(&d, fmin(high, DBL_MAX));
  decimal_scientific(&d, &power->high, &power->high_power);
}

static void set_reals(Maker *m, const NumberBounds *b) {
  double low = -INFINITY, high = INFINITY;
  if (b->above || b->minimum) low = double_at_least(b->above ? b->above : b->minimum, b->above != NULL);
  if (b->below || b->maximum) high = double_at_most(b->below ? b->below : b->maximum, b->below != NULL);
  Interval *up = m->sign[0].form, *down = m->sign[1].form;
  set_interval(&up[POINT], &up[POWER], low, high, isinf(high) != 0);
  set_interval(&down[POINT], &down[POWER], -high, -low, isinf(low) != 0);
  if (low > 0) down[POINT].none = down[POWER].none = true;
  if (high < low) up[POINT].none = up[POWER].none = down[POINT].none = down[POWER].none = true;
}

// ---- the automaton --------------------------------------------------------------------------------------------------

enum { HEADS = 4096 };

static int intern(Maker *m, const Place *p) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < sizeof *p; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
  int *head = &m->heads[(h ^ h >> 31) % HEADS];
  for (int i = *head; i >= 0; i = m->links.data[i])
    if (!memcmp(&m->places.data[i], p, sizeof *p)) return i;
  vec_push(&m->places, *p);
  vec_push(&m->links, *head);
  return *head = m->places.count - 1;
}

// Leaves out the states from which no number is reached.
static void keep_live(NumberAutomaton *a, int states, const int *next, const uint8_t *ends) {
  bool *lives = xcalloc((size_t)states, sizeof *lives);
  int *place = xcalloc((size_t)states, sizeof *place);
  for (bool changed = true; changed;) {
    changed = false;
    for (int s = states - 1; s >= 0; s--) {
      bool now = lives[s] || ends[s];
      for (int c = 0; c < NUMBER_CLASSES && !now; c++) {
        int to = next[s * NUMBER_CLASSES + c];
        now = to >= 0 && lives[to];
      }
      changed |= now != lives[s];
      lives[s] = now;
    }
  }
  *a = (NumberAutomaton){0};
  for (int s = 0; s < states && lives[0]; s++) place[s] = lives[s] ? a->states++ : -1;
  a->next = xcalloc((size_t)(a->states + 1) * NUMBER_CLASSES, sizeof *a->next);
  a->ends = xcalloc((size_t)a->states + 1, 1);
  for (int s = 0; s < states && lives[0]; s++) {
    if (!lives[s]) continue;
    a->ends[place[s]] = ends[s];
    for (int c = 0; c < NUMBER_CLASSES; c++) {
      int to = next[s * NUMBER_CLASSES + c];
      a->next[place[s] * NUMBER_CLASSES + c] = to < 0 ? -1 : place[to];
    }
  }
  free(lives);
  free(place);
}

static int longest_of(const Maker *m) {
  int longest = 1;
  for (int s = 0; s < 2; s++)
    for (int f = 0; f < FORMS; f++) {
      const Interval *i = &m->sign[s].form[f];
      int low = (int)strlen(i->low.whole), high = (int)strlen(i->high.whole);
      if (low > longest) longest = low;
      if (high > longest) longest = high;
    }
  return longest;
}

void number_automaton_make(NumberAutomaton *a, bool integer, const NumberBounds *bounds) {
  Maker *m = xcalloc(1, sizeof *m);
  Vec(uint8_t) ends = {0};
  NumberBounds strict = strictest(bounds);
  m->integer = integer;
  set_integers(m, &strict);
  if (!integer) set_reals(m, &strict);
  for (int s = 0; s < 2 && integer; s++) m->sign[s].form[POINT].none = m->sign[s].form[POWER].none = true;
  m->longest = longest_of(m);
  m->heads = xcalloc(HEADS, sizeof *m->heads);
  memset(m->heads, 0xff, HEADS * sizeof *m->heads);
  Place first;
  memset(&first, 0, sizeof first);
  memset(first.low, SAME, sizeof first.low);
  memset(first.high, SAME, sizeof first.high);
  intern(m, &first);
  for (int s = 0; s < m->places.count; s++) {
    vec_push(&ends, place_ends(m, &m->places.data[s]));
    for (int c = 0; c < NUMBER_CLASSES; c++) {
      Place p;
      memcpy(&p, &m->places.data[s], sizeof p);
      int to = step(m, &p, c) ? intern(m, &p) : -1;
      vec_push(&m->next, to);
    }
  }
  keep_live(a, m->places.count, m->next.data, ends.data);
  vec_free(&ends);
  vec_free(&m->places);
  vec_free(&m->next);
  vec_free(&m->links);
  free(m->heads);
  free(m);
}

void number_automaton_free(NumberAutomaton *a) {
  free(a->next);
  free(a->ends);
  *a = (NumberAutomaton){0};
}

int number_class(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  return byte == '-' ? 10 : byte == '+' ? 11 : byte == '.' ? 12 : byte == 'e' ? 13 : -1;
}
