// Which numbers a schema allows, as an automaton over their digits.
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { NUMBER_CLASSES = 14 }; // 0 … 9, -, +, ., e

typedef struct NumberAutomaton {
  int states;
  int32_t
      *next; // (states, NUMBER_CLASSES) a state or -1; from each a number can be reached; none: no number is allowed
  uint8_t *ends; // (states) whether the number may end here
} NumberAutomaton;

// Bounds of a schema; NULL where there is none. Numbers of json.
typedef struct NumberBounds { const json_t *minimum, *maximum, *above, *below; } NumberBounds;

// Integers: digits only, as json.dumps writes them (also accepted by validators: 1.0 and 1e2, which are not made).
// Numbers: integers; with a point and 1 … 20 digits after it; or d[.d…]e±d… with one digit before the point, as
// json.dumps writes very large and very small ones. None reads as infinity, and -0 is only -0.0.
void number_automaton_make(NumberAutomaton *a, bool integer, const NumberBounds *bounds);
void number_automaton_free(NumberAutomaton *a);

int number_class(uint8_t byte); // -1: no byte of a number
