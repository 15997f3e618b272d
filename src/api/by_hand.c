// Half by hand: building a graph, with the first error kept. See plait/graph.h.
#include "api/by_hand.h"
#include "op/build.h"
#include <ctype.h>
#include <math.h>
#include <string.h>

static PlaitTensor wrong(PlaitGraph *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
static PlaitTensor wrong(PlaitGraph *h, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  error_set(&h->error, PLAIT_BAD_INPUT, "%s", text);
  return -1;
}

PlaitGraph *plait_graph_create(int64_t samples, PlaitDtype dtype) {
  PlaitGraph *h = xcalloc(1, sizeof *h);
  h->g = graph_create();
  h->g->layer = 0;
  h->g->layers = 1;
  h->loss = -1;
  h->samples = samples;
  h->dtype = (Dtype)dtype;
  if (samples < 1 || samples > 1 << 30)
    wrong(h, "samples of a step: %lld; allowed: 1 to %d", (long long)samples, 1 << 30);
  if (dtype != PLAIT_FP32 && dtype != PLAIT_FP64 && dtype != PLAIT_BF16)
    wrong(h, "dtype %d of a graph; allowed: PLAIT_FP32, PLAIT_FP64 and PLAIT_BF16", (int)dtype);
  return h;
}

void plait_graph_destroy(PlaitGraph *h) {
  if (!h) return;
  graph_destroy(h->g);
  for (int i = 0; i < h->name.count; i++) free(h->name.data[i]);
  vec_free(&h->name);
  vec_free(&h->annotation);
  free(h);
}

const char *plait_graph_error(const PlaitGraph *h) { return h->error.code ? h->error.message : NULL; }

void plait_graph_layer(PlaitGraph *h, int layer) {
  if (layer < 0 || layer >= 1 << 20) {
    wrong(h, "layer %d; allowed: 0 to %d", layer, (1 << 20) - 1);
    return;
  }
  h->g->layer = layer;
  if (h->g->layers <= layer) h->g->layers = layer + 1;
}

// Checks -------------------------------------------------------------------------------------------------------------

// Takes a name: 1 when it may be used and nothing was wrong so far.
static int take_name(PlaitGraph *h, const char *name) {
  size_t n = name ? strlen(name) : 0;
  if (h->error.code) return 0;
  int fits = n > 0 && n < BY_HAND_NAME;
  for (size_t i = 0; i < n && fits; i++) fits = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
  if (!fits) {
    wrong(h, "the name \"%.80s\"; allowed: 1 to %d letters, digits, _ and -", name ? name : "", BY_HAND_NAME - 1);
    return 0;
  }
  for (int i = 0; i < h->name.count; i++)
    if (!strcmp(h->name.data[i], name)) {
      wrong(h, "the name \"%s\" is used twice", name);
      return 0;
    }
  vec_push(&h->name, xstrdup(name));
  return 1;
}

static Shape shape_from(PlaitGraph *h, const char *name, int rank, const int64_t *size, int batch) {
  Shape s = {0};
  int64_t elements = 1;
  int least = batch ? 0 : 1;
  if (rank < least || rank > MAX_RANK - 2 + least) {
    wrong(h, "%s has %d dims; allowed: %d to %d", name, rank, least, MAX_RANK - 2 + least);
    return s;
  }
  if (batch) s = shape_of(1, &h->samples, (DimName[]){DIM_BATCH});
  for (int i = 0; i < rank; i++, s.rank++) {
    if (size[i] < 1 || size[i] > ((int64_t)1 << 40) / elements) {
      wrong(h, "dim %d of %s is %lld; allowed: at least 1, and at most 2^40 elements in all", i, name,
            (long long)size[i]);
      return (Shape){0};
    }
    elements *= size[i];
    s.size[s.rank] = size[i];
    s.dim[s.rank] = DIM_NONE;
  }
  return s;
}

static const char *shape_text(const Shape *s, char *text, size_t size) {
  size_t at = (size_t)snprintf(text, size, "(");
  for (int d = 0; d < s->rank && at < size; d++)
    at += (size_t)snprintf(text + at, size - at, "%s%lld", d ? ", " : "", (long long)s->size[d]);
  if (at < size) snprintf(text + at, size - at, ")");
  return text;
}

// A tensor that an op of the current layer may read; -1 is wrong too, when nothing else was.
static int readable(PlaitGraph *h, const char *reader, PlaitTensor x) {
  if (h->error.code) return 0;
  if (x < 0 || x >= h->g->tensor.count) {
    wrong(h, "%s reads tensor %d, which does not exist", reader, x);
    return 0;
  }
  int producer = graph_tensor(h->g, x)->producer;
  int layer = producer >= 0 ? h->g->node.data[producer].layer : 0; // data and parameters are everywhere
  if (layer <= h->g->layer) return 1;
  wrong(h, "%s of layer %d reads %s of layer %d, which comes later", reader, h->g->layer, graph_tensor(h->g, x)->name,
        layer);
  return 0;
}

static int same_shape(PlaitGraph *h, const char *reader, PlaitTensor a, PlaitTensor b) {
  if (!readable(h, reader, a) || !readable(h, reader, b)) return 0;
  char first[128], second[128];
  const Shape *x = &graph_tensor(h->g, a)->shape, *y = &graph_tensor(h->g, b)->shape;
  if (op_same_sizes(h->g, a, b) && x->dim[0] == y->dim[0]) return 1;
  wrong(h, "%s takes tensors of one shape, not %s%s and %s%s", reader, shape_text(x, first, sizeof first),
        x->dim[0] == DIM_BATCH ? "" : " without samples", shape_text(y, second, sizeof second),
        y->dim[0] == DIM_BATCH ? "" : " without samples");
  return 0;
}

// The tensor as ops compute with it: data of a bf16 graph are fp32 until here.
static int operand(PlaitGraph *h, const char *reader, PlaitTensor x) {
  if (graph_tensor(h->g, x)->input < 0) return x;
  return op_cast(h->g, arena_format(&h->g->arena, "%s.cast%d", reader, x), x, h->dtype);
}

// Building -----------------------------------------------------------------------------------------------------------

PlaitTensor plait_graph_input(PlaitGraph *h, const char *name, int rank, const int64_t *size) {
  if (!take_name(h, name)) return -1;
  Shape s = shape_from(h, name, rank, size, 1);
  if (h->error.code) return -1;
  if (h->inputs == BY_HAND_INPUTS) return wrong(h, "more than %d inputs", BY_HAND_INPUTS);
  h->inputs++;
  return graph_input(h->g, name, by_hand_storage(h->dtype), s);
}

PlaitTensor plait_graph_parameter(PlaitGraph *h, const char *name, int rank, const int64_t *size, double deviation) {
  if (!take_name(h, name)) return -1;
  Shape s = shape_from(h, name, rank, size, 0);
  if (h->error.code) return -1;
  if (!(deviation >= 0 && deviation < 1e30))
    return wrong(h, "the standard deviation of %s is %g; allowed: 0 and more", name, deviation);
  Init init = {deviation > 0 ? INIT_NORMAL : INIT_ZERO, deviation};
  int v = graph_variable(h->g, arena_format(&h->g->arena, BY_HAND_PARAMETER "%s", name), VARIABLE_PARAMETER,
                         by_hand_storage(h->dtype), s, init);
  h->g->variable.data[v].weight_decay = h->g->variable.data[v].narrow_copy = s.rank >= 2;
  return graph_read(h->g, v);
}

static const char *no_parameter(const Tensor *t) {
  return t->producer >= 0 ? "the result of an op and no parameter" : "an input and no parameter";
}

PlaitTensor plait_graph_linear(PlaitGraph *h, const char *name, PlaitTensor x, PlaitTensor w, PlaitTensor bias) {
  if (!take_name(h, name) || !readable(h, name, x) || !readable(h, name, w)) return -1;
  char text[128];
  const Tensor *tx = graph_tensor(h->g, x), *tw = graph_tensor(h->g, w);
  if (tw->variable < 0) return wrong(h, "w of %s is %s; allowed: a parameter (out, in)", name, no_parameter(tw));
  if (tw->shape.rank != 2)
    return wrong(h, "w of %s is %s; allowed: a parameter (out, in)", name, shape_text(&tw->shape, text, sizeof text));
  int64_t out = tw->shape.size[0], in = tw->shape.size[1];
  if (tx->shape.dim[0] != DIM_BATCH || tx->shape.rank < 2 || tx->shape.size[tx->shape.rank - 1] != in)
    return wrong(h, "x of %s is %s; allowed with w (%lld, %lld): (samples, …, %lld)", name,
                 shape_text(&tx->shape, text, sizeof text), (long long)out, (long long)in, (long long)in);
  int y = op_matmul(h->g, name, operand(h, name, x), w, 1);
  if (bias == -1) return y;
  if (!readable(h, name, bias)) return -1;
  const Tensor *tb = graph_tensor(h->g, bias);
  if (tb->variable < 0)
    return wrong(h, "bias of %s is %s; allowed: a parameter (%lld)", name, no_parameter(tb), (long long)out);
  if (tb->shape.rank != 1 || tb->shape.size[0] != out)
    return wrong(h, "bias of %s is %s; allowed: a parameter (%lld)", name, shape_text(&tb->shape, text, sizeof text),
                 (long long)out);
  return op_bias(h->g, arena_format(&h->g->arena, "%s.bias", name), y, bias);
}

PlaitTensor plait_graph_activation(PlaitGraph *h, const char *name, PlaitTensor x, PlaitActivation kind) {
  if (!take_name(h, name) || !readable(h, name, x)) return -1;
  if ((int)kind < 0 || kind >= PLAIT_ACTIVATION_COUNT)
    return wrong(h, "activation %d of %s; allowed: those of PlaitActivation", (int)kind, name);
  return op_activation(h->g, name, operand(h, name, x), (ActivationKind)kind);
}

PlaitTensor plait_graph_add(PlaitGraph *h, const char *name, PlaitTensor a, PlaitTensor b) {
  if (!take_name(h, name) || !same_shape(h, name, a, b)) return -1;
  return op_add(h->g, name, (int[]){operand(h, name, a), operand(h, name, b)}, 2);
}

PlaitTensor plait_graph_multiply(PlaitGraph *h, const char *name, PlaitTensor a, PlaitTensor b) {
  if (!take_name(h, name) || !same_shape(h, name, a, b)) return -1;
  return op_mul(h->g, name, operand(h, name, a), operand(h, name, b));
}

PlaitTensor plait_graph_scale(PlaitGraph *h, const char *name, PlaitTensor x, double factor) {
  if (!take_name(h, name) || !readable(h, name, x)) return -1;
  if (!isfinite(factor)) return wrong(h, "the factor of %s is not finite", name);
  return op_scale(h->g, name, operand(h, name, x), factor);
}

void plait_graph_squared_error(PlaitGraph *h, PlaitTensor y, PlaitTensor target) {
  if (h->loss >= 0) wrong(h, "a second loss; a graph has one");
  h->g->layer = h->g->layers - 1;
  if (!same_shape(h, "the squared error", y, target)) return;
  const Shape *s = &graph_tensor(h->g, y)->shape;
  if (s->dim[0] != DIM_BATCH) {
    wrong(h, "the squared error of a tensor without samples");
    return;
  }
  h->elements = (double)shape_elements(s);
  h->loss = op_squared_error(h->g, "loss", y, target, graph_read(h->g, graph_known(h->g, KNOWN_GRADIENT_SEED)));
}

// Placements ---------------------------------------------------------------------------------------------------------

// How often a tensor was annotated, or -1 after an error.
static int annotations_of(PlaitGraph *h, PlaitTensor tensor) {
  if (h->error.code) return -1;
  if (tensor < 0 || tensor >= h->g->tensor.count)
    return wrong(h, "a placement of tensor %d, which does not exist", tensor);
  const char *name = graph_tensor(h->g, tensor)->name;
  if (graph_tensor(h->g, tensor)->input >= 0)
    return wrong(h, "a placement of the input %s; allowed: of parameters, and of what is computed", name);
  int n = 0;
  for (int i = 0; i < h->annotation.count; i++) n += h->annotation.data[i].tensor == tensor;
  return n;
}

void plait_graph_shard(PlaitGraph *h, PlaitTensor tensor, int dim, const char *axis) {
  int n = annotations_of(h, tensor);
  if (n < 0) return;
  const Tensor *t = graph_tensor(h->g, tensor);
  size_t length = axis ? strlen(axis) : 0, small = axis ? strspn(axis, "abcdefghijklmnopqrstuvwxyz_") : 0;
  if (!length || small != length || length >= BY_HAND_NAME || !strcmp(axis, "pp"))
    wrong(h, "%s is cut over the axis \"%.80s\"; allowed: small letters, and not pp", t->name, axis ? axis : "");
  if (dim < 0 || dim >= t->shape.rank) wrong(h, "dim %d of %s; allowed: 0 to %d", dim, t->name, t->shape.rank - 1);
  if (n == BY_HAND_ANNOTATIONS) wrong(h, "%s is cut more than %d times", t->name, BY_HAND_ANNOTATIONS);
  for (int i = 0; i < h->annotation.count && !h->error.code; i++) {
    const ByHandAnnotation *a = &h->annotation.data[i];
    if (a->tensor != tensor) continue;
    if (a->dim < 0) wrong(h, "%s is cut, and was to be whole", t->name);
    else if (!strcmp(a->axis, axis)) wrong(h, "%s is cut over %s twice", t->name, axis);
  }
  if (h->error.code) return;
  ByHandAnnotation a = {.tensor = tensor, .dim = dim};
  memcpy(a.axis, axis, length + 1);
  vec_push(&h->annotation, a);
}

void plait_graph_replicate(PlaitGraph *h, PlaitTensor tensor) {
  int n = annotations_of(h, tensor);
  if (n > 0) wrong(h, "%s is to be whole, and has a placement already", graph_tensor(h->g, tensor)->name);
  if (n == 0) vec_push(&h->annotation, (ByHandAnnotation){.tensor = tensor, .dim = -1});
}
