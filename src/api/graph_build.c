// Half by hand: building a graph, with the first error kept. See plait/graph.h. graph_ops.c, graph_einsum.c and
// graph_loss.c have the ops.
#include "api/graph_build.h"
#include "op/build.h"
#include <ctype.h>
#include <math.h>
#include <string.h>

int api_graph_wrong(PlaitGraph *h, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  error_set(&h->error, PLAIT_BAD_INPUT, "%s", text);
  return -1;
}
#define wrong api_graph_wrong

PlaitGraph *plait_graph_create(int64_t samples, PlaitDtype dtype) {
  PlaitGraph *h = xcalloc(1, sizeof *h);
  h->g = graph_create();
  h->g->layer = 0;
  h->g->layers = 1;
  h->loss = (ApiGraphLoss){.tensor = -1, .labels = -1};
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
  vec_free(&h->output);
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
int api_graph_take_name(PlaitGraph *h, const char *name) {
  size_t n = name ? strlen(name) : 0;
  if (h->error.code) return 0;
  int fits = n > 0 && n < API_GRAPH_NAME;
  for (size_t i = 0; i < n && fits; i++) fits = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
  if (!fits) {
    wrong(h, "the name \"%.80s\"; allowed: 1 to %d letters, digits, _ and -", name ? name : "", API_GRAPH_NAME - 1);
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

const char *api_graph_shape_text(const Shape *s, char *text, size_t size) {
  size_t at = (size_t)snprintf(text, size, "(");
  for (int d = 0; d < s->rank && at < size; d++)
    at += (size_t)snprintf(text + at, size - at, "%s%lld", d ? ", " : "", (long long)s->size[d]);
  if (at < size) snprintf(text + at, size - at, ")");
  return text;
}

// A tensor that an op of the current layer may read; -1 is wrong too, when nothing else was.
int api_graph_readable(PlaitGraph *h, const char *reader, PlaitTensor x, int integers) {
  if (h->error.code) return 0;
  if (x < 0 || x >= h->g->tensor.count) {
    wrong(h, "%s reads tensor %d, which does not exist", reader, x);
    return 0;
  }
  const Tensor *t = graph_tensor(h->g, x);
  const char *name = user_name(t->name);
  int layer = t->producer >= 0 ? h->g->node.data[t->producer].layer : 0; // data and parameters are everywhere
  if (layer > h->g->layer)
    wrong(h, "%s of layer %d reads %s of layer %d, which comes later", reader, h->g->layer, name, layer);
  else if (dtype_is_float(t->dtype) == integers)
    wrong(h, integers ? "%s reads %s as integers, which it is not; allowed: what plait_graph_integers gave"
                      : "%s reads %s, which is of integers; allowed: floating-point numbers",
          reader, name);
  return !h->error.code;
}

int api_graph_same_shape(PlaitGraph *h, const char *reader, PlaitTensor a, PlaitTensor b) {
  if (!api_graph_readable(h, reader, a, 0) || !api_graph_readable(h, reader, b, 0)) return 0;
  char first[128], second[128];
  const Shape *x = &graph_tensor(h->g, a)->shape, *y = &graph_tensor(h->g, b)->shape;
  if (op_same_sizes(h->g, a, b) && x->dim[0] == y->dim[0]) return 1;
  wrong(h, "%s takes tensors of one shape, not %s%s and %s%s", reader, api_graph_shape_text(x, first, sizeof first),
        api_graph_samples(h, a) ? "" : " without samples", api_graph_shape_text(y, second, sizeof second),
        api_graph_samples(h, b) ? "" : " without samples");
  return 0;
}

int api_graph_parameter(PlaitGraph *h, const char *reader, const char *what, PlaitTensor p, int rank,
                      const int64_t *size) {
  if (!api_graph_readable(h, reader, p, 0)) return 0;
  const Tensor *t = graph_tensor(h->g, p);
  char allowed[160] = "a parameter", text[128];
  int fits = rank < 0 || t->shape.rank == rank, any = 0;
  Shape s = {.rank = rank < 0 ? 0 : rank};
  for (int d = 0; d < s.rank; d++) {
    any |= !size[d];
    fits = fits && (!size[d] || t->shape.size[d] == size[d]);
    s.size[d] = size[d];
  }
  if (any) snprintf(allowed, sizeof allowed, "a parameter of %d dims", rank);
  else if (rank >= 0) snprintf(allowed, sizeof allowed, "a parameter %s", api_graph_shape_text(&s, text, sizeof text));
  if (t->variable < 0)
    wrong(h, "%s of %s is %s and no parameter; allowed: %s", what, reader,
          t->producer >= 0 ? "the result of an op" : "an input", allowed);
  else if (!fits)
    wrong(h, "%s of %s is %s; allowed: %s", what, reader, api_graph_shape_text(&t->shape, text, sizeof text), allowed);
  return !h->error.code;
}

int api_graph_samples(const PlaitGraph *h, PlaitTensor x) {
  const Shape *s = &graph_tensor(h->g, x)->shape;
  return s->rank > 0 && s->dim[0] == DIM_BATCH;
}

ApiGraphInput *api_graph_input(PlaitGraph *h, PlaitTensor x) {
  int i = graph_tensor(h->g, x)->input;
  return i < 0 ? NULL : &h->input[input_own(&h->g->input.data[i])];
}

// The tensor as ops compute with it: data of a bf16 graph are fp32 until here.
int api_graph_operand(PlaitGraph *h, const char *reader, PlaitTensor x) {
  ApiGraphInput *in = api_graph_input(h, x);
  if (!in) return x;
  in->needed_forward = 1;
  return op_cast(h->g, arena_format(&h->g->arena, "%s.cast%d", reader, x), x, h->dtype);
}

// Inputs and parameters --------------------------------------------------------------------------------------------

static PlaitTensor add_input(PlaitGraph *h, const char *name, int rank, const int64_t *size, Dtype dtype) {
  if (!api_graph_take_name(h, name)) return -1;
  Shape s = shape_from(h, name, rank, size, 1);
  if (h->error.code) return -1;
  if (h->inputs == API_GRAPH_INPUTS) return wrong(h, "more than %d inputs", API_GRAPH_INPUTS);
  h->input[h->inputs++] = (ApiGraphInput){.user = h->user_inputs++};
  return graph_input(h->g, name, dtype, s);
}

PlaitTensor plait_graph_input(PlaitGraph *h, const char *name, int rank, const int64_t *size) {
  return add_input(h, name, rank, size, api_graph_storage(h->dtype));
}

PlaitTensor plait_graph_integers(PlaitGraph *h, const char *name, int rank, const int64_t *size) {
  return add_input(h, name, rank, size, DTYPE_I32);
}

int api_graph_constant(PlaitGraph *h, int which, int64_t s) {
  for (int i = 0; i < h->g->input.count; i++) {
    const GraphInput *in = &h->g->input.data[i];
    if (input_own(in) >= 0 && h->input[input_own(in)].user == which &&
        graph_tensor(h->g, in->tensor)->shape.size[1] == s)
      return in->tensor;
  }
  if (h->inputs == API_GRAPH_INPUTS) return wrong(h, "more than %d inputs", API_GRAPH_INPUTS);
  const char *name = arena_format(&h->g->arena, "constant.%d", h->inputs); // no user's name: these have no dot
  h->input[h->inputs++] = (ApiGraphInput){.user = which};
  return graph_input(h->g, name, DTYPE_I32,
                     shape_of(2, (int64_t[]){h->samples, s}, (DimName[]){DIM_BATCH, DIM_NONE}));
}

static PlaitTensor add_parameter(PlaitGraph *h, const char *name, int rank, const int64_t *size, Init init) {
  if (!api_graph_take_name(h, name)) return -1;
  Shape s = shape_from(h, name, rank, size, 0);
  if (h->error.code) return -1;
  if (init.kind == INIT_NORMAL && !(init.value >= 0 && init.value < 1e30))
    return wrong(h, "the standard deviation of %s is %g; allowed: 0 and more", name, init.value);
  if (!isfinite(init.value)) return wrong(h, "the value of %s is not finite", name);
  if (init.value == 0) init.kind = INIT_ZERO;
  int v = graph_variable(h->g, arena_format(&h->g->arena, USER_PARAMETER "%s", name), VARIABLE_PARAMETER,
                         api_graph_storage(h->dtype), s, init);
  h->g->variable.data[v].weight_decay = h->g->variable.data[v].narrow_copy = s.rank >= 2;
  return graph_read(h->g, v);
}

PlaitTensor plait_graph_parameter(PlaitGraph *h, const char *name, int rank, const int64_t *size, double deviation) {
  return add_parameter(h, name, rank, size, (Init){INIT_NORMAL, deviation});
}

PlaitTensor plait_graph_parameter_filled(PlaitGraph *h, const char *name, int rank, const int64_t *size,
                                         double value) {
  return add_parameter(h, name, rank, size, (Init){INIT_CONSTANT, value});
}

void plait_graph_output(PlaitGraph *h, const char *name, PlaitTensor tensor) {
  int layer = h->g->layer;
  h->g->layer = h->g->layers - 1; // any may be read
  if (api_graph_take_name(h, name) && api_graph_readable(h, name, tensor, 0) && !api_graph_samples(h, tensor))
    wrong(h, "the output %s has no samples; allowed: what is computed from an input", name);
  h->g->layer = layer;
  if (h->error.code) return;
  ApiGraphInput *in = api_graph_input(h, tensor);
  if (in) in->needed_forward = 1;
  ApiGraphOutput o = {.name = h->name.data[h->name.count - 1], .tensor = tensor};
  o.copy = arena_format(&h->g->arena, "%s.copy", name);
  vec_push(&h->output, o);
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
  const char *name = user_name(t->name);
  size_t length = axis ? strlen(axis) : 0, small = axis ? strspn(axis, "abcdefghijklmnopqrstuvwxyz_") : 0;
  if (!length || small != length || length >= API_GRAPH_NAME || axis_by_name(axis) == AXIS_PP)
    wrong(h, "%s is cut over the axis \"%.80s\"; allowed: small letters, and not pp", name, axis ? axis : "");
  if (dim < 0 || dim >= t->shape.rank) wrong(h, "dim %d of %s; allowed: 0 to %d", dim, name, t->shape.rank - 1);
  if (n == API_GRAPH_ANNOTATIONS) wrong(h, "%s is cut more than %d times", name, API_GRAPH_ANNOTATIONS);
  for (int i = 0; i < h->annotation.count && !h->error.code; i++) {
    const ApiGraphAnnotation *a = &h->annotation.data[i];
    if (a->tensor != tensor) continue;
    if (a->dim < 0) wrong(h, "%s is cut, and was to be whole", name);
    else if (!strcmp(a->axis, axis)) wrong(h, "%s is cut over %s twice", name, axis);
  }
  if (h->error.code) return;
  ApiGraphAnnotation a = {.tensor = tensor, .dim = dim};
  memcpy(a.axis, axis, length + 1);
  vec_push(&h->annotation, a);
}

void plait_graph_replicate(PlaitGraph *h, PlaitTensor tensor) {
  int n = annotations_of(h, tensor);
  if (n > 0)
    wrong(h, "%s is to be whole, and has a placement already", user_name(graph_tensor(h->g, tensor)->name));
  if (n == 0) vec_push(&h->annotation, (ApiGraphAnnotation){.tensor = tensor, .dim = -1});
}
