// Muon read off compiled Programs: each matrix is made orthogonal once, whole, by owners that have as much to do; what
// that moves; and what unsplit tensors save.
#include "program/traffic.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"

static int setup(void **state) {
  if (make_folder()) return -1;
  write_file("llama.json",
             "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 4,"
             " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16,"
             " \"max_position_embeddings\": 32, \"vocab_size\": 512, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\","
             " \"tie_word_embeddings\": false}");
  write_file("recipe.yaml",
             "model: {config: llama.json}\ndata: {train: none, seq_len: 16}\nbatch: {global: 16, micro: 1}\n"
             "schedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n");
  return 0;
}

static double flops_of(const Program *p, const Node *n) {
  Operand x[2];
  program_operands(p, n, 0, x, x + 1);
  return op_work(op_def(n->op), x, 1, x + 1, 1, n->attr).matrix;
}

// All matrices of all stages: made once in the whole world, from all of it. The busiest rank has at most the largest
// matrix more to do than the others of its stage.
static void expect_once(const char *const *keys, int matrices) {
  Case c = compiled_by_list(keys);
  const Mesh *mesh = &c.job->options.parallel.mesh;
  int pp = mesh_pipeline_ranks(mesh), found = 0;
  double *load = xcalloc((size_t)mesh->ranks, sizeof *load);
  for (int coordinate = 0; coordinate < pp; coordinate++) {
    const Program *p = job_train(c.job)->program[coordinate];
    double largest = 0, least = INFINITY, most = 0;
    for (int i = 0; i < p->end.count; i++) {
      const Node *n = &p->graph->node.data[p->end.instruction[i].node];
      if (!node_is(n, ROLE_WHOLE_MATRIX)) continue;
      const Tensor *u = graph_tensor(p->graph, n->input[0]);
      const Placement *owner = node_owner(p->graph, n);
      int runs = 0;
      for (int d = 0; d < u->shape.rank; d++) assert_int_equal(tensor_local(p->graph, u)[d], u->shape.size[d]);
      for (int r = 0; r < mesh->ranks; r++) {
        if (mesh_coordinate(mesh, r, mesh_pipeline(mesh)) != coordinate) continue;
        if (owner && !placement_here(mesh, owner, r)) continue;
        load[r] += flops_of(p, n);
        runs++;
      }
      if (runs != 1) fail_msg("%s is run by %d ranks", n->name, runs);
      if (flops_of(p, n) > largest) largest = flops_of(p, n);
      found++;
    }
    for (int r = 0; r < mesh->ranks; r++) {
      if (mesh_coordinate(mesh, r, mesh_pipeline(mesh)) != coordinate) continue;
      least = fmin(least, load[r]);
      most = fmax(most, load[r]);
    }
    print_message("%s …: FLOPs of an owner %.3g to %.3g, of the largest matrix %.3g\n", keys[1], least, most, largest);
    assert_true(most - least <= largest);
  }
  assert_int_equal(found, matrices);
  free(load);
  release(&c);
}

enum { MATRICES = 4 * 7 }; // q, k, v, output, gate, up and down of 4 layers

static void every_matrix_is_made_once(void **state) {
#define KEYS(...) ((const char *[]){"optimizer.name=muon", __VA_ARGS__, NULL})
  expect_once(KEYS("mesh.dp=1"), MATRICES);
  expect_once(KEYS("mesh.dp=4"), MATRICES);
  expect_once(KEYS("mesh.dp=4", "parallel.zero=1"), MATRICES);
  expect_once(KEYS("mesh.dp=2", "mesh.tp=2", "parallel.zero=3"), MATRICES);
  expect_once(KEYS("mesh.dp=4", "mesh.tp=2", "parallel.zero=2", "parallel.shard_group=2"), MATRICES);
  expect_once(KEYS("mesh.dp=2", "mesh.cp=2", "mesh.pp=2", "parallel.zero=1"), MATRICES);
  expect_once(KEYS("mesh.dp=2", "mesh.tp=8", "parallel.tensor=3d", "parallel.zero=1"), MATRICES);
}

// All that owners are given stands before what they make, and that before what comes back: they work side by side.
static void owners_work_side_by_side(void **state) {
  Case c = compiled_by_list(KEYS("mesh.dp=2", "mesh.tp=2", "parallel.zero=1"));
  const Program *p = job_train(c.job)->program[0];
  int part = 0, made = 0;
  for (int i = 0; i < p->end.count; i++) {
    const Node *n = &p->graph->node.data[p->end.instruction[i].node];
    int gathers = n->op == OP_GATHER_TO, scatters = n->op == OP_SCATTER_FROM, makes = node_is(n, ROLE_WHOLE_MATRIX);
    if (!gathers && !scatters && !makes) continue;
    int now = gathers ? 0 : makes ? 1 : 2; // all of these matrices are one round
    if (now < part) fail_msg("%s comes late", n->name);
    part = now;
    made += makes;
  }
  assert_true(part == 2 && made == MATRICES);
  release(&c);
}

static double moved(const char *const *keys, int64_t *workspace) {
  Case c = compiled_by_list(keys);
  TrafficList list = {0};
  double elements = 0;
  program_traffic(job_train(c.job)->program[0], &list);
  for (int i = 0; i < list.count; i++) elements += list.data[i].elements;
  vec_free(&list);
  if (workspace)
    *workspace = job_train(c.job)->program[0]->memory.workspace + job_train(c.job)->program[0]->memory.communication;
  release(&c);
  return elements;
}

static void traffic(void **state) {
  const double matrices = 4 * (64 * 64 * 2 + 64 * 32 * 2 + 64 * 96 * 3);
  int64_t shards, unsplit;
  double zero_1 = moved((const char *[]){"mesh.dp=4", "parallel.zero=1", NULL}, NULL);
  // An owner has what it needs: nothing is moved beside ZeRO 1's gradients, summed to it, and parameters.
  double whole = moved((const char *[]){"mesh.dp=4", "parallel.zero=1", "parallel.unsplit_tensors=true", NULL}, NULL);
  assert_true(moved(KEYS("mesh.dp=4", "parallel.zero=1", "parallel.unsplit_tensors=true"), NULL) == whole);
  assert_true(whole > zero_1 && whole < zero_1 * (2 + 1.0 / 4) / 2 + 256);
  // Else each matrix goes to its owner and comes back: 2 (N − 1)/N of it, on the average of N ranks 1/N of that.
  double more = moved(KEYS("mesh.dp=4", "parallel.zero=1"), NULL) - zero_1;
  if (fabs(more - 2 * matrices * 3 / 4 / 4) > 1) fail_msg("%.0f elements more, expected %.0f", more, matrices * 3 / 8);
  // Sums to an owner are made in the memory of the terms, and what others own takes none: what an owner makes fits
  // where activations were, all matrices do not. So Muon's workspace is AdamW's.
  int64_t of_adamw, unsplit_adamw;
  moved(KEYS("mesh.dp=4", "parallel.zero=2"), &shards);
  moved(KEYS("mesh.dp=4", "parallel.zero=2", "parallel.unsplit_tensors=true"), &unsplit);
  moved((const char *[]){"mesh.dp=4", "parallel.zero=2", NULL}, &of_adamw);
  moved((const char *[]){"mesh.dp=4", "parallel.zero=2", "parallel.unsplit_tensors=true", NULL}, &unsplit_adamw);
  print_message("workspace: %lld bytes with shards, %lld unsplit; with adamw %lld, %lld\n", (long long)shards,
                (long long)unsplit, (long long)of_adamw, (long long)unsplit_adamw);
  assert_true(unsplit_adamw <= of_adamw);
  assert_true(shards == of_adamw && unsplit == unsplit_adamw);
}

int main(void) {
  setenv("PLAIT_SIMD", "portable", 1); // all matrices would fit into what AVX-512's products pack
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_matrix_is_made_once),
                                     cmocka_unit_test(owners_work_side_by_side), cmocka_unit_test(traffic)};
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
