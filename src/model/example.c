// Small models of common shapes: the families' own examples.
#include "model/example.h"
#include "model/family.h"
#include <stdio.h>

#define FAMILY(name) extern const Family family_##name;
#include "model/families.def"
#undef FAMILY

int model_config_example(ModelConfig *config, ModelExample example, const ExampleSizes *s, Error *error) {
  static const Family *const families[] = {
#define FAMILY(name) &family_##name,
#include "model/families.def"
#undef FAMILY
  };
  const Family *family = NULL;
  for (size_t i = 0; i < sizeof families / sizeof *families && !family; i++)
    if (families[i]->example && families[i]->example_shape == (int)example) family = families[i];
  CHECK(family, "no family stands for shape %d", (int)example);
  char text[1024];
  int n = snprintf(text, sizeof text, family->example, s->vocabulary, s->positions, s->width, s->layers, s->heads,
                   s->heads > 1 ? s->heads / 2 : 1, s->width * 8 / 3 / 32 * 32);
  return model_config_parse(config, text, (size_t)n, "example", error);
}
