// The table of constants.def.
#include "machine/constants.h"
#include <string.h>

typedef struct Row { const char *name; double value; const char *unit, *source; } Row;
static const Row rows[CONSTANTS] = {
#define CONSTANT(id, name, value, unit, source) [CONSTANT_##id] = {name, value, unit, source},
#define RATES(id, name, v512, v1k, v2k, v4k, v8k, v16k, source)                                                        \
  [CONSTANT_##id] = {name, v512, "FLOP/s", source}, {name, v1k, "FLOP/s", source}, {name, v2k, "FLOP/s", source},      \
  {name, v4k, "FLOP/s", source}, {name, v8k, "FLOP/s", source}, {name, v16k, "FLOP/s", source},
#include "machine/constants.def"
};

Constants constants_default(void) {
  Constants c;
  for (int i = 0; i < CONSTANTS; i++) c.value[i] = rows[i].value;
  return c;
}

const char *constant_name(ConstantId id) { return rows[id].name; }

int constant_by_name(const char *name) {
  for (int i = 0; i < CONSTANTS; i++)
    if (!strcmp(rows[i].name, name)) return i;
  return -1;
}

int constants_scale(Constants *constants, const char *name, double factor) {
  int first = constant_by_name(name);
  if (first < 0) return -1;
  for (int i = first; i < CONSTANTS && !strcmp(rows[i].name, name); i++) constants->value[i] *= factor;
  return 0;
}

double constant(const Constants *constants, ConstantId id) { return constants ? constants->value[id] : rows[id].value; }

void constants_print(const Constants *constants, FILE *out) {
  for (int i = 0; i < CONSTANTS;) {
    const Row *row = &rows[i];
    fprintf(out, "%-36s", row->name);
    for (; i < CONSTANTS && !strcmp(rows[i].name, row->name); i++) fprintf(out, " %.4g", constant(constants, i));
    fprintf(out, " %s (%s)\n", row->unit, row->source);
  }
}
