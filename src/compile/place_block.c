// Places what a lowering makes of blocks on a ring, or of an axis that cuts two factors of one node.
#include "base/fault.h"
#include "compile/place_node.h"
#include "sharding/rule.h"

// How the operands lie, by factor; shift: along the axis `shift_axis` among the factor's, 0: none.
typedef struct Blocks {
  int known[MAX_FACTORS], shift_axis[MAX_FACTORS], shift[MAX_FACTORS];
  AxisList axes[MAX_FACTORS];
  uint32_t partial; // over which outputs are partial sums as operands are
} Blocks;

// 0: the operand lies otherwise than those before it, or is not what all ranks have.
static int add_operand(Blocks *b, const Placement *p, const int8_t *factor) {
  if (p->owner_axes) return 0;
  for (int d = 0; d < p->rank; d++) {
    int f = factor[d], shift = axis_list_axes(&p->dim[d]) >> p->shift_axis & 1 ? p->shift : 0;
    if (b->known[f] && (!axis_list_equal(&b->axes[f], &p->dim[d]) || b->shift[f] != shift)) return 0;
    b->known[f] = 1;
    b->axes[f] = p->dim[d];
    b->shift[f] = shift;
    b->shift_axis[f] = shift ? p->shift_axis : 0;
  }
  return 1;
}

// Partial sums go through the inputs of one linear group, all of which are partial alike. 0: these do not.
static int add_partial(Blocks *b, const Graph *g, const Node *n, const Rule *rule) {
  uint8_t group = 0;
  for (int k = 0; k < n->ninput; k++) {
    uint32_t partial = graph_tensor(g, n->input[k])->placement->partial;
    if (partial && (!rule->linear[k] || (group && rule->linear[k] != group))) return 0;
    if (partial) group = rule->linear[k], b->partial = partial;
  }
  for (int k = 0; k < n->ninput; k++)
    if (group && rule->linear[k] == group && graph_tensor(g, n->input[k])->placement->partial != b->partial) return 0;
  return 1;
}

// The axes of rings: along which blocks are shifted, or which cut two factors.
static uint32_t ring_axes(const Blocks *b) {
  uint32_t used = 0, ring = 0;
  for (int f = 0; f < MAX_FACTORS; f++) {
    if (b->shift[f]) ring |= 1u << b->shift_axis[f];
    ring |= used & axis_list_axes(&b->axes[f]);
    used |= axis_list_axes(&b->axes[f]);
  }
  return ring;
}

// As the factors of an output lie; it is a partial sum over the axes of those that it lacks, but not over the ring's.
static Placement block_of(const Blocks *b, int rank, const int8_t *factor, uint32_t complete, uint32_t ring) {
  Placement p = {.rank = rank, .partial = b->partial};
  uint32_t has = complete;
  for (int d = 0; d < rank; d++) {
    int f = factor[d];
    has |= 1u << f;
    p.dim[d] = b->axes[f];
    if (b->shift[f]) p.shift = b->shift[f], p.shift_axis = b->shift_axis[f];
  }
  for (int f = 0; f < MAX_FACTORS; f++)
    if (!(has >> f & 1)) p.partial |= FAULT(ring_lacks_partial_sums, axis_list_axes(&b->axes[f]) & ~ring, 0);
  return p;
}

int place_block(Graph *g, int node) {
  Arena scratch = {0};
  const Node *n = &g->node.data[node];
  Rule rule = rule_of(&scratch, g, n);
  Blocks b = {.known = {0}};
  int fits = 1;
  for (int k = 0; k < n->ninput && fits; k++)
    fits = n->input[k] >= 0 && add_operand(&b, graph_tensor(g, n->input[k])->placement, rule.input[k]);
  fits = fits && add_partial(&b, g, n, &rule);
  uint32_t ring = fits ? ring_axes(&b) : 0;
  for (int k = 0; k < n->noutput && ring; k++) {
    Tensor *t = graph_tensor(g, n->output[k]);
    Placement p = block_of(&b, t->shape.rank, rule.output[k], rule.complete[k], ring);
    t->placement = placement_new(g, &p);
  }
  arena_free(&scratch);
  return ring != 0;
}
