// Keys → recipe → job → session → weights.
#include "infer/inference.h"
#include "base/fault.h"
#include "base/units.h"
#include "runtime/gather.h"
#include "setup/setup.h"
#include "runtime/state_tensors.h"
#include <stdlib.h>
#include <string.h>

int64_t inference_cache_bytes(const Program *p) {
  int64_t bytes = 0;
  for (int i = 0; i < p->graph->variable.count; i++) {
    const Variable *v = &p->graph->variable.data[i];
    if (v->kind != VARIABLE_CACHE || p->variable_place[i].offset < 0) continue;
    int64_t elements = 1;
    for (int d = 0; d < v->shape.rank; d++) elements *= variable_local(p->graph, v, -1)[d];
    bytes += elements * variable_bits(v, -1) / 8;
  }
  return bytes;
}

// Rank 0 hears the bytes of all.
static int tell_bytes(Rank *r, Inference *i, int64_t read, Error *error) {
  enum { FIELDS = sizeof(RankBytes) / sizeof(int64_t) };
  int c = mesh_pipeline_coordinate(&i->job->options.parallel.mesh, r->rank),
      ranks = i->job->options.parallel.mesh.ranks;
  RankBytes own = {.read = read,
                   .held = job_state_bytes(i->job, c) + rank_bound_bytes(i->job, c),
                   .cache = inference_cache_bytes(r->state->program)},
            *all = xcalloc((size_t)ranks, sizeof *all);
  PlaitBuffer buffer = {&own, all, FIELDS};
  int code = plait_all_gather(r->world, &buffer, 1, PLAIT_INT64, NULL, NULL) ? plait_comm_failure(r->world, error)
                                                                               : PLAIT_OK;
  if (r->rank == 0) i->bytes = all;
  else free(all);
  return code;
}

static int load_weights(Rank *r, void *inference, Error *error) {
  Inference *i = inference;
  int64_t read = 0;
  int code = rank_load(r, i->job, error);
  if (!code) code = model_source_load(i->source, r->state, &read, error);
  return code ? code : tell_bytes(r, i, read, error);
}

int64_t inference_token_bytes(const Inference *i) {
  const ModelConfig *c = &i->source->config;
  return 2 * c->layers * c->kv_heads * c->head_dim * (int64_t)dtype_size(recipe_cache_dtype(&i->recipe));
}

// Pages of a cache of o->kv_memory bytes.
static int pages_in(const Inference *i, const InferenceOptions *o, int64_t *pages, Error *error) {
  double token = (double)inference_token_bytes(i);
  int64_t needed = (o->context + o->page - 1) / o->page, all = o->requests * needed;
  double fit = o->kv_memory / (token * (double)o->page);
  if (FAULT(small_caches_are_taken, fit < (double)needed, 0))
    return error_set(
        error, PLAIT_BAD_INPUT,
        "infer.kv_memory: a cache of %s has room for %lld tokens, and one request may have %lld: that takes %s",
        units_bytes(o->kv_memory).s, (long long)fit * (long long)o->page, (long long)o->context,
        units_bytes((double)(needed * o->page) * token).s);
  *pages = fit < (double)all ? (int64_t)fit : all;
  return PLAIT_OK;
}

int inference_recipe(Inference *i, const ModelSource *source, const InferenceOptions *o, const Launch *launch,
                     Error *error) {
  *i = (Inference){.source = source};
  const RecipeForInference asked = {.command = o->command,
                                    .instead = o->instead,
                                    .key_count = o->key_count,
                                    .keys = o->keys,
                                    .generates = o->mode == MODEL_GENERATE,
                                    .seq_len = (int)o->seq,
                                    .rows = (int)o->rows};
  int code = recipe_for_inference(&asked, &i->recipe, error);
  if (code) return code;
  if (i->recipe.notes && launch->rank == 0) fputs(i->recipe.notes, stderr);
  i->recipe.data.document_mask = !o->one_document;
  if (source->has_recipe) i->recipe.moe.bias_rate = source->recipe.moe.bias_rate; // the checkpoint has the bias
  return PLAIT_OK;
}

int inference_compile(Inference *i, const InferenceOptions *o, Launch *launch, Error *error) {
  int threads = 1, given = i->recipe.run.threads ? i->recipe.run.threads : o->threads;
  int code = setup_launch(launch, &i->recipe, error);
  if (!code) code = launch_threads(launch, given, recipe_rank_count(&i->recipe), &threads, error);
  if (code) return code;
  RunSetting setting = {.mode = o->mode, .threads = threads, .context = o->context, .page = o->page,
                        .requests = o->requests, .pages = o->pages, .logits = o->logits,
                        .bf16_weights = model_source_is_bf16(i->source)};
  if (o->kv_memory > 0) code = pages_in(i, o, &setting.pages, error);
  if (code) return code;
  if (!launch->world) setting.helpers = setup_helpers(&i->recipe, threads);
  return setup_job(&i->recipe, &i->source->config, &setting, &i->job, error);
}

int inference_start(Inference *i, Launch *launch, Error *error) {
  const SessionOptions o = {.ranks = recipe_rank_count(&i->recipe), .comm = launch->comm};
  int code = session_open(&o, &i->session, error);
  return code ? code : session_run(i->session, load_weights, i, error);
}

int inference_open(Inference *i, const ModelSource *source, const InferenceOptions *o, Launch *launch, Error *error) {
  int code = inference_recipe(i, source, o, launch, error);
  if (!code) code = inference_compile(i, o, launch, error);
  code = launch_agree(launch, code, error);
  return code ? code : inference_start(i, launch, error);
}

void inference_close(Inference *i) {
  session_close(i->session);
  job_destroy(i->job);
  free(i->bytes);
  recipe_free(&i->recipe);
  *i = (Inference){0};
}

int64_t inference_rows(const Inference *i) { return i->job->options.micro_samples; }

int64_t inference_local_rows(const Inference *i) { return i->job->options.micro_samples / job_data_ranks(i->job); }

int inference_speaks(const Rank *r) {
  const Mesh *mesh = &r->job->options.parallel.mesh;
  for (int a = 0; a < mesh->naxis; a++)
    if (!(layout_input_axes(&r->job->options.parallel.layout) >> a & 1) && mesh_coordinate(mesh, r->rank, a)) return 0;
  return 1;
}

int inference_output(Rank *r, KnownVariable output, Dtype dtype, void *out, Error *error) {
  CheckpointTensor *mine;
  Gathered all = {0};
  int n = state_tensor(r->state, r->state->program->graph->known[output], &mine);
  int code = gather_boxes(r->world, mine, n, &all, error);
  free(mine);
  for (int k = 0; k < all.count && !code && r->rank == 0; k++)
    if (all.boxes[k].primary) checkpoint_tensor_to_whole(&all.boxes[k], out, dtype);
  gather_free(&all);
  return code;
}
