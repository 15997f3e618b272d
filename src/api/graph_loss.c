// Half by hand: the losses of plait/graph.h, and what each is divided by.
#include "api/graph_build.h"
#include "op/build.h"

#define wrong api_graph_wrong

static int seed(PlaitGraph *h) { return graph_read(h->g, graph_known(h->g, KNOWN_GRADIENT_SEED)); }

// The loss is the only one, and belongs to the last layer.
static void begin(PlaitGraph *h) {
  if (h->loss.tensor >= 0) wrong(h, "a second loss; a graph has one");
  h->g->layer = h->g->layers - 1;
}

void plait_graph_squared_error(PlaitGraph *h, PlaitTensor y, PlaitTensor target) {
  begin(h);
  if (!api_graph_same_shape(h, "the squared error", y, target)) return;
  if (!api_graph_samples(h, y)) {
    wrong(h, "the squared error of a tensor without samples");
    return;
  }
  h->loss.elements = (double)shape_elements(&graph_tensor(h->g, y)->shape);
  h->loss.tensor = op_squared_error(h->g, "loss", y, target, seed(h));
}

// Labels (samples, …) of rows whose shape this is. All losses with labels divide by those that are not negative.
static int take_labels(PlaitGraph *h, const char *what, PlaitTensor labels, const Shape *rows, int64_t classes) {
  char have[128], allowed[128];
  const Shape *s = &graph_tensor(h->g, labels)->shape;
  int fits = s->rank == rows->rank;
  for (int d = 0; fits && d < s->rank; d++) fits = s->size[d] == rows->size[d];
  if (!fits) {
    wrong(h, "labels of the %s are %s; allowed: %s", what, api_graph_shape_text(s, have, sizeof have),
          api_graph_shape_text(rows, allowed, sizeof allowed));
    return 0;
  }
  ApiGraphInput *in = api_graph_input(h, labels);
  if (!in->limit || classes < in->limit) in->limit = classes;
  h->loss.labels = input_own(&h->g->input.data[graph_tensor(h->g, labels)->input]);
  return 1;
}

void plait_graph_cross_entropy(PlaitGraph *h, PlaitTensor logits, PlaitTensor target) {
  static const char what[] = "cross entropy";
  begin(h);
  if (!api_graph_readable(h, what, logits, 0)) return;
  Shape s = graph_tensor(h->g, logits)->shape, rows = s;
  char text[128];
  rows.rank--;
  if (!api_graph_samples(h, logits) || s.rank < 2) {
    wrong(h, "logits of the %s are %s; allowed: (samples, …, classes)", what,
          api_graph_shape_text(&s, text, sizeof text));
    return;
  }
  int exists = target >= 0 && target < h->g->tensor.count;
  int integers = exists && !dtype_is_float(graph_tensor(h->g, target)->dtype);
  if (!api_graph_readable(h, what, target, integers)) return;
  if (!api_graph_input(h, target)) {
    wrong(h, "the target of the %s is not an input; allowed: what plait_graph_integers or plait_graph_input gave",
          what);
    return;
  }
  if (integers ? !take_labels(h, what, target, &rows, s.size[s.rank - 1])
               : !api_graph_same_shape(h, what, logits, target))
    return;
  h->loss.elements = (double)shape_elements(&rows);
  h->loss.tensor = op_cross_entropy(h->g, "loss", api_graph_operand(h, what, logits), target, seed(h));
}

void plait_graph_linear_cross_entropy(PlaitGraph *h, PlaitTensor x, PlaitTensor w, PlaitTensor labels) {
  static const char what[] = "linear cross entropy";
  begin(h);
  if (!api_graph_readable(h, what, x, 0) || !api_graph_readable(h, what, labels, 1)) return;
  Shape s = graph_tensor(h->g, x)->shape, rows = s;
  char text[128];
  if (!api_graph_samples(h, x) || s.rank != 3) {
    wrong(h, "x of the %s is %s; allowed: (samples, s, e); of others take plait_graph_linear and "
             "plait_graph_cross_entropy", what, api_graph_shape_text(&s, text, sizeof text));
    return;
  }
  rows.rank--;
  if (!api_graph_parameter(h, what, "w", w, 2, (int64_t[]){0, 0})) return;
  const Shape table = graph_tensor(h->g, w)->shape;
  if (table.size[1] != s.size[2]) {
    wrong(h, "w of the %s is %s; allowed: (classes, %lld)", what, api_graph_shape_text(&table, text, sizeof text),
          (long long)s.size[2]);
    return;
  }
  if (!take_labels(h, what, labels, &rows, table.size[0])) return;
  h->loss.tensor =
      op_linear_cross_entropy(h->g, "loss", api_graph_operand(h, what, x), w, labels, seed(h), 1);
}
