// Small models of common shapes, for measurements that need a model and are given none.
#pragma once
#include "model/config.h"

typedef enum ModelExample {
  EXAMPLE_PLAIN, // layer norm, biases, learned positions, GELU, a tied head
  EXAMPLE_GATED, // RMS norm, no biases, rotary positions, gated SiLU, fewer heads of keys and values
  EXAMPLE_KINDS
} ModelExample;

typedef struct ExampleSizes { int layers, width, heads, positions, vocabulary; } ExampleSizes;

// width is a multiple of heads, and heads / 2 is whole or heads is 1. The caller frees *config.
int model_config_example(ModelConfig *config, ModelExample example, const ExampleSizes *sizes, Error *error);
