// The constants of the models of time (constants.def): their values, and a set of changed ones for "what if it were 10%
// more".
#pragma once
#include <stdio.h>

typedef enum ConstantId {
#define CONSTANT(id, name, value, unit, source) CONSTANT_##id,
#define RATES(id, name, v512, v1k, v2k, v4k, v8k, v16k, source) CONSTANT_##id, CONSTANT_##id##_LAST = CONSTANT_##id + 5,
#include "machine/constants.def"
  CONSTANTS
} ConstantId;

typedef struct Constants { double value[CONSTANTS]; } Constants;

Constants constants_default(void);
const char *constant_name(ConstantId id); // "tile.k0"; of a table of rates: "attention.flash.forward.128", all six
int constant_by_name(const char *name);           // the first with that name, or -1
// All constants of that name times a factor (a table of rates has six). 0, or -1: none has it.
int constants_scale(Constants *constants, const char *name, double factor);
double constant(const Constants *constants, ConstantId id); // NULL: the default
// A table with a line a name: values, unit, source.
void constants_print(const Constants *constants, FILE *out);
