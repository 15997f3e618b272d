// Reading, recording and printing of what routers did.
#include "train/trainer.h"
#include "base/box.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_LAYERS_IN_METRICS = 100, MOST_LAYERS_IN_PRINT = 48, MOST_EXPERTS_IN_PRINT = 16 };

static void make_room(Routers *r, const Graph *g) {
  if (r->load) return;
  for (int v = 0; v < g->variable.count; v++) {
    int load = graph_find_of(g, OF_ROUTER_LOAD, v);
    if (load < 0) continue;
    r->experts = (int)g->variable.data[load].shape.size[1];
    r->load = xrealloc(r->load, sizeof *r->load * (size_t)(r->layers + 1));
    RouterLoad *l = &r->load[r->layers];
    l->layer = r->layers;
    sscanf(g->variable.data[v].name, "layer.%d.", &l->layer);
    l->chosen = xcalloc((size_t)r->experts * 2, sizeof *l->chosen);
    l->kept = l->chosen + r->experts;
    r->layers++;
  }
}

void routers_read(Routers *r, const State *state) {
  const Graph *g = state->program->graph;
  if (!state_has(state, KNOWN_BALANCE_LOSS)) return;
  make_room(r, g);
  r->balance = state_scalar(state, KNOWN_BALANCE_LOSS);
  r->z = state_scalar(state, KNOWN_Z_LOSS);
  for (int v = 0, i = 0; v < g->variable.count; v++) {
    int load = graph_find_of(g, OF_ROUTER_LOAD, v);
    if (load < 0) continue;
    Box all = {.rank = 2, .local = {2, r->experts}};
    state_read(state, load, -1, &all, r->load[i++].chosen);
  }
}

void routers_free(Routers *r) {
  for (int i = 0; i < r->layers; i++) free(r->load[i].chosen);
  free(r->load);
  *r = (Routers){0};
}

static double sum_of(const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}

double routers_peak(const Routers *r, int layer) {
  const double *chosen = r->load[layer].chosen;
  double most = 0, sum = sum_of(chosen, r->experts);
  for (int i = 0; i < r->experts; i++) most = fmax(most, chosen[i]);
  return sum > 0 ? most * r->experts / sum : NAN;
}

double routers_worst(const Routers *r) {
  double worst = NAN;
  for (int i = 0; i < r->layers; i++) worst = fmax(worst, routers_peak(r, i));
  return worst;
}

double routers_dropped(const Routers *r) {
  double chosen = 0, kept = 0;
  for (int i = 0; i < r->layers; i++) {
    chosen += sum_of(r->load[i].chosen, r->experts);
    kept += sum_of(r->load[i].kept, r->experts);
  }
  return chosen > 0 ? (chosen - kept) / chosen : NAN;
}

// "balance_loss", "z_loss", "dropped_share", "load_peak" and, of each layer, "load_peak/N".
static int write_keys(Training *x, Error *error) {
  Routers *r = &x->trainer->last.routers;
  Metrics *m = &x->trainer->metrics;
  routers_read(r, x->rank->state);
  if (!r->layers) return PLAIT_OK;
  metrics_real(m, "balance_loss", r->balance);
  metrics_real(m, "z_loss", r->z);
  metrics_real(m, "dropped_share", routers_dropped(r));
  metrics_real(m, "load_peak", routers_worst(r));
  for (int i = 0; i < r->layers && i < MOST_LAYERS_IN_METRICS; i++) {
    char key[32];
    snprintf(key, sizeof key, "load_peak/%d", r->load[i].layer);
    metrics_real(m, key, routers_peak(r, i));
  }
  return PLAIT_OK;
}

const Hook hook_routers = {.on = {[HOOK_LINE] = write_keys}};

// A row of a layer: each expert's load over the mean or, of many, the least and the most.
static void print_layer(const Routers *r, int i, FILE *out) {
  const double *chosen = r->load[i].chosen;
  double mean = sum_of(chosen, r->experts) / r->experts, least = INFINITY;
  fprintf(out, "  layer %-4d", r->load[i].layer);
  for (int k = 0; k < r->experts; k++) least = fmin(least, chosen[k]);
  if (r->experts > MOST_EXPERTS_IN_PRINT) fprintf(out, " from %.2f to %.2f", least / mean, routers_peak(r, i));
  for (int k = 0; k < r->experts && r->experts <= MOST_EXPERTS_IN_PRINT; k++) fprintf(out, " %.2f", chosen[k] / mean);
  fputc('\n', out);
}

void routers_print(const Routers *r, FILE *out) {
  if (!r->layers || isnan(routers_worst(r))) return;
  fprintf(out, "load         of each expert in the last step, over the mean of its layer");
  if (routers_dropped(r) > 0) fprintf(out, "; %.1f%% of the choices were dropped", 100 * routers_dropped(r));
  fputc('\n', out);
  for (int i = 0; i < r->layers && i < MOST_LAYERS_IN_PRINT; i++) print_layer(r, i, out);
  if (r->layers > MOST_LAYERS_IN_PRINT) fprintf(out, "  and %d layers more\n", r->layers - MOST_LAYERS_IN_PRINT);
}

void routers_describe(const Recipe *recipe, const ModelConfig *c, int ranks, char *text, size_t size) {
  double balance = recipe->moe.balance_loss < 0 ? c->router_aux_loss_coef : recipe->moe.balance_loss;
  text[0] = 0;
  if (!c->experts) return;
  size_t n = (size_t)snprintf(text, size, "%lld a layer, %lld a token", (long long)c->experts,
                              (long long)c->experts_per_token);
  if (ranks > 1 && n < size)
    n += (size_t)snprintf(text + n, size - n, ", divided over %d ranks", ranks);
  if (n < size)
    n += (size_t)snprintf(text + n, size - n, "; balance loss × %g, z loss × %g", balance, recipe->moe.z_loss);
  if (recipe->moe.bias_rate > 0 && n < size)
    n += (size_t)snprintf(text + n, size - n, ", bias rate %g", recipe->moe.bias_rate);
  if (n >= size) return;
  int64_t most = model_expert_capacity(c, recipe->transform.capacity, recipe->data.seq_len);
  if (!most) snprintf(text + n, size - n, "; no capacity: all choices are kept");
  else
    snprintf(text + n, size - n, "; capacity %g: an expert keeps %lld of a sequence's choices",
             recipe->transform.capacity, (long long)most);
}
