// Looking for the first value that is infinite or not a number.
#include "runtime/finite.h"
#include "runtime/observer.h"
#include <math.h>

// All ones in the exponent.
#define SCAN(type, mask)                                                                                               \
  for (const type *p = data; i < n; i++)                                                                               \
    if ((p[i] & (mask)) == (mask)) break;

static int64_t next_not(const void *data, Dtype dtype, int64_t i, int64_t n) {
  switch (dtype) {
  case DTYPE_F64: SCAN(uint64_t, 0x7ff0000000000000u) break;
  case DTYPE_F32: SCAN(uint32_t, 0x7f800000u) break;
  case DTYPE_BF16: SCAN(uint16_t, 0x7f80u) break;
  case DTYPE_F16: SCAN(uint16_t, 0x7c00u) break;
  default: return n;
  }
  return i;
}

// Among `count` elements of x, from index `from` on, of which `data` is a copy.
static int64_t first_in_piece(const Operand *x, const void *data, int64_t from, int64_t count, int minus,
                              double *value) {
  for (int64_t i = next_not(data, x->dtype, 0, count); i < count; i = next_not(data, x->dtype, i + 1, count)) {
    *value = dtype_load(data, x->dtype, i);
    if (operand_valid(x, from + i) && !(minus && *value < 0)) return from + i;
  }
  return -1;
}

int64_t finite_first_not(DeviceQueue *queue, const Operand *x, int minus, double *value) {
  enum { AT_ONCE = 1 << 12 };
  double piece[AT_ONCE]; // room for elements of any dtype
  int64_t n = x->data && dtype_is_float(x->dtype) ? operand_elements(x) : 0, size = (int64_t)dtype_size(x->dtype),
          found = -1;
  if (!queue) return first_in_piece(x, x->data, 0, n, minus, value);
  for (int64_t from = 0; from < n && found < 0; from += AT_ONCE) {
    int64_t count = n - from < AT_ONCE ? n - from : AT_ONCE;
    device_copy(queue, DEVICE_TO_HOST, 0, piece, (const char *)x->data + from * size, count * size);
    if (device_drain(queue, NULL)) return -1; // the run will say so
    found = first_in_piece(x, piece, from, count, minus, value);
  }
  return found;
}

// Of the first 32 outputs some may be in a set (bits); of a bucket, which has more, none are.
static int is_in(uint32_t set, int output) { return output < 32 && set >> output & 1; }

static void look(NonFinite *first, const Graph *g, const Observation *o) {
  const Node *n = o->node;
  for (int k = 0; k < n->noutput && !first->found; k++) {
    double value;
    if (finite_first_not(o->queue, &o->output[k], is_in(op_def(n->op)->minus_infinity, k), &value) < 0) continue;
    *first = (NonFinite){1, first->rank, n->id, k, n->region == REGION_MICRO ? o->microbatch : 0, -1, value};
    // An update in place reads what it has just written; then the maker of that value was met before.
    for (int i = 0; i < o->ninput && first->variable < 0; i++) {
      const Tensor *t = o->tensor[i] < 0 ? NULL : graph_tensor(g, o->tensor[i]);
      const Variable *v = t && t->variable >= 0 ? &g->variable.data[t->variable] : NULL;
      if (v && variable_is_weight(v) &&
          finite_first_not(o->queue, &o->input[i], 0, &value) >= 0)
        first->variable = v->parameter;
    }
  }
}

static void see(void *self, const Observation *o) {
  FiniteSearch *search = self;
  if (!o->left_to_owner) look(&search->first, search->graph, o);
}

const ObserverDef observer_finite = {"finite", OBSERVES(INSTRUCTION_END), 1, see};

int finite_before(const Graph *g, const NonFinite *a, const NonFinite *b) {
  if (!a->found || !b->found) return a->found > b->found;
  Region x = g->node.data[a->node].region, y = g->node.data[b->node].region;
  if (x != y) return x < y;
  if (a->microbatch != b->microbatch) return a->microbatch < b->microbatch;
  if (a->node != b->node) return a->node < b->node;
  if ((a->variable < 0) != (b->variable < 0)) return a->variable >= 0; // the one that holds it, not one that gathers it
  return a->rank < b->rank;
}

int finite_is_gradient(const Graph *g, const NonFinite *first) {
  const Node *n = &g->node.data[first->node];
  if (first->variable >= 0 || n->region == REGION_BEGIN) return 0;
  if (n->region == REGION_END || n->phase != PHASE_FORWARD) return 1;
  for (int k = 0; k < n->ninput; k++) { // the loss gives its gradients with it; it is their first output
    const Tensor *t = n->input[k] < 0 ? NULL : graph_tensor(g, n->input[k]);
    if (t && t->variable >= 0 && t->variable == g->known[KNOWN_GRADIENT_SEED]) return first->output > 0;
  }
  return graph_tensor(g, n->output[first->output])->role == ROLE_WEIGHT_GRADIENT;
}

void finite_describe(const Graph *g, const Mesh *mesh, const NonFinite *first, char *text, size_t size) {
  const Node *n = &g->node.data[first->node];
  char layer[32], where[64] = "";
  if (n->region != REGION_MICRO)
    snprintf(layer, sizeof layer, "%s",
             n->region == REGION_BEGIN ? "before the first microbatch" : "after the last microbatch");
  else if (n->layer < 0) snprintf(layer, sizeof layer, "embedding");
  else if (n->layer >= g->layers) snprintf(layer, sizeof layer, "head");
  else snprintf(layer, sizeof layer, "layer %d", n->layer);
  if (n->region == REGION_MICRO)
    snprintf(where, sizeof where, ", %s of microbatch %d", phase_name(n->phase), first->microbatch);
  int at = snprintf(text, size, "%s, %s %.100s%s, rank %d", layer, op_name(n->op), n->name, where, first->rank);
  for (int a = 0; a < mesh->naxis && mesh->ranks > 1 && at >= 0 && (size_t)at < size; a++)
    at += snprintf(text + at, size - (size_t)at, "%s%s %d%s", a ? ", " : " (", mesh->axis[a].name,
                   mesh_coordinate(mesh, first->rank, a), a + 1 < mesh->naxis ? "" : ")");
  if (at < 0 || (size_t)at >= size) return;
  at += snprintf(text + at, size - (size_t)at, ": %s",
                 isnan(first->value) ? "not a number"
                 : first->value > 0  ? "infinite"
                                     : "minus infinite");
  if (first->variable >= 0 && at >= 0 && (size_t)at < size)
    snprintf(text + at, size - (size_t)at, ", as %.100s is already", g->variable.data[first->variable].name);
}
