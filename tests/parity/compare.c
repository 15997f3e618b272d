// Compares two runs tensor by tensor.
//
// A tensor's difference is divided by the tensor's own size, so that small tensors count as much as large ones:
//
//   RMS       root mean square of the difference / size
//   element   difference / (6 size + largest element), the largest of all: 6 standard deviations for the worst of a
//             leg, which compares some 3·10⁸ elements (one of 5·10⁸ lies farther out), and what is large is off by as
//             much more (the row of a frequent token). An element of a gradient that is larger in another step counts
//             as that large: its terms are of about that size in every step, also where they cancel
//
// where size is the root mean square of the reference's tensor. That of a parameter is its change's, final − initial,
// and a half of the relative difference of second moments counts, since these are squares.
//
// Some tensors are small because larger things cancel in them, and their rounding is that of the larger things. Scores'
// gradients are P ∘ (dO·V − D) with D = dO·O, the mean of dO·V over what a query sees: where a query's values are
// alike, little is left. The rounding of D moves dq by dO·O k̄ / √d and dk in the same way, which is rms(O) rms(k̄)
// times dO; and dO, averaged by P, is what the gradient of v is made of. In the models of these tests a query or key is
// a normed row (norm weights and biases of 0.5: 0.7) times a matrix of 0.2 √24 ≈ 1, thus about 0.7 as well, and O and
// k̄ are means over the two or three positions that a query sees: rms(O) rms(k̄) ≈ 0.7² / 2.5 = 0.2. So gradients,
// moments and changes of queries and keys are at least 0.2 of those of the values in size. The bias of keys moves all
// scores of a query alike, which softmax does not see: its gradient is nothing but rounding, of this size. Where
// queries and keys are normalised by head, an element of the norm's gain sums what one element of a query or key has,
// whose other factor is 1 instead of the 0.7 of a normed row, over the tokens and also over two heads or more: √2 times
// as much.
//
// The switch of a shared expert is moved, by a token, by the sum over all elements of the expert's last matrix of the
// element times its gradient, times 1 − σ of the switch: 20 · 28 terms of random sign and of 0.2 of that gradient,
// 0.2 · √560 · 0.5 ≈ 2.4, times a normed row of 0.7: 1.6 times that gradient in size. The logit of an expert is moved
//   in the same way by what its last matrix's gradient is made of, less what the others that were chosen move: of two,
//   1 − p of the difference, which has √2 times the rounding.
#include "compare.h"
#include <float.h>
#include <math.h>
#include <string.h>

const char *const parity_measure_names[MEASURES] = {"loss",       "norm",          "gradient", "of an element",
                                                    "change",     "of an element", "moment",   "of an element",
                                                    "evaluation", "routing"};
#define FAR_OUT 6 // standard deviations
#define CANCELS 0.2
#define CANCELS_BY_HEAD (CANCELS * 1.4142135623730951)
#define CANCELS_IN_SWITCH 1.6
#define CANCELS_IN_ROUTER (CANCELS_IN_SWITCH * 1.4142135623730951)

// Tensors -----------------------------------------------------------------------------------------------------------

static double relative(double a, double b) {
  double d = fabs(a - b) / fmax(fabs(b), 1e-300);
  return isnan(d) ? INFINITY : d;
}

static int same_tensors(const ParityResult *a, const ParityResult *b, ParityDump d) {
  if (a->tensors[d] != b->tensors[d] || !b->tensors[d]) return 0;
  for (int i = 0; i < b->tensors[d]; i++)
    if (strcmp(a->tensor[d][i].name, b->tensor[d][i].name) || a->tensor[d][i].elements != b->tensor[d][i].elements)
      return 0;
  return 1;
}

static const NamedTensor *find(const ParityResult *r, ParityDump d, const char *name) {
  for (int i = 0; i < r->tensors[d]; i++)
    if (!strcmp(r->tensor[d][i].name, name)) return &r->tensor[d][i];
  return NULL;
}

static double rms(const double *x, const double *less, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (x[i] - (less ? less[i] : 0)) * (x[i] - (less ? less[i] : 0));
  return n ? sqrt(sum / (double)n) : 0;
}

// A tensor of a dump: what it is, what it began as, and what its difference counts for.
typedef struct Subject {
  const NamedTensor *tensor;
  const double *initial; // of a parameter at the end, else NULL
  ParityMeasure measure;
  int square, is_version;
} Subject;

static Subject subject_of(const ParityResult *r, ParityDump d, const NamedTensor *t) {
  if (d != DUMP_FINAL) return (Subject){t, NULL, MEASURE_GRADIENT, 0};
  if (!strncmp(t->name, "moment", 6)) return (Subject){t, NULL, MEASURE_MOMENT, t->name[6] == '2'};
  if (!strncmp(t->name, "router_bias", 11)) return (Subject){t, NULL, MEASURE_MOMENT, 0};
  int version = 0; // "version1.NAME", with delayed gradients: it began as the parameter did
  sscanf(t->name, "version%*d.%n", &version);
  const NamedTensor *initial = find(r, DUMP_INITIAL, t->name + version);
  CHECK(initial && initial->elements == t->elements, "no initial %s", t->name);
  return (Subject){t, initial->data, MEASURE_CHANGE, .is_version = version > 0};
}

static double own_size(const Subject *s) { return rms(s->tensor->data, s->initial, s->tensor->elements); }

// The tensor beside one in which larger things cancel: that of values beside one of queries or keys, that of the last
// matrix beside a switch; or NULL. And how large the latter is at least, beside it.
static const NamedTensor *larger_beside(const ParityResult *r, ParityDump d, const char *name, double *share) {
  char other[128];
  const char *at = strstr(name, "shared.switch.weight");
  if (at) {
    snprintf(other, sizeof other, "%.*sshared.down.weight", (int)(at - name), name);
    *share = CANCELS_IN_SWITCH;
    return find(r, d, other);
  }
  at = strstr(name, "experts.router.weight");
  if (at) {
    snprintf(other, sizeof other, "%.*sexperts.down.weight", (int)(at - name), name);
    *share = CANCELS_IN_ROUTER;
    return find(r, d, other);
  }
  at = strstr(name, "attention.");
  if (!at || (at[10] != 'q' && at[10] != 'k') || at[11] != '.') return NULL;
  int by_head = !strcmp(at + 12, "norm.weight");
  snprintf(other, sizeof other, "%.*sv.%s", (int)(at + 10 - name), name, by_head ? "weight" : at + 12);
  *share = by_head ? CANCELS_BY_HEAD : CANCELS;
  return find(r, d, other);
}

static double size_of(const ParityResult *r, ParityDump d, const Subject *s, const ParityTolerance *t) {
  double size = own_size(s), share;
  const NamedTensor *larger = larger_beside(r, d, s->tensor->name, &share);
  if (larger) {
    Subject v = subject_of(r, d, larger);
    size = fmax(size, (s->square ? share * share : share) * own_size(&v));
  }
  if (s->measure != MEASURE_CHANGE) return size;
  double parameter = rms(s->initial, NULL, s->tensor->elements);
  if (t->magnifies && strstr(s->tensor->name, "attention.k.bias")) return parameter; // whole steps of rounding
  // Each step rounds what is stored, and steps of about one size round it the same way. A version is rounded once more.
  return size + (r->steps * t->storage + (s->is_version ? t->version : 0)) * parameter / t->most[MEASURE_CHANGE];
}

static void keep(ParityDifference *d, ParityMeasure m, double value, const char *tensor) {
  if (isnan(value)) value = INFINITY;
  if (value <= d->worst[m]) return;
  d->worst[m] = value;
  snprintf(d->tensor[m], sizeof d->tensor[m], "%s", tensor);
}

// The gradient of a tensor in other steps than that of dump d, as many as there are.
static int in_other_steps(const ParityResult *r, ParityDump d, const NamedTensor *t, const double **gradient) {
  int count = 0;
  for (int step = DUMP_GRADIENT; d != DUMP_FINAL && step < DUMP_FINAL; step++) {
    const NamedTensor *other = step == (int)d ? NULL : find(r, (ParityDump)step, t->name);
    if (other && other->elements == t->elements) gradient[count++] = other->data;
  }
  return count;
}

static double share_of(double difference, double size) { return difference == 0 ? 0 : difference / size; }

static void compare_tensor(const ParityResult *one, ParityDump d, const NamedTensor *x, const NamedTensor *y,
                           const ParityTolerance *t, ParityDifference *out) {
  if (y->elements == 1) { // a counter
    if (!(x->data[0] == y->data[0])) keep(out, MEASURE_CHANGE, INFINITY, y->name);
    return;
  }
  Subject s = subject_of(one, d, y);
  double size = size_of(one, d, &s, t), worst = 0, largest = 0, count = s.square ? 0.5 : 1;
  for (int64_t i = 0; i < y->elements; i++)
    largest = fmax(largest, fabs(y->data[i] - (s.initial ? s.initial[i] : 0)));
  const double *other[PARITY_GRADIENTS];
  int others = in_other_steps(one, d, y, other);
  for (int64_t i = 0; i < y->elements; i++) {
    double most = largest;
    for (int step = 0; step < others; step++) most = fmax(most, fabs(other[step][i]));
    double share = share_of(fabs(x->data[i] - y->data[i]), FAR_OUT * size + most);
    if (!(share <= worst) && !isnan(worst)) worst = share; // a NaN stays
  }
  keep(out, s.measure, count * share_of(rms(x->data, y->data, y->elements), size), y->name);
  keep(out, s.measure + 1, count * worst, y->name);
}

static void compare_dump(const ParityResult *a, const ParityResult *b, ParityDump d, const ParityTolerance *t,
                         ParityDifference *out) {
  ParityMeasure m = d == DUMP_FINAL ? MEASURE_CHANGE : MEASURE_GRADIENT;
  if (!same_tensors(a, b, d)) keep(out, m, INFINITY, "the list of tensors");
  else
    for (int i = 0; i < b->tensors[d]; i++) compare_tensor(b, d, &a->tensor[d][i], &b->tensor[d][i], t, out);
}

// Tolerances --------------------------------------------------------------------------------------------------------

ParityTolerance parity_exactly(double most) {
  ParityTolerance t = {.storage = DBL_EPSILON / 2, .magnifies = 1};
  for (int i = 0; i < MEASURES; i++) t.most[i] = most;
  return t;
}

// Does the recipe of the case say so?
static int says(const ParityCase *c, const char *setting) {
  return (c->settings && strstr(c->settings, setting)) || (c->more_settings && strstr(c->more_settings, setting));
}

// How much a loss of the run would move, relatively, if its parameters had changed by as much in a random direction.
static double slope_of_change(const ParityResult *r) {
  double squares = 0, elements = 0, norm = 0, loss = INFINITY;
  for (int i = 0; i < r->tensors[DUMP_FINAL]; i++) {
    const NamedTensor *t = &r->tensor[DUMP_FINAL][i];
    if (t->elements == 1 || !strncmp(t->name, "moment", 6)) continue;
    Subject s = subject_of(r, DUMP_FINAL, t);
    squares += own_size(&s) * own_size(&s) * (double)t->elements;
    elements += (double)t->elements;
  }
  for (int i = 0; i < r->steps; i++) {
    if (r->skipped[i]) continue;
    norm = fmax(norm, r->norm[i]);
    loss = fmin(loss, r->loss[i]);
  }
  return elements ? norm * sqrt(squares / elements) / loss : 0;
}

// How large the changes of all parameters are beside these.
static double relative_change(const ParityResult *r) {
  double changes = 0, parameters = 0;
  for (int i = 0; i < r->tensors[DUMP_FINAL]; i++) {
    const NamedTensor *t = &r->tensor[DUMP_FINAL][i];
    const NamedTensor *initial = find(r, DUMP_INITIAL, t->name);
    if (!initial) continue;
    double change = rms(t->data, initial->data, t->elements), size = rms(initial->data, NULL, t->elements);
    changes += change * change * (double)t->elements;
    parameters += size * size * (double)t->elements;
  }
  return parameters > 0 ? sqrt(changes / parameters) : 0;
}

// Both runs round some 16 values in series in each block, by the unit roundoff u at most; the errors add up as the root
// of their number, and the runs' are at worst opposite: 2 u √(16 layers). Values of fp32 are themselves sums in fp32,
// of about 40 products, each of which rounds a partial sum: a random walk that is off by 0.3 u √40 ≈ 2 u. bf16 and fp16
// sum in fp32. Gradients in bf16 are rounded once more by each microbatch that is added and each rank that is reduced,
// at most once for every sequence.
//
// A norm adds the gradients of all sequences, whose errors are independent: √sequences less. A loss is the mean over
// the tokens that have a target, with half the roundings, those of forward, and it moves with the logits, which are
// less than a quarter of the loss in these models: √½ / (4 √tokens). It moves with the parameters as well, whose
// differences are of random direction among n: norm · |their difference| / √n. That matters where gradients are
// narrower than all else.
//
// A token's logits for experts are such values as well. Of two of them the difference is off by √2 times what one is;
// where errors are spread evenly below the bound of both runs, its standard deviation is a √3rd of that. A flip
// (routing.h) may be FAR_OUT of these away.
//
// Muon makes u/‖u‖ orthogonal by five steps, each of which has a slope of at most 3.4445: a rounding of u is amplified
// by up to 3.4445⁵ ≈ 485, where a singular value is near 0. In 16-bit types that is more than there is to lose:
// orthogonal matrices that have nothing to do with each other are √2 of their size apart. There a third of that is the
// bound, less than what the missing update of a quarter makes, so that updates that are missing, or made of something
// else, are noticed. A few elements may belong to such singular values alone: of one row, or of one expert, whose
// matrix is made orthogonal by itself. There an update may be one that has nothing to do with the other's: √2 of its
// size apart, and in the worst element of a leg FAR_OUT times that, which is divided by FAR_OUT sizes and the largest
// element, at least 3 sizes in matrices of some hundred elements. Weights that differ so much after the first step move
// what follows, by their difference relative to themselves in each of the 7 matrices of a layer.
ParityTolerance parity_tolerance(const ParityCase *c, const ParityResult *one) {
  if (c->precision == DTYPE_F64) return parity_exactly(1e-10);
  int narrow_gradients = says(c, "grad_dtype=bf16");
  int sequences = c->global ? c->global : 16, layers = c->layers ? c->layers : 4;
  double u = c->precision == DTYPE_F32 ? FLT_EPSILON / 2 : c->precision == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
  double unit = c->precision == DTYPE_F32 ? 2 * u : u, tokens = INFINITY;
  double series = 2 * unit * sqrt(16.0 * layers), forward = series * sqrt(0.5);
  if (narrow_gradients) series = 2 * sqrt(16.0 * layers * unit * unit + sequences * 0x1p-16);
  for (int i = 0; i < one->steps; i++) tokens = fmin(tokens, one->tokens[i]);
  if (!one->steps) tokens = one->eval_tokens;
  ParityTolerance t = {.storage = FLT_EPSILON / 2,
                       .version = c->precision == DTYPE_BF16 && says(c, "optimizer.master=split") ? u : 0,
                       .magnifies = !says(c, "optimizer.epsilon")};
  double change = says(c, "optimizer.name=muon") ? fmin(485 * series, sqrt(2) / 3) : series,
         moved = (change - series) * relative_change(one) * sqrt(7.0 * layers);
  for (int i = 0; i < MEASURES; i++) t.most[i] = series + moved;
  t.most[MEASURE_NORM] = (series + moved) / sqrt(sequences);
  t.most[MEASURE_ROUTING] = FAR_OUT * (series / sqrt(3) + moved);
  t.most[MEASURE_CHANGE] = change;
  t.most[MEASURE_CHANGE_ELEMENT] = change == sqrt(2) / 3 ? sqrt(2) * FAR_OUT / (FAR_OUT + 3) : change;
  double drift = change * slope_of_change(one);
  t.most[MEASURE_LOSS] = forward / (4 * sqrt(tokens)) + drift;
  t.most[MEASURE_EVAL] = forward / (4 * sqrt(one->eval_tokens)) + drift;
  return t;
}

// Runs --------------------------------------------------------------------------------------------------------------

static void compare_step(const ParityResult *a, const ParityResult *b, int i, const ParityTolerance *t,
                         ParityDifference *out) {
  if (a->skipped[i] != b->skipped[i]) keep(out, MEASURE_LOSS, INFINITY, "");
  if (b->skipped[i]) return;
  keep(out, MEASURE_LOSS, a->tokens[i] == b->tokens[i] ? relative(a->loss[i], b->loss[i]) : INFINITY, "");
  keep(out, MEASURE_NORM, relative(a->norm[i], b->norm[i]), "");
  for (int k = 0; k < 2 && (a->router_loss[i][k] != 0 || b->router_loss[i][k] != 0); k++)
    keep(out, MEASURE_ROUTING, relative(a->router_loss[i][k], b->router_loss[i][k]), k ? "z loss" : "balance loss");
  if (a->router_load[i] != b->router_load[i]) keep(out, MEASURE_ROUTING, INFINITY, "choices of experts");
  if (i < PARITY_GRADIENTS) compare_dump(a, b, (ParityDump)(DUMP_GRADIENT + i), t, out);
}

ParityDifference parity_compare_step(const ParityResult *a, const ParityResult *b, int i, const ParityTolerance *t) {
  ParityDifference d = {.worst = {0}};
  compare_step(a, b, i, t, &d);
  return d;
}

ParityDifference parity_compare(const ParityResult *a, const ParityResult *b, const ParityTolerance *t) {
  ParityDifference d = {.worst = {0}};
  for (int i = 0; i < b->steps; i++) compare_step(a, b, i, t, &d);
  compare_dump(a, b, DUMP_FINAL, t, &d);
  keep(&d, MEASURE_ROUTING, a->flips.count ? a->flips.widest.gap : 0, a->flip);
  keep(&d, MEASURE_EVAL, a->eval_tokens == b->eval_tokens ? relative(a->eval_loss, b->eval_loss) : INFINITY, "");
  return d;
}

double parity_share(const ParityDifference *d, const ParityTolerance *t) {
  double most = 0;
  for (int i = 0; i < MEASURES; i++) most = fmax(most, d->worst[i] / t->most[i]);
  return most;
}

int parity_differs(const ParityDifference *d, const ParityTolerance *t) { return !(parity_share(d, t) <= 1); }

int parity_report(const ParityCase *c, const ParityDifference *d, const ParityTolerance *t, int always) {
  int differs = parity_differs(d, t), nearest = 0;
  if (!differs && !always) return 0;
  printf("%-12s %-5s %-24s", c->model, dtype_name(c->precision), c->name);
  for (int i = 0; i < MEASURES; i++) {
    printf("  %s %.1e", parity_measure_names[i], d->worst[i]);
    if (d->worst[i] / t->most[i] > d->worst[nearest] / t->most[nearest]) nearest = i;
  }
  printf("; %.2g of the bound%s%s%s\n", d->worst[nearest] / t->most[nearest], d->tensor[nearest][0] ? " in " : "",
         d->tensor[nearest], differs ? "  WRONG" : "");
  fflush(stdout);
  return differs;
}

double parity_norm(const ParityResult *r, int step) {
  double sum = 0;
  for (int i = 0; i < r->tensors[DUMP_GRADIENT + step]; i++) {
    const NamedTensor *t = &r->tensor[DUMP_GRADIENT + step][i];
    for (int64_t k = 0; k < t->elements; k++) sum += t->data[k] * t->data[k];
  }
  return sqrt(sum);
}

const char *parity_first_different(const ParityResult *a, const ParityResult *b, ParityDump d) {
  if (!same_tensors(a, b, d)) return "the list of tensors";
  for (int i = 0; i < b->tensors[d]; i++)
    if (memcmp(a->tensor[d][i].data, b->tensor[d][i].data, (size_t)b->tensor[d][i].elements * sizeof(double)))
      return b->tensor[d][i].name;
  return NULL;
}

int parity_same_bits(const ParityResult *a, const ParityResult *b) {
  size_t size = (size_t)b->steps * sizeof(double);
  int same = a->steps == b->steps && !memcmp(a->loss, b->loss, size) && !memcmp(a->norm, b->norm, size) &&
             a->eval_loss == b->eval_loss;
  for (int d = 0; d < DUMP_COUNT; d++) {
    int step = d - DUMP_GRADIENT; // of a gradient
    if (d >= DUMP_GRADIENT && d < DUMP_FINAL && step >= b->steps) continue;
    same = same && !parity_first_different(a, b, (ParityDump)d);
  }
  return same;
}
