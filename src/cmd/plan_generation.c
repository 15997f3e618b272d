// The text and the JSON of `plait plan MODEL`: the engine is compiled as for plait generate, and no rank gets memory.
#include "cmd/plan_generation.h"
#include "base/memory_usage.h"
#include "base/units.h"
#include "foresight/estimate.h"
#include "infer/engine.h"
#include "setup/setup.h"
#include <jansson.h>

enum { LENGTHS = 4 };

typedef struct GenerationPlan {
  ModelSource source;
  Launch launch;
  Engine *engine;
  const Recipe *recipe;
  const SchedulerOptions *options;
  const Job *job;
  int64_t weights, cache, working, bound, flights, total; // bytes of the rank that takes the most
  int64_t token;           // bytes of a token in the cache, on all ranks that share it
  bool knows_speed;
  Estimate one, full, prompt; // ticks of one request, of all of them, and of a prompt
  int full_requests; // of a data rank at a time, as long as the context
  int full_tokens, prompt_tokens; // of a data rank in these ticks
  int full_overlap, prompt_overlap; // ticks that stages compute at the same time, if they take equally long
} GenerationPlan;

// ---- what is known -------------------------------------------------------------------------------------------------

// The most that a rank of a pipeline coordinate has for ticks under way.
static int64_t most_flights(const GenerationPlan *g, int c) {
  const Mesh *mesh = &g->job->options.parallel.mesh;
  int64_t most = 0;
  for (int r = 0; r < mesh->ranks; r++) {
    if (mesh_pipeline_coordinate(mesh, r) != c) continue;
    int64_t bytes = engine_flight_bytes(g->engine, r);
    if (bytes > most) most = bytes;
  }
  return most;
}

static void find_memory(GenerationPlan *g) {
  const Compiled *first = g->job->list.data[0];
  for (int c = 0; c < g->recipe->mesh.pp; c++) {
    const Program *p = first->program[c];
    int64_t bound = rank_bound_bytes(g->job, c), arena = job_state_bytes(g->job, c), flights = most_flights(g, c),
            total = arena + bound + flights;
    if (total <= g->total) continue;
    g->total = total;
    g->bound = bound;
    g->flights = flights;
    g->cache = inference_cache_bytes(p);
    g->weights = p->memory.parameters;
    g->working = arena - g->cache - g->weights;
  }
  g->token = inference_token_bytes(engine_model(g->engine));
}

// The smallest graph that has room for a data rank's tokens.
static const Compiled *graph_for(const GenerationPlan *g, int tokens) {
  const Compiled *best = NULL;
  for (int i = 0; i < g->job->list.count; i++) {
    const Compiled *c = g->job->list.data[i];
    if (c->tokens >= tokens && (!best || c->tokens < best->tokens)) best = c;
  }
  return best;
}

static int smaller(int a, int b) { return a < b ? a : b; }

static void find_speed(GenerationPlan *g) {
  Dtype dtype = (Dtype)g->recipe->precision;
  int overlap = smaller(g->options->in_flight, g->recipe->mesh.pp);
  g->full_overlap = smaller(overlap, g->options->requests);
  g->prompt_overlap = overlap;
  const int64_t fit = (int64_t)g->options->pages / ((g->options->context + g->options->page - 1) / g->options->page);
  g->full_requests = fit < g->options->requests ? (int)fit : g->options->requests;
  g->full_tokens = (g->full_requests + g->options->in_flight - 1) / g->options->in_flight;
  g->prompt_tokens = g->options->tokens;
  g->knows_speed = estimate_step(g->job, graph_for(g, 1), dtype, 0, &g->one) &&
                   estimate_step(g->job, graph_for(g, g->full_tokens), dtype, 0, &g->full) &&
                   estimate_step(g->job, graph_for(g, g->prompt_tokens), dtype, 0, &g->prompt);
}

static double tokens_per_s(const Estimate *e, double tokens) { return tokens / e->step_seconds; }

// How many requests of a length a cache of `bytes` holds at a time.
static int64_t requests_of(const GenerationPlan *g, double bytes, int64_t length) {
  int64_t pages = (length + g->options->page - 1) / g->options->page;
  return (int64_t)(bytes / ((double)(pages * g->options->page) * (double)g->token));
}

// ---- text ----------------------------------------------------------------------------------------------------------

static void print_bytes(const char *name, int64_t bytes, bool exact, FILE *out) {
  if (exact) fprintf(out, "%-24s %16lld", name, (long long)bytes);
  else fprintf(out, "%-24s %12s", name, units_bytes((double)bytes).s);
}

static void print_memory(const GenerationPlan *g, bool exact, FILE *out) {
  const SchedulerOptions *o = g->options;
  fprintf(out, "\nmemory of a rank%s\n",
          g->job->options.parallel.mesh.ranks > 1 ? ", of the one that takes the most" : "");
  print_bytes("  weights", g->weights, exact, out);
  print_bytes("\n  cache", g->cache, exact, out);
  fprintf(out, "   %d pages of %d tokens%s", o->pages, o->page, o->rows > 1 ? " of each data rank" : "");
  print_bytes("\n  working memory", g->working, exact, out);
  fprintf(out, "   of a tick of %d tokens", o->tokens);
  print_bytes("\n  bound instructions", g->bound, exact, out);
  print_bytes("\n  ticks in flight", g->flights, exact, out);
  fprintf(out, "   inputs and logits of %d", o->in_flight);
  print_bytes("\n= total", g->total, exact, out);
  fputc('\n', out);
}

// The lengths that are told: the context and its halves.
static int lengths_of(const GenerationPlan *g, int64_t *length) {
  int n = 0;
  for (int64_t l = g->options->context; n < LENGTHS && l >= g->options->page; l /= 2) length[n++] = l;
  if (!n) length[n++] = g->options->context;
  return n;
}

static void print_requests(const GenerationPlan *g, FILE *out) {
  const SchedulerOptions *o = g->options;
  int64_t length[LENGTHS];
  int n = lengths_of(g, length);
  double cache = (double)o->pages * o->page * (double)g->token, room = (double)memory_usage_available();
  int ranks = g->job->options.parallel.mesh.ranks;
  double others = (double)(g->total - g->cache) * ranks;
  fprintf(out, "\nrequests at a time%s: at most %d (infer.requests); a token takes %s of the cache\n",
          o->rows > 1 ? " of each data rank" : "", o->requests, units_bytes((double)g->token).s);
  fprintf(out, "  %-22s", "tokens of each");
  for (int i = 0; i < n; i++) fprintf(out, " %12lld", (long long)length[i]);
  fprintf(out, "\n  %-22s", "this cache holds");
  for (int i = 0; i < n; i++) fprintf(out, " %12lld", (long long)requests_of(g, cache, length[i]));
  if (room > 0 && !recipe_has_processes(g->recipe)) {
    fprintf(out, "\n  %-22s", "all free memory");
    for (int i = 0; i < n; i++) {
      int64_t fit = room > others ? requests_of(g, (room - others) / o->rows, length[i]) : 0;
      fprintf(out, " %12s", units_count((double)fit).s);
    }
    fprintf(out, "   (%s)", units_bytes(room).s);
  }
  fputc('\n', out);
}

static void print_rate(const char *name, const Estimate *e, double tokens, const char *what, FILE *out) {
  if (e->most > 1)
    fprintf(out, "  %-22s %6s to %6s tokens/s   %s\n", name, units_count(tokens_per_s(e, tokens) / e->most).s,
            units_count(tokens_per_s(e, tokens)).s, what);
  else
    fprintf(out, "  %-22s %12s tokens/s   %s\n", name, units_count(tokens_per_s(e, tokens)).s, what);
}

static void print_speed(const GenerationPlan *g, FILE *out) {
  if (!g->knows_speed) return;
  char *source = estimate_source(&g->one), text[80];
  int rows = g->options->rows;
  double full = (double)g->full_tokens * rows * g->full_overlap,
         prompts = (double)g->prompt_tokens * rows * g->prompt_overlap;
  fprintf(out, "\nspeed, %s; requests as long as the context\n", source);
  free(source);
  print_rate("one request", &g->one, 1, "", out);
  snprintf(text, sizeof text, "%d requests at a time", g->full_requests * rows);
  print_rate("all together", &g->full, full, text, out);
  snprintf(text, sizeof text, "%d tokens in a tick", g->prompt_tokens * rows);
  print_rate("prompts", &g->prompt, prompts, text, out);
  if (g->options->in_flight > 1 && g->recipe->mesh.pp > 1)
    fprintf(out, "  with %d ticks in flight (infer.in_flight), if pipeline stages take equally long\n",
            g->options->in_flight);
}

static const char *tokens_source(const GenerationPlan *g) {
  static const char *const from[] = {
      [TOKENS_GIVEN] = "as infer.tokens says",
      [TOKENS_MEASURED] = "by what plait probe measured of this machine (infer.tokens: auto)",
      [TOKENS_USUAL] = "as on all machines that plait probe has not measured (infer.tokens: auto)"};
  return from[engine_tokens_from(g->engine)];
}

static void print_text(const GenerationPlan *g, bool exact, FILE *out) {
  const ModelConfig *c = &g->source.config;
  const Recipe *r = g->recipe;
  int ranks = g->job->options.parallel.mesh.ranks;
  fprintf(out, "model      %s, %s parameters, from %s\n", model_family_name(c->family),
          units_count((double)model_config_parameters(c)).s, g->source.path);
  fprintf(out, "mesh       pp=%d dp=%d tp=%d: %d rank%s, %d thread%s each\n", r->mesh.pp, r->mesh.dp, r->mesh.tp, ranks,
          ranks > 1 ? "s" : "", g->job->run.threads, g->job->run.threads > 1 ? "s" : "");
  fprintf(out, "precision  %s%s\n", dtype_name((Dtype)r->precision),
          g->job->options.step.bf16_weights ? ", with the folder's bf16 weights" : "");
  fprintf(out, "context    %d tokens\n", g->options->context);
  fprintf(out, "tick       at most %d tokens, %s\n", g->options->tokens, tokens_source(g));
  print_memory(g, exact, out);
  print_requests(g, out);
  print_speed(g, out);
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

static json_t *speed_json(const Estimate *e, double tokens) {
  return json_pack("{s:f, s:f}", "tokens_per_s", tokens_per_s(e, tokens), "at_least",
                   tokens_per_s(e, tokens) / e->most);
}

static void print_json(const GenerationPlan *g, FILE *out) {
  const SchedulerOptions *o = g->options;
  int rows = o->rows;
  json_t *memory =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)g->weights, "cache", (json_int_t)g->cache,
                "working", (json_int_t)g->working, "bound_instructions", (json_int_t)g->bound, "ticks_in_flight",
                (json_int_t)g->flights, "total", (json_int_t)g->total);
  json_t *all = json_pack("{s:s, s:i, s:o, s:I, s:i}", "model", g->source.path, "ranks",
                          g->job->options.parallel.mesh.ranks, "memory", memory, "cache_token_bytes",
                          (json_int_t)g->token, "data_ranks", rows);
  json_object_set_new(all, "requests", json_integer(o->requests));
  json_object_set_new(all, "context", json_integer(o->context));
  json_object_set_new(all, "tokens", json_integer(o->tokens));
  json_object_set_new(all, "pages", json_integer(o->pages));
  json_object_set_new(all, "page", json_integer(o->page));
  json_object_set_new(all, "in_flight", json_integer(o->in_flight));
  if (g->knows_speed) {
    json_object_set_new(all, "one_request", speed_json(&g->one, 1));
    json_object_set_new(all, "all_requests", speed_json(&g->full, (double)g->full_tokens * rows * g->full_overlap));
    json_object_set_new(all, "prompts", speed_json(&g->prompt, (double)g->prompt_tokens * rows * g->prompt_overlap));
  }
  json_dumpf(all, out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  fputc('\n', out);
  json_decref(all);
}

int plan_generation(const char *path, int key_count, char **keys, bool exact, bool json, FILE *out, Error *error) {
  GenerationPlan g = {.launch = {.ranks = 1}};
  const EngineOptions o = {.command = "plait plan MODEL", .threads = 0, .key_count = key_count, .keys = keys};
  int code = model_source_open(&g.source, path, error);
  if (!code) code = engine_compile(&g.engine, &g.source, &o, &g.launch, error);
  if (!code) {
    g.recipe = &engine_model(g.engine)->recipe;
    g.options = engine_options(g.engine);
    g.job = engine_model(g.engine)->job;
    find_memory(&g);
    find_speed(&g);
    if (json) print_json(&g, out);
    else print_text(&g, exact, out);
  }
  engine_close(g.engine);
  model_source_close(&g.source);
  return code;
}
