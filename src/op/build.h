// Builders: append an op to a Graph and return its (first) output tensor. Shapes as in the op files.
#pragma once
#include "op/op.h"

int op_embedding(Graph *g, const char *name, int table, int ids);            // (v, e…), (b, s) → (b, s, e…)
int op_matmul(Graph *g, const char *name, int x, int w,
              int contracted); // (m…, k…), (n…, k…) → (m…, n…); `contracted` = dims of k
// Σ a b over the letters that the output lacks, or of a alone (b -1); MATMUL where it is one with a parameter
int op_einsum(Graph *g, const char *name, const EinsumAttr *attr, int a, int b);
int op_bias(Graph *g, const char *name, int x, int bias);                    // (…, n…), (n…) → (…, n…)
int op_reduce(Graph *g, const char *name, int x, int dims);                  // sum over the leading dims
int op_layer_norm(Graph *g, const char *name, int x, int gain, int bias, double epsilon);
int op_rms_norm(Graph *g, const char *name, int x, int gain, double epsilon);
int op_rope(Graph *g, const char *name, int x, int positions,
            const RopeAttr *attr); // x (b, s, …heads, d), positions (b, s)
// q (b, s, g, r, d), k and v (b, t, g, d), documents (b, s) of queries and (b, t) of keys → (b, s, g, r, d)
int op_attention(Graph *g, const char *name, int q, int k, int v, int documents, int key_documents,
                 const AttentionAttr *attr);
// The cache (b, c, g, d) of keys or values with x (b, s, g, d) in its rows (b, s), where these are not negative, in
// place on a Variable's value.
int op_cache_write(Graph *g, const char *name, int cache, int x, int rows);
// q (b, s, g, r, d) attends to the positions of its request that are not after its own, in pages of a cache (b, c, g,
// d) of keys and of values → (b, s, g, r, d).
typedef struct CacheInputs { int requests, positions, pages; } CacheInputs; // (b, s), (b, s), (b, n, m)
int op_cache_attention(Graph *g, const char *name, int q, int keys, int values, const CacheInputs *in,
                       const CacheAttr *attr);
// out (b, s, g, r, d) and logsumexp (b, g, r, s) of two parts of the keys, in this order → those of all, out first
int op_merge(Graph *g, const char *name, const int part[4], int *logsumexp);
// Experts; rows (b, s, x, …) are compact (ir/graph.h), a mask is (b, s, x) of u8. Logits (b, s, x), bias (x) or -1,
// which only chooses → weights (b, s, x), 0 where the mask is
void op_route(Graph *g, const char *name, int logits, int bias, const RouteAttr *attr, int *weights, int *mask);
int op_dispatch(Graph *g, const char *name, int x, int mask, int choices); // (b, s, e) → rows (b, s, x, e)
int op_grouped(Graph *g, const char *name, int rows, int w); // (b, s, x, k), (x, n, k) → (b, s, x, n)
int op_combine(Graph *g, const char *name, int rows, int weights); // (b, s, x, e), (b, s, x) → (b, s, e)
// x (b, s, e…) → `parts` tensors (b, s / parts, e…): positions dealt to them one after the other; and back.
void op_split_positions(Graph *g, const char *name, int x, int parts, int *part);
int op_join_positions(Graph *g, const char *name, const int *part, int parts);
int op_softmax(Graph *g, const char *name, int x); // over the last dim
int op_activation(Graph *g, const char *name, int x, ActivationKind kind);
int op_gated(Graph *g, const char *name, int gate, int up, ActivationKind kind); // act(gate) * up
int op_add(Graph *g, const char *name, const int *x, int n);
int op_mul(Graph *g, const char *name, int a, int b);
int op_scale(Graph *g, const char *name, int x, double factor);
// Between placements that their caller gives the outputs: from or to the rank `root` of the group over `axes`, and what
// is a rank's own of its input (dim as in CommAttr).
int op_broadcast(Graph *g, const char *name, int x, uint32_t axes, int root);
int op_reduce_to(Graph *g, const char *name, int x, uint32_t axes, int root);
int op_slice(Graph *g, const char *name, int x, uint32_t axes, int dim);
int op_identity(Graph *g, const char *name, int x);
int op_cast(Graph *g, const char *name, int x, Dtype dtype);                 // returns x where nothing changes
void op_copy_to_cast(Node *copy, Dtype dtype);                                // an IDENTITY becomes a CAST
void op_to_move(Node *node); // a node whose operands are filled in becomes a MOVE
int op_dropout(Graph *g, const char *name, int x, double probability);       // returns x when probability is 0
int op_take(Graph *g, const char *name, int x, int index);                   // (b, s, e…), (b) → (b, e…)
// x (b, s, e), w (v, e), targets (b, s), seed () → loss sum (), and as further outputs dx, dw when `gradient`
// For `lower` over a sharded vocabulary: statistics, a rank's maximum and its sum of exp(logit - maximum), become those
// of all ranks of `axes`.
void op_combine_sums(Graph *g, const Node *like, uint32_t axes, int *statistics);
// x (b, l, e), w (v, e), index (b, l) → logits (b, l, v), maximum (b, l), sum (b, l)
void op_logits(Graph *g, const char *name, int x, int w, int index, int output[3]);
int op_linear_cross_entropy(Graph *g, const char *name, int x, int w, int targets, int seed, int gradient);
// logits (a…, v), target (a…) labels or (a…, v) probabilities, seed () → loss sum (), and as a further output dlogits.
// The target must be data: it gets no gradient
int op_cross_entropy(Graph *g, const char *name, int logits, int target, int seed);
// y (a…), target (a…), seed () → Σ (y - target)² (), and as a further output dy
int op_squared_error(Graph *g, const char *name, int y, int target, int seed);
// Adds what a training graph needs of the router of a layer of experts, whose parameter (Variable) is `router`: its
// losses, balance and z, which autodiff adds to the model's (compile/losses.h), how busy each expert is, and the
// capacity of experts: `most` choices of an expert in a sequence are kept, the first ones (0: all). logits (b, s, x),
// mask (b, s, x) as ROUTE gives it → the mask by which tokens are sent.
int op_router_losses(Graph *g, const char *name, int router, int logits, int mask, int64_t most);
// The bias (x) that ROUTE adds to probabilities when it chooses: no parameter, but moved in END by how busy each expert
// was (loss-free balancing). In graphs of all modes, where the recipe has moe.bias_rate.
int op_router_bias(Graph *g, int router);
// In place on a Variable's value: the bias (x) of each expert by ± `rate`, as it was chosen less or more than the mean.
void op_router_bias_step(Graph *g, const char *name, int bias, int load, int skip, double rate);
int op_output(Graph *g, const char *name, int x); // a copy for the host
int op_count_targets(Graph *g, const char *name, int targets);               // (…) → ()
int op_gradient_seed(Graph *g, const char *name, int count,
                     int loss_scale); // (), () or -1 → () = scale / max(count, 1)
int op_mean_loss(Graph *g, const char *name, int loss_sum, int count);
int op_fill(Graph *g, const char *name, int variable, double value);         // writes a Variable; returns its new value
int op_accumulate(Graph *g, const char *name, int accumulator,
                  int x); // in place on a Variable's value: accumulator += x
int op_sum_squares(Graph *g, const char *name, int x);                       // (…) → () fp64
// Sum of squares () of gradients that are loss_scale () times too large (-1: they are not), max_norm → norm () of the
// gradients, factor () by which what is there becomes the clipped gradient, skip (): 1 when the norm is not finite, or
// the learning rate `rate` () is not a number (-1: not asked).
void op_clip(Graph *g, const char *name, int sum_squares, int loss_scale, int rate, double max_norm, int *norm,
             int *factor, int *skip);
// In place on Variables' values: halves the scale when skip, doubles it after `interval` good steps (0: it stays).
void op_loss_scale(Graph *g, const char *name, int scale, int good, int skip, int64_t interval);
int op_unscale(Graph *g, const char *name, int x, int scale);                // (…), () → x / scale
int op_orthogonalize(Graph *g, const char *name, int u, int matrices, int rows); // dims as in OrthogonalizeAttr
// Of delayed gradients (version.c); skip -1 in BEGIN. In place on the counters; the turn () is for op_next_version.
int op_version_turn(Graph *g, const char *name, int versions, int steps, int skip);
void op_next_version(Graph *g, const char *name, int version, int newer, int weights, int turn);
int op_advance(Graph *g, const char *name, int step, int skip); // in place on a Variable's value: step += 1 - skip
// rows (b, s, x, …) and their mask as it lies after the exchange → the rows there (partition)
int op_exchange_rows(Graph *g, const char *name, int rows, int mask, uint32_t axes, const RowParts *parts);
int op_reorder_rows(Graph *g, const char *name, int rows, const RowParts *parts);
