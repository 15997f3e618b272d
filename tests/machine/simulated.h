// Compiled Programs, clusters and simulations for tests of the simulator. cmocka.h is included before.
#pragma once
#include "compiled.h"
#include "nodes_of_four.h"
#include "machine/simulate.h"
#include <math.h>

// A folder with a recipe of a Llama of 8 layers, which compiled_by reads.
static inline int make_model(void **state) {
  if (make_folder()) return -1;
  write_file(
      "llama.json",
      "{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 8,"
      " \"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"max_position_embeddings\": 128,"
      " \"vocab_size\": 1024, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("recipe.yaml", "model: {config: llama.json}\ndata: {train: none, seq_len: 128}\n"
                            "batch: {global: 64, micro: 2}\nschedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n"
                            "precision: bf16\n");
  return 0;
}

// 16 nodes of 4 devices. fast: links that take no time.
static inline Cluster machines(int fast) {
  Cluster c = nodes_of_four(16);
  if (!fast) return c;
  c.base[0] = c.base[1] = c.device.host = 0;
  for (int l = 0; l < 2; l++) c.level[l].bandwidth = INFINITY, c.level[l].latency = 0;
  return c;
}

// 64 devices behind links so slow that transfers of different axes meet on them.
static inline Cluster slow_links(void) {
  Cluster c = machines(0);
  c.level[0].count = 64, c.levels = 1;
  c.level[0].bandwidth /= 100;
  return c;
}

static inline Simulation *simulated(const Case *c, const Cluster *cluster) {
  SimulateOptions options = {.cluster = cluster, .critical = 5};
  Simulation *s;
  Error error = {0};
  if (simulate(job_train(c->job)->program, &options, &s, &error)) fail_msg("%s", error.message);
  return s;
}

static inline double seconds(const Case *c, const Cluster *cluster) {
  Simulation *s = simulated(c, cluster);
  double step = s->step;
  simulation_free(s);
  return step;
}

static inline void assert_near(double a, double b, double within, const char *what) {
  if (!(fabs(a - b) <= within * fabs(b))) fail_msg("%s: %.12g instead of %.12g", what, a, b);
}
