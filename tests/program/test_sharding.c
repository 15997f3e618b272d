// tier 1 2; rooms compile sharding schedule
// ZeRO's two tables, read off compiled Programs: what is moved a step, and what a rank keeps (Rajbhandari et al.,
// 2020).
#include "program/traffic.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

#include "compiled.h"
#include "tier.h"

static int setup(void **state) {
  if (make_folder()) return -1;
  // Untied and without biases, so that every parameter of a block is read in forward and in backward; dims divide by 4.
  write_file(
      "llama.json",
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 3,"
      " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"max_position_embeddings\": 32,"
      " \"vocab_size\": 128, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}");
  write_file("gpt.json",
             "{\"model_type\": \"gpt2\", \"n_layer\": 36, \"n_embd\": 4096, \"n_head\": 32, \"n_positions\": 1024,"
             " \"vocab_size\": 50304, \"activation_function\": \"gelu_new\"}");
  write_file("recipe.yaml",
             "model: {config: llama.json}\ndata: {train: none, seq_len: 16}\nbatch: {global: 8, micro: 1}\n"
             "schedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n");
  return 0;
}

static double parameters(const Graph *g, const char *part) {
  double n = 0;
  for (int i = 0; i < g->variable.count; i++)
    if (g->variable.data[i].kind == VARIABLE_PARAMETER && (!part || strstr(g->variable.data[i].name, part)))
      n += (double)shape_elements(&g->variable.data[i].shape);
  return n;
}

// Elements over axes `first` (and `second`), in units of (N − 1)/N.
static double moved(const Job *job, const char *axis) {
  TrafficList list = {0};
  double elements = 0;
  int a = mesh_find(&job->options.parallel.mesh, axis), n = job->options.parallel.mesh.axis[a].size;
  program_traffic(job_train(job)->program[0], &list);
  for (int i = 0; i < list.count; i++)
    if (list.data[i].axes == 1u << a) elements += list.data[i].elements;
  vec_free(&list);
  return elements * n / (n - 1);
}

static void expect(double value, double expected) {
  double slack = 256; // scalars: loss, count, norm, which go whole to all ranks
  if (value < expected || value > expected + slack) fail_msg("%.0f elements, expected %.0f", value, expected);
}

// 2 microbatches: batch 8 over 4 data ranks.
static void test_traffic(void **state) {
  const double m = 2;
  Case c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=0", NULL});
  double all = parameters(job_train(c.job)->graph, NULL), ends = parameters(job_train(c.job)->graph, "wte") +
                                                            parameters(job_train(c.job)->graph, "embed") +
                                                            parameters(job_train(c.job)->graph, "head");
  assert_true(ends >= 2 * 128 * 64 && ends < all);
  expect(moved(c.job, "dp"), 2 * all);
  release(&c);
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=1", NULL});
  expect(moved(c.job, "dp"), 2 * all);
  release(&c);
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=2", NULL});
  expect(moved(c.job, "dp"), (m + 1) * all);
  release(&c);
  // The embedding and the head with its loss are read once a microbatch, in forward; everything else twice.
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=3", NULL});
  expect(moved(c.job, "dp"), 3 * m * (all - ends) + 2 * m * ends);
  release(&c);
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=3", "parallel.reshard=false", NULL});
  expect(moved(c.job, "dp"), (m + 1) * all);
  release(&c);
  // Gradients that are added locally are scattered once.
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=2", "parallel.accumulate=local", NULL});
  expect(moved(c.job, "dp"), 2 * all);
  release(&c);
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=3", "parallel.accumulate=local", NULL});
  expect(moved(c.job, "dp"), 2 * m * (all - ends) + m * ends + all);
  release(&c);
}

// With one data rank nothing is scattered, and what tp leaves partial is summed once a step, whatever the stage.
static void one_rank_scatters_nothing(void **state) {
  static const char *const zero[] = {"parallel.zero=0", "parallel.zero=2", "parallel.zero=3"};
  double over_tp[3];
  for (int i = 0; i < 3; i++) {
    Case c = compiled_by_list((const char *[]){"mesh.tp=2", "parallel.sequence=true", zero[i], NULL});
    assert_true(job_train(c.job)->shares.microbatches > 1);
    over_tp[i] = moved(c.job, "tp");
    release(&c);
  }
  assert_true(over_tp[0] > 0 && over_tp[1] == over_tp[0] && over_tp[2] == over_tp[0]);
}

// Bytes of parameters and gradients over the axes that ZeRO divides storage over; `others`: over all other axes.
static double parameter_bytes(const Job *job, double *others) {
  TrafficList list = {0};
  double bytes = 0;
  *others = 0;
  program_traffic(job_train(job)->program[0], &list);
  for (int i = 0; i < list.count; i++)
    *(list.data[i].axes & job->options.parallel.storage.shard_axes ? &bytes : others) += list.data[i].parameter_bytes;
  vec_free(&list);
  return bytes;
}

// Activations that cross cp are not counted among them, and weights that 2-D tensors gather are over other axes.
static void parameters_are_told_apart(void **state) {
  const double m = 8; // microbatches
  double others;
  Case c = compiled_by_list((const char *[]){"mesh.cp=2", "parallel.context=gather", "parallel.zero=2", NULL});
  double all = parameters(job_train(c.job)->graph, NULL);
  assert_int_equal(job_train(c.job)->shares.microbatches, m);
  assert_true(parameter_bytes(c.job, &others) == (m + 1) * all / 2 * sizeof(float) && others == 0);
  assert_true(moved(c.job, "cp") > (m + 1) * all + 64);
  release(&c);
  c = compiled_by_list((const char *[]){"mesh.tp=4", "parallel.tensor=2d", "parallel.zero=0", NULL});
  assert_true(parameter_bytes(c.job, &others) == 0 && others > 0);
  release(&c);
}

// Elements that a pipeline rank moves over an axis, and its FLOPs (axis NULL).
static double cost_of(const Case *c, int coordinate, const char *axis) {
  TrafficList list = {0};
  const Program *p = job_train(c->job)->program[coordinate];
  double sum = axis ? 0 : program_flops(p);
  program_traffic(p, &list);
  for (int i = 0; axis && i < list.count; i++)
    if (list.data[i].axes >> mesh_find(&p->mesh, axis) & 1) sum += list.data[i].elements;
  vec_free(&list);
  return sum;
}

// A backward that is split in two moves and computes what one in one piece does: W takes what B has moved, and the head
// what forward has.
static void weights_move_nothing(void **state) {
  static const struct { const char *keys, *axes[3]; } table[] = {
      {"mesh.dp=2 parallel.zero=2", {"dp", "pp"}},
      {"mesh.dp=2 parallel.zero=3", {"dp", "pp"}},
      {"mesh.tp=2 parallel.sequence=true", {"tp", "pp"}},
      {"mesh.tp=2 parallel.sequence=true parallel.recompute=selective", {"tp", "pp"}},
      {"mesh.tp=2 mesh.dp=2 parallel.sequence=true parallel.recompute=full parallel.zero=3", {"dp", "tp", "pp"}},
  };
  for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
    char keys[2][192];
    snprintf(keys[0], sizeof keys[0], "mesh.pp=2 parallel.pipeline=1f1b %s", table[k].keys);
    snprintf(keys[1], sizeof keys[1], "mesh.pp=2 parallel.pipeline=zb-h1 %s", table[k].keys);
    Case whole = compiled_by(keys[0]), split = compiled_by(keys[1]);
    for (int c = 0; c < 2; c++)
      for (int a = 0; a < 4; a++) {
        const char *axis = a < 3 ? table[k].axes[a] : NULL;
        if (a < 3 && !axis) continue;
        double one = cost_of(&whole, c, axis), two = cost_of(&split, c, axis);
        if (!(one > 0) || fabs(one - two) > 1e-9 * one)
          fail_msg("%s, pp %d, %s: %.0f in one piece, %.0f in two", table[k].keys, c, axis ? axis : "FLOPs", one, two);
      }
    release(&whole), release(&split);
  }
}

// Elements of the tensors of a rank's MICRO as wide as the vocabulary, without those of parameters.
static int64_t logits_of(const Program *p) {
  int64_t most = 0;
  for (int i = 0; i < p->graph->tensor.count; i++) {
    const Tensor *t = &p->graph->tensor.data[i];
    int last = t->shape.rank - 1;
    if (t->variable < 0 && t->parameter < 0 && last == 2 && t->shape.dim[last] == DIM_VOCAB && t->allocated_ > most)
      most = t->allocated_;
  }
  return most;
}

// Logits that are made again cost one product of the head, 2·e·v FLOPs a token, and with ZeRO 3 one more gather of its
// weight; of the vocabulary's width nothing is kept.
static void logits_again_cost_a_product(void **state) {
  const char *const keys[2][4] = {{"mesh.dp=2", "parallel.zero=3", "parallel.logits=keep"},
                                  {"mesh.dp=2", "parallel.zero=3", "parallel.logits=recompute"}};
  double tokens = 8 / 2 * 16, weight = 128 * 64, microbatches = 4, flops[2], gathered[2];
  for (int again = 0; again < 2; again++) {
    const char *all[6] = {"parallel.pipeline=zb-h1", "mesh.pp=2"};
    for (int i = 0; i < 3; i++) all[2 + i] = keys[again][i];
    Case c = compiled_by_list(all);
    assert_true(job_train(c.job)->shares.microbatches == microbatches &&
                (logits_of(job_train(c.job)->program[1]) > 0) == !again);
    flops[again] = cost_of(&c, 1, NULL);
    gathered[again] = cost_of(&c, 1, "dp");
    release(&c);
  }
  assert_true(flops[0] > 0 && fabs(flops[1] - flops[0] - 2 * tokens * weight) < 1e-9 * flops[0]);
  expect(gathered[1] - gathered[0], microbatches * weight / 2); // half of it from the other rank
}

// Of a batch that does not divide the rows that there are count, not those that there is memory for: the first of 3
// data ranks has 3 of 8 sequences, and what a pipeline rank sends or computes on them is 3 / 4 of what 4 take.
static void rows_that_there_are_count(void **state) {
  Case even = compiled_by_list((const char *[]){"mesh.pp=2", "batch.global=4", "batch.micro=2", NULL});
  Case uneven = compiled_by_list((const char *[]){"mesh.pp=2", "mesh.dp=3", "batch.micro=2", NULL});
  double sent = moved(even.job, "pp");
  assert_int_equal(job_train(uneven.job)->shares.microbatches, 2);
  assert_true(!job_train(uneven.job)->shares.even && job_train(even.job)->shares.even);
  assert_true(moved(uneven.job, "pp") < sent && moved(uneven.job, "pp") > 0.7 * sent);
  for (int c = 0; c < 2; c++) {
    const Program *p = job_train(even.job)->program[c], *q = job_train(uneven.job)->program[c];
    double fixed =
        program_flops(p) - 2 * (program_body_flops(p, c, PHASE_FORWARD) + program_body_flops(p, c, PHASE_BACKWARD));
    double rows = program_flops(p) - fixed;
    assert_true(rows > 0 && fabs(program_flops(q) - fixed - 0.75 * rows) < 1e-9 * rows);
  }
  release(&even);
  release(&uneven);
}

// Nodes of a partitioned graph with `layers` layers, each in its own stage.
static int nodes_of(const char *layers) {
  char model[192], pp[32];
  snprintf(model, sizeof model, "model.config=%s", path_of("deep.json"));
  snprintf(pp, sizeof pp, "mesh.pp=%s", layers);
  char *text = xformat("{\"model_type\": \"gpt2\", \"n_layer\": %s, \"n_embd\": 8, \"n_head\": 2, \"n_positions\": 16,"
                       " \"vocab_size\": 16}", layers);
  write_file("deep.json", text);
  free(text);
  Recipe recipe;
  ModelConfig config;
  RunPlan plan;
  Graph *g = NULL;
  Error error = {0};
  char *overrides[] = {model, pp, "mesh.tp=2", "layout.batch=[tp]"};
  if (recipe_load(path_of("recipe.yaml"), 4, overrides, &recipe, &error) ||
      model_config_load(&config, recipe.model.config, &error) ||
      resolve(&recipe, &config, &(RunSetting){.threads = 1}, &plan, &error) || run_plan_graph(&plan, NULL, &g, &error))
    fail_msg("%s", error.message);
  int n = g->node.count;
  graph_destroy(g);
  run_plan_free(&plan);
  model_config_free(&config);
  recipe_free(&recipe);
  return n;
}

// Stages that share no section: every further one has as many nodes, also beyond 256 of them.
static void stages_are_alike(void **state) {
  int few = nodes_of("8"), a_stage = nodes_of("9") - few;
  assert_int_equal(nodes_of("300"), few + 292 * a_stage);
}

// Hybrid: the shards' traffic stays in the group of 2; between the groups a rank sums its shard of the gradients once.
static void test_traffic_hybrid(void **state) {
  const double m = 2;
  Case c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=2", "parallel.shard_group=2", NULL});
  double all = parameters(job_train(c.job)->graph, NULL);
  expect(moved(c.job, "dp"), (m + 1) * all);
  expect(moved(c.job, "replica"), 2 * all / 2);
  release(&c);
}

// Whole tensors: the same table. On the average of the ranks a broadcast moves what a gather does, and a sum to one
// rank 1 + 1/N times what a scatter does.
static void test_traffic_whole(void **state) {
  const double m = 2, sum = 1 + 1.0 / 4;
  Case c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=1", "parallel.unsplit_tensors=true", NULL});
  double all = parameters(job_train(c.job)->graph, NULL), ends = parameters(job_train(c.job)->graph, "wte") +
                                                            parameters(job_train(c.job)->graph, "embed") +
                                                            parameters(job_train(c.job)->graph, "head");
  expect(moved(c.job, "dp"), (1 + sum) * all);
  release(&c);
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=2", "parallel.unsplit_tensors=true", NULL});
  expect(moved(c.job, "dp"), (sum * m + 1) * all);
  release(&c);
  c = compiled_by_list((const char *[]){"mesh.dp=4", "parallel.zero=3", "parallel.unsplit_tensors=true", NULL});
  expect(moved(c.job, "dp"), (2 + sum) * m * (all - ends) + (1 + sum) * m * ends);
  release(&c);
}

// Collectives of the op in a stage's body: all, and those that are in flight during at least one product.
static void count_hidden(const Program *p, Phase phase, Op op, int *all, int *hidden) {
  const Body *body = &p->micro[0][phase];
  *all = *hidden = 0;
  for (int i = 0; i < body->count; i++) {
    if (p->graph->node.data[body->instruction[i].node].op != op) continue;
    ++*all;
    for (int k = i + 1; k < body->instruction[i].wait; k++)
      if (p->graph->node.data[body->instruction[k].node].op == OP_MATMUL) {
        ++*hidden;
        break;
      }
  }
}

static void expect_hidden(const char *const *keys, Phase phase, Op op, int least_hidden, int most_exposed) {
  Case c = compiled_by_list(keys);
  int all, hidden;
  count_hidden(job_train(c.job)->program[0], phase, op, &all, &hidden);
  if (hidden < least_hidden || all - hidden > most_exposed)
    fail_msg("%s: %d of %d %s are hidden by a product", keys[0], hidden, all, op_name(op));
  release(&c);
}

// 3 layers: in each, backward sums the gradients of two inputs over tp while it computes weight gradients. Gathers of
// zero 3 are a block ahead: only those of the embedding (in backward: the last norm) have no product to hide them, and
// those of the block next to it no product. Of the reductions the first block's has only the embedding's gradient, and
// that one's nothing.
static void test_overlap(void **state) {
  expect_hidden((const char *[]){"mesh.tp=2", NULL}, PHASE_BACKWARD, OP_ALL_REDUCE, 6, 1);
  expect_hidden((const char *[]){"mesh.dp=4", "parallel.zero=3", NULL}, PHASE_FORWARD, OP_ALL_GATHER, 3, 2);
  expect_hidden((const char *[]){"mesh.dp=4", "parallel.zero=3", NULL}, PHASE_BACKWARD, OP_ALL_GATHER, 2, 2);
  expect_hidden((const char *[]){"mesh.dp=4", "parallel.zero=2", NULL}, PHASE_BACKWARD, OP_REDUCE_SCATTER, 3, 2);
}

// Gathered by layers or megabytes, parameters take less memory at a time; what is moved is the same, and is still
// hidden by products.
static void smaller_units_are_gathered(void **state) {
  static const char *const units[] = {"parallel.gather=block", "parallel.gather=1 MB", "parallel.gather=layer"};
  int64_t work[3];
  double bytes[3];
  char config[160];
  snprintf(config, sizeof config, "model.config=%s", path_of("gpt.json"));
  for (int u = 0; u < 3; u++) {
    Case c = compiled_by_list((const char *[]){config, "mesh.dp=4", "parallel.zero=3", units[u], NULL});
    work[u] = job_train(c.job)->program[0]->arena_bytes;
    bytes[u] = moved(c.job, "dp");
    release(&c);
  }
  print_message("working memory by block %lld, by 1 MB %lld, by layer %lld bytes\n", (long long)work[0],
                (long long)work[1], (long long)work[2]);
  assert_true(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
  assert_true(work[1] < work[0] && work[2] < work[0]);
  expect_hidden((const char *[]){"mesh.dp=4", "parallel.zero=3", units[2], NULL}, PHASE_FORWARD, OP_ALL_GATHER, 21, 9);
}

static double state_bytes(const char *zero, const char *gradients, const char *more) {
  char config[160], z[32], g[32];
  snprintf(config, sizeof config, "model.config=%s", path_of("gpt.json"));
  snprintf(z, sizeof z, "parallel.zero=%s", zero);
  snprintf(g, sizeof g, "parallel.grad_dtype=%s", gradients);
  Case c = compiled_by_list((const char *[]){config, z, g, "precision=bf16", "mesh.dp=64", "batch.global=64",
                                             "data.seq_len=1024", more, NULL});
  const MemoryPlan *m = &job_train(c.job)->program[0]->memory;
  double bytes = (double)(m->parameters + m->gradients + m->optimizer) / parameters(job_train(c.job)->graph, NULL);
  release(&c);
  return bytes;
}

// Bytes a parameter on each of 64 ranks: at most what is published, and not far below it.
static void test_state_bytes(void **state) {
  const double n = 64, narrow[] = {16, 4 + 12 / n, 2 + 14 / n, 16 / n}, wide[] = {18, 6 + 12 / n, 2 + 16 / n, 18 / n};
  static const char *const zero[] = {"0", "1", "2", "3"};
  for (int z = 0; z < 4; z++) {
    double b = state_bytes(zero[z], "bf16", NULL), f = state_bytes(zero[z], "fp32", NULL),
           split = state_bytes(zero[z], "bf16", "optimizer.master=split"),
           least = z % 3 ? narrow[z] : narrow[z] * 14 / 16;
    print_message(
        "zero %d: %.3f bytes a parameter with bf16 gradients (published %.3f), %.3f with fp32 (%.3f); 7.5B: %.1f GB\n",
        z, b, narrow[z], f, wide[z], 7.5 * b);
    // 0.1%: norms and biases (0.02% of the parameters) stay in fp32 where MICRO reads them; storage shards are padded
    if (b > 1.001 * narrow[z] || b < 0.97 * narrow[z])
      fail_msg("zero %d, bf16 gradients: %.3f bytes a parameter, published %.3f", z, b, narrow[z]);
    print_message("zero %d: %.3f bytes a parameter with split masters (%.3f)\n", z, split, least);
    if (split > 1.002 * least || split < 0.97 * least)
      fail_msg("zero %d, split masters: %.3f bytes a parameter, %.3f expected", z, split, least);
    if (f > 1.001 * wide[z] || f < 0.97 * wide[z])
      fail_msg("zero %d, fp32 gradients: %.3f bytes a parameter, published %.3f", z, f, wide[z]);
  }
}

// With gradients in bf16 a single microbatch's are rounded before they are scattered, as those of several are before
// they are added.
static void narrow_gradients_move_narrow(void **state) {
  static const char *const zero[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
  for (int z = 0; z < 3; z++) {
    Case c = compiled_by_list((const char *[]){zero[z], "precision=bf16", "parallel.grad_dtype=bf16", "mesh.dp=4",
                                       "batch.micro=2", NULL});
    TrafficList list = {0};
    double bytes = 0,
           one = parameters(job_train(c.job)->graph, NULL) * 3 / 4 * 2; // each parameter in bf16, from one of four
    program_traffic(job_train(c.job)->program[0], &list);
    for (int i = 0; i < list.count; i++) bytes += list.data[i].parameter_bytes;
    print_message("%s: moves %.3f × the parameters\n", zero[z], bytes / one);
    assert_true(bytes < 1.01 * (z < 2 ? 2 : 3) * one); // 1%: norms stay in fp32
    vec_free(&list);
    release(&c);
  }
}

// Updates in backward: no gradient is kept, and as much is moved, hidden by the products as stage 2's reductions are.
// Of the GPT, whose head is tied to its embedding, that one's gradient stays.
static void test_in_backward(void **state) {
#define IN_BACKWARD                                                                                                    \
  "mesh.dp=4", "batch.micro=2", "optimizer.clip=0", "run.non_finite=stop", "parallel.update=in_backward"
  Case c = compiled_by_list((const char *[]){IN_BACKWARD, NULL});
  double all = parameters(job_train(c.job)->graph, NULL), ends = parameters(job_train(c.job)->graph, "wte") +
                                                            parameters(job_train(c.job)->graph, "embed") +
                                                            parameters(job_train(c.job)->graph, "head");
  assert_true(ends >= 2 * 128 * 64 && ends < all);
  assert_int_equal(job_train(c.job)->program[0]->memory.gradients, 0);
  expect(moved(c.job, "dp"), 2 * all);
  release(&c);
  for (int z = 1; z <= 3; z++) {
    char zero[32];
    snprintf(zero, sizeof zero, "parallel.zero=%d", z);
    c = compiled_by_list((const char *[]){IN_BACKWARD, zero, NULL});
    assert_int_equal(job_train(c.job)->program[0]->memory.gradients, 0);
    expect(moved(c.job, "dp"), z < 3 ? 2 * all : 3 * (all - ends) + 2 * ends);
    release(&c);
  }
  expect_hidden((const char *[]){IN_BACKWARD, "parallel.zero=2", NULL}, PHASE_BACKWARD, OP_REDUCE_SCATTER, 3, 2);
  char config[160];
  snprintf(config, sizeof config, "model.config=%s", path_of("gpt.json"));
  c = compiled_by_list((const char *[]){config, IN_BACKWARD, NULL});
  double tied = (double)job_train(c.job)->program[0]->memory.gradients / sizeof(float);
  if (tied < 50304.0 * 4096 || tied > 50304.0 * 4096 * 1.001) fail_msg("%.0f elements of gradients are kept", tied);
  release(&c);
}

// What is gathered is not sliced to what it was: with the embedding over tp a product's result is as its bias wants it.
static void test_no_round_trip(void **state) {
  char config[160];
  snprintf(config, sizeof config, "model.config=%s", path_of("gpt.json"));
  Case c = compiled_by_list((const char *[]){config, "mesh.tp=2", "layout.embed=[tp]", "layout.heads=[]",
                                             "layout.ffn=[]", "layout.vocab=[]", NULL});
  const Graph *g = job_train(c.job)->graph;
  int slices = 0;
  for (int i = 0; i < g->node.count; i++) {
    const Node *n = &g->node.data[i];
    const Tensor *whole = n->op == OP_SLICE ? graph_tensor(g, n->input[0]) : NULL;
    if (!whole) continue;
    slices++;
    const Node *m = whole->producer < 0 ? n : &g->node.data[whole->producer];
    for (int k = 0; m->op == OP_ALL_GATHER && m->phase == n->phase && k < m->noutput; k++)
      assert_false(m->output[k] == whole->id &&
                   placement_equal(graph_tensor(g, m->input[k])->placement, graph_tensor(g, n->output[0])->placement));
  }
  assert_true(slices > 0); // of what norms give
  release(&c);
}

// Bytes of Variables (with their Copies) that a rank has: of those that it owns, of the kinds that `kinds` names, or
// all.
static int64_t held(const Program *p, int rank, int owned, unsigned kinds) {
  int64_t bytes = 0;
  for (int i = 0; i < p->graph->variable.count; i++) {
    const Variable *v = &p->graph->variable.data[i];
    if (p->variable_place[i].offset < 0 || !(kinds >> v->kind & 1)) continue;
    for (int c = -1; c < v->copies; c++) {
      const Placement *placement = c < 0 ? v->storage : v->copy[c].placement;
      int64_t elements = variable_allocated(p->graph, v, c);
      if (!placement_here(&p->mesh, placement, rank) || (owned && !placement->owner_axes)) continue;
      bytes +=
          round_up(elements * (int64_t)dtype_size(c < 0 ? v->dtype : v->copy[c].dtype), p->device->space[0].alignment);
    }
  }
  return bytes;
}

// What a rank has lies in its arena, and no two parts of it overlap.
static void expect_disjoint(const Program *p, int rank) {
  for (int i = 0; i < p->graph->variable.count; i++)
    for (int k = 0; k < p->graph->variable.count; k++) {
      const Variable *v = &p->graph->variable.data[i], *w = &p->graph->variable.data[k];
      int64_t a = p->variable_place[i].offset, b = p->variable_place[k].offset,
              end = a + variable_allocated(p->graph, v, -1) * (int64_t)dtype_size(v->dtype);
      if (a < 0 || !placement_here(&p->mesh, v->storage, rank)) continue;
      assert_true(end <= p->state_bytes[0]);
      for (int c = k == i ? 0 : -1; b >= 0 && c < w->copies; c++) {
        if (!placement_here(&p->mesh, c < 0 ? w->storage : w->copy[c].placement, rank)) continue;
        int64_t at = c < 0 ? b : p->copy_place[k][c].offset, bytes = (variable_allocated(p->graph, w, c)) *
                                                               (int64_t)dtype_size(c < 0 ? w->dtype : w->copy[c].dtype);
        if (at < end && a < at + bytes) fail_msg("rank %d: %s and %s overlap", rank, v->name, w->name);
      }
    }
}

// Ranks of a stage: every element has one owner on each pipeline rank where it lives, the spread is at most the largest
// tensor, and the plan is that of the rank that has the most.
static void expect_owners(const char *const *keys) {
  const unsigned all = ~0u, parameter = 1 << VARIABLE_PARAMETER;
  Case c = compiled_by_list(keys);
  const Mesh *mesh = &c.job->options.parallel.mesh;
  int dp = mesh_axis(mesh, AXIS_DP), pp = mesh_pipeline_ranks(mesh), ranks[64];
  for (int stage = 0; stage < pp; stage++) {
    const Program *p = job_train(c.job)->program[stage];
    int n = mesh_group(mesh, stage * mesh->ranks / pp, 1u << dp, 0, ranks);
    int64_t sum = 0, least = INT64_MAX, most = 0, total = 0, whole = 0, largest = 0, owned_least = INT64_MAX,
            owned_most = 0;
    for (int i = 0; i < n; i++) {
      int64_t mine = held(p, ranks[i], 0, all), owned = held(p, ranks[i], 1, all), weights = 0;
      for (int k = 0; k < p->graph->variable.count; k++) {
        const Variable *v = &p->graph->variable.data[k];
        if (v->kind != VARIABLE_PARAMETER || p->variable_place[k].offset < 0) continue;
        assert_int_equal(v->storage->owner_axes, 1u << dp);
        if (placement_here(mesh, v->storage, ranks[i])) weights += variable_allocated(p->graph, v, -1);
        if (!i) whole += variable_allocated(p->graph, v, -1);
        if (variable_allocated(p->graph, v, -1) > largest) largest = variable_allocated(p->graph, v, -1);
      }
      sum += weights;
      if (weights < least) least = weights;
      if (weights > most) most = weights;
      if (mine > total) total = mine;
      if (owned < owned_least) owned_least = owned;
      if (owned > owned_most) owned_most = owned;
      expect_disjoint(p, ranks[i]);
    }
    print_message("pp %d: %d owners of %lld elements, %lld to %lld, largest tensor %lld\n", stage, n, (long long)whole,
                  (long long)least, (long long)most, (long long)largest);
    assert_true(sum == whole && most - least <= largest);
    assert_true(p->state_bytes[0] == total && p->memory.owned_least == owned_least &&
                p->memory.owned_most == owned_most);
    const MemoryPlan *m = &p->memory;
    assert_true(m->parameters + m->gradients + m->optimizer + m->other == total);
    assert_true(held(p, ranks[0], 0, parameter) <= m->parameters + largest * 4);
  }
  release(&c);
}

static void test_owners(void **state) {
  expect_owners((const char *[]){"mesh.dp=4", "parallel.zero=1", "parallel.unsplit_tensors=true", NULL});
  expect_owners(
      (const char *[]){"mesh.dp=4", "parallel.zero=3", "parallel.unsplit_tensors=true", "precision=bf16", NULL});
  if (test_tier() < 2) return; // larger ones
  expect_owners((const char *[]){"mesh.dp=4", "mesh.pp=3", "parallel.zero=2", "parallel.unsplit_tensors=true", NULL});
  expect_owners((const char *[]){"mesh.dp=8", "parallel.shard_group=4", "parallel.zero=2", "mesh.tp=2",
                                 "parallel.unsplit_tensors=true", NULL});
  char config[160]; // tied over stages: 36 layers
  snprintf(config, sizeof config, "model.config=%s", path_of("gpt.json"));
  expect_owners((const char *[]){config, "mesh.dp=8", "mesh.pp=4", "parallel.zero=2", "parallel.unsplit_tensors=true",
                                 "batch.global=64", NULL});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_that_there_are_count),
      cmocka_unit_test(stages_are_alike),
      cmocka_unit_test(test_traffic),
      cmocka_unit_test(one_rank_scatters_nothing),
      cmocka_unit_test(parameters_are_told_apart),
      cmocka_unit_test(weights_move_nothing),
      cmocka_unit_test(logits_again_cost_a_product),
      cmocka_unit_test(test_traffic_hybrid),
      cmocka_unit_test(test_traffic_whole),
      cmocka_unit_test(test_overlap),
      cmocka_unit_test(smaller_units_are_gathered),
      cmocka_unit_test(test_state_bytes),
      cmocka_unit_test(narrow_gradients_move_narrow),
      cmocka_unit_test(test_in_backward),
      cmocka_unit_test(test_no_round_trip),
      cmocka_unit_test(test_owners),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
