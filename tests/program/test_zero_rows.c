// tier 1; rooms compile sharding
// ZeRO's storage where neither heads nor rows divide by the ranks (DEFECTS E1): what the fullest rank has of
// parameters, gradients and moments against its share of the whole.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"

static const struct { int heads, kv, head_dim; } models[] = {{12, 1, 64}, {32, 8, 128}, {56, 8, 128}, {12, 12, 64},
                                                             {32, 1, 128}, {56, 56, 128}};

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("recipe.yaml",
             "model: {config: gpt.json}\ndata: {train: none, seq_len: 16}\nbatch: {global: 768, micro: 1}\n"
             "schedule: {steps: 1}\nrun: {dir: none, comm: mpi}\nprecision: bf16\n");
  return 0;
}

static void write_model(int m) {
  char text[600];
  int hidden = models[m].heads * models[m].head_dim;
  snprintf(text, sizeof text,
           "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": 1,"
           " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, \"vocab_size\": 32000,"
           " \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\","
           " \"tie_word_embeddings\": false}",
           hidden, 4 * hidden, models[m].heads, models[m].kv, models[m].head_dim);
  write_file("gpt.json", text);
}

static double product(const int64_t *size, int n) {
  double p = 1;
  for (int d = 0; d < n; d++) p *= (double)size[d];
  return p;
}

// Of one kind of Variables. Every rank has as much memory (shards are padded to equal lengths). The share of a tensor
// is that of what a tp rank has: how the Layout divides heads over tp is not ZeRO's.
static void expect_shares(const Graph *g, const Mesh *mesh, const char *keys, VariableKind kind, int shards,
                          int stored) {
  double local = 0, share = 0;
  int tensors = 0;
  for (int i = 0; i < g->variable.count; i++) {
    const Variable *v = &g->variable.data[i];
    if (v->kind != kind || v->parameter < 0 || !v->shape.rank || v->of == OF_SCALES || !stored) continue;
    Placement seen = *v->storage;
    int64_t whole[MAX_RANK];
    for (int a = 0; a < mesh->naxis; a++) // without what ZeRO has added: the Layout's
      if (!strcmp(mesh->axis[a].name, "dp"))
        for (int d = 0; d < v->shape.rank; d++)
          if (seen.dim[d].n && seen.dim[d].axis[seen.dim[d].n - 1] == a) axis_list_pop(&seen.dim[d]);
    seen.rows = (AxisList){0};
    seen.merged = seen.parts = 0;
    placement_local(mesh, &seen, &v->shape, whole);
    local += product(v->local_, v->shape.rank);
    share += product(whole, v->shape.rank) / shards;
    tensors++;
  }
  if (local > 1.01 * share + 256.0 * tensors)
    fail_msg("%s: %.0f elements of kind %d, of a share of %.0f in %d tensors", keys, local, (int)kind, share, tensors);
}

static void a_rank_has_its_share(void **state) {
  static const int data[] = {3, 6, 12, 24, 48, 96}, tensor[] = {1, 2, 4, 8};
  int seen = 0;
  for (int m = 0; m < (int)(sizeof models / sizeof *models); m++) {
    write_model(m);
    for (int i = 0; i < 6; i++)
      for (int k = 0; k < 4; k++)
        for (int zero = 1; zero <= 3; zero++) {
          char keys[200];
          if (models[m].heads % tensor[k]) continue;
          const char *more = (m + i + k) % 3 ? "" : " optimizer.states=8bit";
          snprintf(keys, sizeof keys, "mesh.dp=%d mesh.tp=%d parallel.zero=%d%s", data[i], tensor[k], zero, more);
          Case c = compiled_by(keys);
          const Graph *g = job_train(c.job)->program[0]->graph;
          const Mesh *mesh = &c.job->options.parallel.mesh;
          expect_shares(g, mesh, keys, VARIABLE_PARAMETER, data[i], 1);
          expect_shares(g, mesh, keys, VARIABLE_OPTIMIZER, data[i], 1);
          expect_shares(g, mesh, keys, VARIABLE_GRADIENT, data[i], zero >= 2);
          release(&c);
          seen++;
        }
  }
  assert_true(seen > 300);
}

// Groups of 12 of 48 ranks: a rank has a twelfth.
static void hybrid(void **state) {
  write_model(2);
  const char *keys = "mesh.dp=48 mesh.tp=8 parallel.zero=3 parallel.shard_group=12";
  Case c = compiled_by(keys);
  for (int kind = 0; kind < 2; kind++)
    expect_shares(job_train(c.job)->program[0]->graph, &c.job->options.parallel.mesh, keys,
                  kind ? VARIABLE_OPTIMIZER : VARIABLE_PARAMETER, 12, 1);
  release(&c);
}

// Where heads divide, storage is cut as ever: no rows.
static void no_rows_where_dims_divide(void **state) {
  write_model(1);
  Case c = compiled_by("mesh.dp=8 mesh.tp=4 parallel.zero=3");
  const Graph *g = job_train(c.job)->program[0]->graph;
  for (int i = 0; i < g->variable.count; i++) assert_int_equal(g->variable.data[i].storage->merged, 0);
  release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_has_its_share), cmocka_unit_test(hybrid),
                                     cmocka_unit_test(no_rows_where_dims_divide)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
