// tier 1
// Buckets of gradients: small tensors between large ones share a bucket, and so one latency.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "compiled.h"
#include "op/op.h"

// Gradients are (1024, 1024) and wider in fp32, 4 MB and more; gains of norms 4 kB.
static int make_model(void **state) {
  if (make_folder()) return -1;
  write_file("gpt.json",
             "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 4096,"
             " \"n_positions\": 64, \"n_embd\": 1024, \"n_layer\": 6, \"n_head\": 16,"
             " \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0.0, \"embd_pdrop\": 0.0,"
             " \"attn_pdrop\": 0.0, \"tie_word_embeddings\": true}");
  write_file("recipe.yaml", "model: {config: gpt.json}\ndata: {train: none, seq_len: 64}\n"
                            "batch: {global: 8, micro: 1}\nschedule: {steps: 1}\nrun: {dir: none, comm: mpi}\n"
                            "precision: fp32\n");
  return 0;
}

static double bytes_of(const Graph *g, const Node *n, int k) {
  const Tensor *in = graph_tensor(g, n->input[k]), *out = graph_tensor(g, n->output[k]);
  return (double)(tensor_allocated(g, in) > tensor_allocated(g, out) ? tensor_allocated(g, in)
                                                                     : tensor_allocated(g, out)) *
         (double)dtype_size(in->dtype);
}

// Reductions of gradients in END: how many there are, how many of them have small tensors, and how many these are.
typedef struct Count { int calls, of_small, small; double most; } Count;

static Count count(const Program *p) {
  Count c = {0};
  for (int i = 0; i < p->end.count; i++) {
    const Node *n = &p->graph->node.data[p->end.instruction[i].node];
    double bytes = 0;
    int small = 0;
    if (!node_comm(n)->reduces || graph_tensor(p->graph, n->input[0])->variable < 0)
      continue;
    for (int k = 0; k < n->ninput; k++) bytes += bytes_of(p->graph, n, k), small += bytes_of(p->graph, n, k) < 1e5;
    c.calls++, c.of_small += small > 0, c.small += small;
    if (bytes > c.most && n->ninput > 1) c.most = bytes;
  }
  return c;
}

static void small_tensors_share_a_bucket(void **state) {
  static const char *const keys[] = {"mesh.dp=4 parallel.bucket_mb=1", "mesh.dp=4 parallel.bucket_mb=1 parallel.zero=1",
                                     "mesh.pp=2 mesh.dp=4 parallel.bucket_mb=1"};
  for (int k = 0; k < 3; k++) {
    Case c = compiled_by(keys[k]);
    Count n = count(job_train(c.job)->program[0]);
    printf("%s: %d calls, %d of them with the %d small tensors\n", keys[k], n.calls, n.of_small, n.small);
    assert_true(n.small >= 24);                 // gains and biases of norms, biases of products
    assert_true(n.of_small <= 1 + n.small / 8); // some owners differ
    assert_true(n.most <= 1e6);
    release(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(small_tensors_share_a_bucket)};
  return cmocka_run_group_tests(tests, make_model, remove_folder);
}
