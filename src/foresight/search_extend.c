// Estimates of plans from few layers.
#include "foresight/search_extend.h"
#include "foresight/predict.h"
#include "machine/machine_times.h"
#include "setup/setup.h"
#include <math.h>
#include <string.h>

enum { LEAST_LAYERS = 3 }; // of a stage that is extended: with fewer, what is gathered ahead is not what it is later

void extension_create(const Space *space, const Cluster *cluster, Extension *e) {
  *e = (Extension){.space = space, .cluster = cluster};
}

void extension_free(Extension *e) { vec_free(&e->cuts); }

// The layers of each stage, as the pass cuts the whole model. Plans with as many stages and as large microbatches have
// one cut.
static int cut_of(Extension *e, const Recipe *r, CutMemo *out, Error *error) {
  int v = recipe_virtual_stages(r), folded = schedules[r->parallel.pipeline].folded;
  for (int i = 0; i < e->cuts.count; i++) {
    const CutMemo *c = &e->cuts.data[i];
    if (c->pp == r->mesh.pp && c->stages == v && c->folded == folded && c->micro == r->batch.micro)
      return *out = *c, PLAIT_OK;
  }
  *out = (CutMemo){.pp = r->mesh.pp, .stages = v, .folded = folded, .micro = r->batch.micro, .count = r->mesh.pp * v};
  RunPlan plan;
  Graph *g = NULL;
  int code = resolve(r, e->space->config, &(RunSetting){.cluster = predict_cut(e->cluster)}, &plan, error);
  if (!code) code = run_plan_graph(&plan, "stage", &g, error);
  run_plan_free(&plan);
  if (code) return code;
  for (int s = 0; s < out->count; s++) out->layers[s] = g->cut[s + 1] - g->cut[s];
  graph_destroy(g);
  vec_push(&e->cuts, *out);
  return PLAIT_OK;
}

// Collectives of buckets that hold several layers come in steps, through which no straight line goes.
static bool fills_buckets(const ModelConfig *c, const Recipe *r) {
  double layer = 12.0 * (double)(c->embed * c->embed) / r->mesh.tp * 2;
  return !r->parallel.bucket_mb || layer > 4e6 * r->parallel.bucket_mb;
}

// How many layers can be left out of every stage; 0: the plan is compiled whole.
static int layers_to_spare(Extension *e, const Recipe *r, CutMemo *cut, Error *error) {
  const ModelConfig *c = e->space->config;
  int stages = r->mesh.pp * recipe_virtual_stages(r), given = r->parallel.layers.count;
  if (c->experts || c->window || recipe_recompute_differs(r) || r->optimizer.delay.count > 1 || stages > 64 ||
      !fills_buckets(c, r))
    return 0;
  if (given) {
    *cut = (CutMemo){.count = given};
    memcpy(cut->layers, r->parallel.layers.items, sizeof(int) * (size_t)given);
  } else if (cut_of(e, r, cut, error)) return 0;
  int least = cut->layers[0];
  for (int s = 0; s < cut->count; s++) least = cut->layers[s] < least ? cut->layers[s] : least;
  return least - LEAST_LAYERS > 1 ? least - LEAST_LAYERS : 0;
}

static int compile_some(Extension *e, const Recipe *r, int64_t layers, Estimated *out, double *bytes, Error *error) {
  ModelConfig config = *e->space->config;
  config.layers = layers;
  Job *job = NULL;
  const MachineTimes times = machine_times(e->cluster, NULL);
  *out = (Estimated){0};
  e->compiled++;
  int code = setup_job(r, &config, &(RunSetting){.sketch = true, .cluster = predict_cut(e->cluster)}, &job, error);
  if (!code) code = machine_step_seconds(&times, job_train(job)->program, &out->seconds, error);
  for (int c = 0; !code && c < job_pipeline_ranks(job); c++) {
    bytes[c] = (double)job_train(job)->program[c]->memory.total;
    out->bytes = fmax(out->bytes, bytes[c]);
  }
  job_destroy(job);
  return code;
}

// With `less` layers fewer in every stage.
static int compile_less(Extension *e, const Recipe *asked, const CutMemo *cut, int less, Estimated *out, double *bytes,
                        Error *error) {
  Recipe r = {0};
  int64_t layers = 0;
  char keys[1024] = "parallel.layers=[";
  for (int s = 0; s < cut->count; s++) {
    size_t n = strlen(keys);
    snprintf(keys + n, sizeof keys - n, "%s%d", s ? "," : "", cut->layers[s] - less);
    layers += cut->layers[s] - less;
  }
  strcat(keys, "]"); // of at most 64 stages
  int code = recipe_variant(asked, keys, &r, error);
  if (!code) code = compile_some(e, &r, layers, out, bytes, error);
  recipe_free(&r);
  return code;
}

int extension_estimate(Extension *e, const Recipe *r, Estimated *out, Error *error) {
  CutMemo cut;
  int spare = layers_to_spare(e, r, &cut, error), code;
  double *bytes = xcalloc(2 * (size_t)r->mesh.pp, sizeof *bytes), *more = bytes + r->mesh.pp;
  Estimated less, one_more; // layers
  if (!spare) code = compile_some(e, r, e->space->config->layers, out, bytes, error);
  else {
    code = compile_less(e, r, &cut, spare, &less, bytes, error);
    if (!code) code = compile_less(e, r, &cut, spare - 1, &one_more, more, error);
    if (!code) {
      *out = (Estimated){.seconds = less.seconds + spare * (one_more.seconds - less.seconds), .extended = spare};
      for (int c = 0; c < r->mesh.pp; c++) out->bytes = fmax(out->bytes, bytes[c] + spare * (more[c] - bytes[c]));
    }
  }
  free(bytes);
  return code;
}
