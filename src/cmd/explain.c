// plait explain: the graph of a training step after any pass, the Programs that ranks run, the pipeline's schedule and
// the mesh.
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/explain.h"
#include "cli/options.h"
#include "program/tensor_picture.h"
#include "sharding/mesh_print.h"
#include "schedule/timeline.h"
#include "setup/setup.h"
#include "foresight/auto_plan.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int nothing_matches(const char *option, const char *names, const char *what, Error *error) {
  return error_set(
      error, PLAIT_BAD_INPUT,
      "--%s %.100s: no %s has a name that matches; `plait explain RECIPE --after zero` lists them all, and "
      "a pattern is written as for file names, in quotes: '*.ffn.down*'",
      option, names, what);
}

// The plan of a recipe, and its graph after a pass. After an error there is neither.
static int compile_until(const Recipe *recipe, const ModelConfig *config, const char *after, RunPlan *plan,
                         Graph **graph, Error *error) {
  int code = resolve(recipe, config, &(RunSetting){0}, plan, error);
  if (!code) code = run_plan_graph(plan, after, graph, error);
  if (code) run_plan_free(plan);
  return code;
}

// only (NULL: everything): names_match.
static int explain_graph(const Recipe *recipe, const ModelConfig *config, const char *after, const char *only,
                         Error *error) {
  RunPlan plan;
  Graph *graph = NULL;
  int code = compile_until(recipe, config, after, &plan, &graph, error);
  if (code) return code;
  printf("# after %s, mesh pp=%d dp=%d cp=%d tp=%d. %s\n", after, recipe->mesh.pp, recipe->mesh.dp, recipe->mesh.cp,
         recipe->mesh.tp,
         only ? "node = op, and what it reads and gives; {dim:axes that cut it, partial:axes to sum over}"
              : "name:type(dim=extent …)@Variable<input>{dim:axes partial:axes}");
  if (!only) graph_print(graph, stdout, placement_printer, &plan.options.parallel.mesh);
  else if (!graph_print_only(graph, only, stdout, placement_printer, &plan.options.parallel.mesh))
    code = nothing_matches("only", only, "node and no Variable", error);
  graph_destroy(graph);
  run_plan_free(&plan);
  return code;
}

static int explain_shards_of(const Recipe *recipe, const ModelConfig *config, const char *names, Error *error) {
  RunPlan plan;
  Graph *graph = NULL;
  int code = compile_until(recipe, config, "zero", &plan, &graph, error);
  if (!code && !explain_shards(graph, &plan.options.parallel.mesh, names, stdout))
    code = nothing_matches("shards", names, "Variable", error);
  graph_destroy(graph);
  run_plan_free(&plan);
  return code;
}

static int explain_choices(const Recipe *recipe, const ModelConfig *config, Error *error) {
  RunPlan plan;
  Graph *graph = NULL;
  StepParallel asked = recipe_parallel(recipe);
  int code = compile_until(recipe, config, "place", &plan, &graph, error);
  if (!code) explain_algorithms(graph, &plan.options.parallel.mesh, &asked, stdout);
  graph_destroy(graph);
  run_plan_free(&plan);
  return code;
}

// coordinate -1: the Programs of all pipeline ranks.
static int explain_programs(const Recipe *recipe, const ModelConfig *config, int coordinate, const char *only,
                            Error *error) {
  Job *job = NULL;
  int printed = 0;
  if (coordinate >= recipe->mesh.pp)
    return error_set(error, PLAIT_BAD_INPUT, "--rank-coordinate is %d, but with mesh.pp %d it must be from 0 to %d",
                     coordinate, recipe->mesh.pp, recipe->mesh.pp - 1);
  int code = setup_job(recipe, config, NULL, &job, error);
  if (code) return code;
  for (int c = 0; c < recipe->mesh.pp; c++)
    if (coordinate < 0 || c == coordinate) printed += program_print(job_train(job)->program[c], only, stdout);
  job_destroy(job);
  return printed || !only ? PLAIT_OK
                          : nothing_matches("only", only, "instruction and no Variable that one uses", error);
}

// ---- the schedule --------------------------------------------------------------------------------------------------

static int is_svg(const char *path, bool *svg, Error *error) {
  const char *dot = strrchr(path, '.');
  *svg = dot && !strcmp(dot, ".svg");
  if (*svg || (dot && !strcmp(dot, ".json"))) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "--timeline %.200s: the name must end in .svg (a picture) or .json (a trace)", path);
}

// How long each segment takes when FLOPs are all that counts.
static void segment_costs(const Job *job, double (*cost)[PHASE_COUNT]) {
  const Schedule *s = job_train(job)->program[0]->schedule;
  for (int stage = 0; stage < s->stages; stage++)
    for (int phase = 0; phase < PHASE_COUNT; phase++)
      cost[stage][phase] =
          program_body_flops(job_train(job)->program[stage_coordinate(stage, s->map)], stage, (Phase)phase);
}

static int write_timeline(const Job *job, const char *path, bool svg, Error *error) {
  enum { STEPS = 3 }; // of a stream
  const Schedule *own = job_train(job)->program[0]->schedule, *s = own->streams ? schedule_repeat(own, STEPS) : own;
  const Segments *segments = job_train(job)->program[0]->segments;
  double (*cost)[PHASE_COUNT] = xcalloc((size_t)s->stages, sizeof *cost);
  segment_costs(job, cost);
  ScheduleSpans unit = {0}, spans = {0};
  AtomicFile file = {0};
  int code = schedule_replay(s, segments, NULL, &unit, error);
  if (!code) code = schedule_replay(s, segments, (const double (*)[PHASE_COUNT])cost, &spans, error);
  if (!code) code = file_begin(&file, path, error);
  if (!code) {
    TimelineText text = {job->options.parallel.pipeline.schedule->name, timeline_bubble(s, &unit)};
    (svg ? timeline_svg : timeline_json)(s, &spans, &text, file.stream);
    code = file_commit(&file, error);
  }
  if (!code)
    printf("%s: %s, bubble %.1f %% of %s by FLOPs, %.1f %% if all segments took the same time; transfers are not "
           "counted\n",
           path, job->options.parallel.pipeline.schedule->name, 100 * timeline_bubble(s, &spans),
           own->streams ? "three steps" : "the step",
           100 * timeline_bubble(s, &unit));
  file_abandon(&file);
  schedule_spans_free(&unit);
  schedule_spans_free(&spans);
  free(cost);
  if (s != own) schedule_free((Schedule *)(uintptr_t)s);
  return code;
}

static int explain_timeline(const Recipe *recipe, const ModelConfig *config, const char *path, Error *error) {
  Job *job = NULL;
  bool svg;
  int code = is_svg(path, &svg, error);
  if (!code) code = setup_job(recipe, config, NULL, &job, error);
  if (!code) code = write_timeline(job, path, svg, error);
  job_destroy(job);
  return code;
}

// ---- the mesh ------------------------------------------------------------------------------------------------------

typedef struct StageText { const Graph *graph; const Mesh *mesh; char text[512]; } StageText;

// The stages of a pipeline rank: "stages 0, 2: embedding, layers 0–1, 4–5".
static const char *describe_coordinate(const void *context, int coordinate) {
  StageText *s = (StageText *)(uintptr_t)context;
  const Graph *g = s->graph;
  StageMap map = mesh_stage_map(s->mesh);
  int several = g->stages > map.coordinates;
  size_t size = sizeof s->text, n = (size_t)snprintf(s->text, size, several ? "stages" : "stage");
  for (int stage = 0, said = 0; stage < g->stages && n + 64 < size; stage++)
    if (stage_coordinate(stage, map) == coordinate)
      n += (size_t)snprintf(s->text + n, size - n, "%s%d", said++ ? ", " : " ", stage);
  const char *between = ": ";
  if (stage_coordinate(0, map) == coordinate)
    n += (size_t)snprintf(s->text + n, size - n, "%sembedding", between), between = ", ";
  for (int stage = 0, said = 0; stage < g->stages && n + 64 < size; stage++) {
    int from = g->cut[stage], to = g->cut[stage + 1] - 1;
    if (to < from || stage_coordinate(stage, map) != coordinate) continue;
    n += (size_t)snprintf(s->text + n, size - n, "%s%s%d", between,
                          said                     ? ""
                          : from == to && !several ? "layer "
                                                   : "layers ",
                          from);
    if (to > from) n += (size_t)snprintf(s->text + n, size - n, "–%d", to);
    between = ", ";
    said = 1;
  }
  if (stage_coordinate(g->stages - 1, map) == coordinate) snprintf(s->text + n, size - n, "%shead", between);
  return s->text;
}

static bool has_own_layout(const Recipe *r) {
  bool own = r->layout.name == RECIPE_LAYOUT_DATA;
  for (int row = 0; row < LAYOUT_ROWS; row++) own |= r->layout.rows.row[row].count >= 0;
  return own;
}

static const char *meaning_of(const Axis *axis, const Recipe *r) {
  if (axis->role == AXIS_TENSOR && has_own_layout(r)) return "share what the recipe's Layout cuts over tp";
  if (axis->id == AXIS_TP_GROUP)
    return "have the same key and value heads; share their query heads, feed-forward and vocabulary";
  if (axis->id == AXIS_TP_DEPTH)
    return r->parallel.tensor == LAYOUT_TENSOR_3D ? "share the batch; gather weights for each product"
                                                  : "share the batch; have the same weights";
  if (r->parallel.tensor == LAYOUT_TENSOR_3D && axis_whole(axis->id) == AXIS_TP)
    return axis->id == AXIS_TP_ROW ? "share heads, feed-forward and vocabulary, and the batch between"
                                       : "share the embedding width, and the batch within blocks";
  if (axis->id == AXIS_TP_ROW) return "share the batch; gather weights for each product";
  if (axis->role == AXIS_TENSOR && r->parallel.tensor != LAYOUT_TENSOR_1D)
    return "share heads, feed-forward and vocabulary, and the embedding width between";
  if (axis->id == AXIS_REPLICA) return "replicas, each of all shards: reduce gradients";
  if (axis->role == AXIS_PIPELINE) return "pass activations from stage to stage";
  if (axis->role == AXIS_TENSOR)
    return r->parallel.sequence ? "share heads, feed-forward, vocabulary, and the sequence between"
                                : "share heads, feed-forward and vocabulary";
  if (axis->id == AXIS_ULYSSES) return "share the sequence, and in attention the heads instead";
  if (axis->id == AXIS_CP_GROUP)
    return "share the sequence, and in attention the query heads of the same key and value heads instead";
  if (axis->role == AXIS_CONTEXT)
    return "share each sequence";
  static const char *const zero[][4] = {
      [false] = {"share the batch; each has the whole state", "share the batch and the optimizer's state",
                             "share the batch, the optimizer's state and gradients",
                             "share the batch and all of the state"},
      [true] = {"", "share the batch, and the optimizer's state by whole tensors",
                              "share the batch, and the optimizer's state and gradients by whole tensors",
                              "share the batch, and all of the state by whole tensors"}};
  if (r->parallel.accumulate == RECIPE_ACCUMULATE_LOCAL && r->parallel.zero == 3)
    return r->parallel.unsplit_tensors ? "share the batch, and the optimizer's state and parameters by whole tensors"
                                       : "share the batch, the optimizer's state and parameters";
  return zero[r->parallel.unsplit_tensors][r->parallel.accumulate == RECIPE_ACCUMULATE_LOCAL ? 1 : r->parallel.zero];
}

// The axes of the set that have more than one rank.
static uint32_t several_ranks(const Mesh *mesh, uint32_t axes) {
  for (int a = 0; a < mesh->naxis; a++)
    if (mesh->axis[a].size == 1) axes &= ~(1u << a);
  return axes;
}

// A group over several axes, by their names: "replica dp".
static void print_groups_of(const Mesh *mesh, uint32_t axes, const char *meaning) {
  char name[128];
  size_t n = 0;
  for (int a = 0; a < mesh->naxis; a++)
    if (axes >> a & 1 && n < sizeof name)
      n += (size_t)snprintf(name + n, sizeof name - n, "%s%s", n ? " " : "", mesh->axis[a].name);
  mesh_print_groups(mesh, axes, name, meaning, stdout);
}

// "mesh.cp (8) is cp · ulysses: parallel.context", without what has one rank.
static void print_context_parts(const Mesh *mesh, int ranks) {
  int axes[MAX_AXES], n = mesh_axes_of(mesh, AXIS_CP, axes), said = 0;
  printf("      mesh.cp (%d) is", ranks);
  for (int i = 0; i < n; i++)
    if (mesh->axis[axes[i]].size > 1) printf("%s %s", said++ ? " ·" : "", mesh->axis[axes[i]].name);
  printf(": parallel.context\n");
}

static int explain_mesh(const Recipe *recipe, const ModelConfig *config, Error *error) {
  RunPlan plan;
  Graph *graph = NULL;
  int code = compile_until(recipe, config, "stage", &plan, &graph, error);
  if (code) return code;
  const Mesh *mesh = &plan.options.parallel.mesh;
  printf("mesh  ");
  for (int a = 0; a < mesh->naxis; a++) printf("%s=%d ", mesh->axis[a].name, mesh->axis[a].size);
  printf("· %d rank%s\n", mesh->ranks, mesh->ranks > 1 ? "s, those of the last axis side by side" : "");
  for (int a = 0; a < mesh->naxis; a++) {
    if (mesh->axis[a].id == AXIS_REPLICA)
      printf("      mesh.dp (%d) is replica · dp: parallel.shard_group\n", recipe->mesh.dp);
    if (mesh->axis[a].role == AXIS_CONTEXT && !axis_is_part(mesh->axis[a].id) && mesh->axis[a].size < recipe->mesh.cp)
      print_context_parts(mesh, recipe->mesh.cp);
    if (mesh->axis[a].id == AXIS_DP_EP)
      printf("      mesh.dp (%d) is dp · dp_ep: parallel.ep\n", recipe->mesh.dp);
    if (mesh->axis[a].id == AXIS_TP_ROW)
      printf("      mesh.tp (%d) is %stp_row · tp: parallel.tensor\n", recipe->mesh.tp,
             mesh_axis(mesh, AXIS_TP_DEPTH) >= 0 ? "tp_depth · " : "");
    if (mesh->axis[a].id == AXIS_TP_GROUP)
      printf("      mesh.tp (%d) is tp · tp_group: fewer key and value heads than ranks\n", recipe->mesh.tp);
  }
  StageText context = {graph, mesh, ""};
  fputc('\n', stdout);
  if (mesh->ranks == 1) printf("  rank 0   %s\n", describe_coordinate(&context, 0));
  else mesh_print_grid(mesh, describe_coordinate, &context, stdout);
  if (mesh->ranks > 1) printf("\ngroups\n");
  uint32_t data = 0;
  for (int a = 0; a < mesh->naxis; a++) {
    if (mesh->axis[a].size == 1) continue;
    mesh_print_groups(mesh, 1u << a, mesh->axis[a].name, meaning_of(&mesh->axis[a], recipe), stdout);
    if (mesh->axis[a].role == AXIS_DATA) data |= 1u << a;
  }
  if (data & (data - 1)) print_groups_of(mesh, data, "share the batch");
  uint32_t shards = several_ranks(mesh, plan.options.parallel.storage.shard_axes);
  if (recipe->parallel.zero && shards & (shards - 1))
    print_groups_of(mesh, shards, "divide what ZeRO divides");
  uint32_t experts = config->experts ? several_ranks(mesh, layout_expert_axes(&plan.options.parallel.layout)) : 0;
  if (experts) mesh_print_groups(mesh, experts, "experts", "divide the experts of each layer", stdout);
  graph_destroy(graph);
  run_plan_free(&plan);
  return PLAIT_OK;
}

// The shipped Layouts come from their table.
static const char description[] =
    "Prints the training step that a recipe compiles to: the final Program of each pipeline rank, or, with an "
    "option, the graph after a compiler pass, the pipeline's schedule, the mesh, or the shards of one parameter. "
    "It reads no data and allocates nothing of the model's size.\n"
    "Layouts that come with plait, for the key layout.name:"
#define LAYOUT_SHIPPED(id, name, meaning, ...) " " name " (" meaning ")."
#include "sharding/layout_rows.def"
    ;

// ---- one parameter on the mesh --------------------------------------------------------------------------------------

static int explain_tensor(const Recipe *recipe, const ModelConfig *config, const char *name, const char *path,
                          Error *error) {
  const char *dot = strrchr(path, '.');
  if (!dot || strcmp(dot, ".svg"))
    return error_set(error, PLAIT_BAD_INPUT, "--picture %.200s: the name must end in .svg", path);
  Job *job = NULL;
  AtomicFile file = {0};
  int parameter, code = setup_job(recipe, config, NULL, &job, error);
  if (!code && (code = tensor_picture_find(job_train(job)->graph, name, &parameter, error)))
    error_prefix(error, "--tensor");
  if (!code) code = file_begin(&file, path, error);
  if (!code) {
    tensor_picture_svg(job_train(job)->program, parameter, file.stream);
    code = file_commit(&file, error);
  }
  if (!code) printf("%s: what each of %d ranks holds of %s\n", path, recipe_rank_count(recipe), name);
  file_abandon(&file);
  job_destroy(job);
  return code;
}

static void describe_passes(char *text, size_t size) {
  size_t n = (size_t)snprintf(text, size, "print the graph after this pass; in their order:");
  for (const char *const *pass = compile_passes(); *pass && n < size; pass++)
    n += (size_t)snprintf(text + n, size - n, "%s %s", pass == compile_passes() ? "" : ",", *pass);
}

// ---- entry ---------------------------------------------------------------------------------------------------------

int cmd_explain(int argc, char **argv) {
  const char *after = NULL, *timeline = NULL, *tensor = NULL, *picture = NULL, *only = NULL, *shards = NULL,
             *play = NULL, *beside = NULL;
  bool mesh = false, algorithms = false;
  int64_t coordinate = -1;
  bool coordinate_given = false;
  char passes[512];
  describe_passes(passes, sizeof passes);
  const Option options[] = {
      {.name = "after",
       .kind = OPTION_TEXT,
       .value = &after,
       .argument = "PASS",
       .help = passes,
       .words = compile_passes()},
      {.name = "only",
       .kind = OPTION_TEXT,
       .value = &only,
       .argument = "NAMES",
       .help = "print only nodes and Variables with these names, one operand per line; NAMES are patterns as for file "
               "names, separated by commas"},
      {.name = "shards",
       .kind = OPTION_TEXT,
       .value = &shards,
       .argument = "NAMES",
       .help = "draw which ranks hold which part of the Variables with these names: parameters, gradients, moments"},
      {.name = "rank-coordinate",
       .kind = OPTION_INTEGER,
       .value = &coordinate,
       .argument = "N",
       .help = "print only the Program of this pipeline rank; -1: all",
       .least = -1,
       .most = MAX_STAGES - 1,
       .given = &coordinate_given},
      {.name = "timeline",
       .kind = OPTION_TEXT,
       .value = &timeline,
       .argument = "FILE",
       .help = "draw the pipeline's schedule: a picture (FILE.svg), or a trace for ui.perfetto.dev (FILE.json)"},
      {.name = "play",
       .kind = OPTION_TEXT,
       .value = &play,
       .argument = "FILE.html",
       .help = "write a page that steps through what every rank does: who computes, gathers, sends and holds what, and "
               "the memory over time; it needs a browser and no network"},
      {.name = "beside",
       .kind = OPTION_TEXT,
       .value = &beside,
       .argument = "SETTINGS",
       .help = "with --play: show the recipe with these settings (key=value) beside it, or another recipe"},
      {.name = "mesh",
       .kind = OPTION_FLAG,
       .value = &mesh,
       .help = "print each rank's coordinates, and the groups that communicate"},
      {.name = "algorithms",
       .kind = OPTION_FLAG,
       .value = &algorithms,
       .help =
           "print, for every operation that can cross the ranks in several ways (parallel.context), what each would "
           "move and hold, which is taken and why"},
      {.name = "tensor",
       .kind = OPTION_TEXT,
       .value = &tensor,
       .argument = "NAME",
       .help = "with --picture: the parameter to draw, such as layer.0.ffn.up.weight"},
      {.name = "picture",
       .kind = OPTION_TEXT,
       .value = &picture,
       .argument = "FILE.svg",
       .help = "draw which part of a parameter each rank holds, and the lines of the Program that use it"},
  };
  const CommandHelp help = {
      "explain", "[options] RECIPE [key=value …]",
      description,
      "  plait explain recipes/demo.yaml --after autodiff\n"
      "  plait explain recipes/demo.yaml mesh.tp=3 --after partition | grep all_reduce\n"
      "  plait explain recipes/demo.yaml mesh.tp=2 'layout.ffn=[]' --after place\n"
      "  plait explain recipes/step.yaml --after place --only '*layer.0.ffn.down*'\n"
      "  plait explain recipes/step.yaml --shards layer.0.ffn.down.weight\n"
      "  plait explain recipes/demo.yaml mesh.pp=2 --rank-coordinate 1\n"
      "  plait explain recipes/demo.yaml mesh.pp=2 --timeline schedule.svg\n"
      "  plait explain recipes/step.yaml --play step.html\n"
      "  plait explain recipes/step.yaml parallel.zero=3 --play zero.html --beside parallel.zero=1\n"
      "  plait explain recipes/demo.yaml mesh.pp=2 mesh.tp=3 --mesh\n"
      "  plait explain recipes/demo.yaml mesh.cp=2 --algorithms\n"
      "  plait explain recipes/demo.yaml --tensor layer.0.ffn.up.weight --picture up.svg\n",
      .takes = TAKES_RECIPE};
  Operands operands;
  int status = options_parse(&help, options, COUNT(options), 1, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  Error error = {0};
  Recipe recipe = {0};
  ModelConfig config = {0};
  int code = PLAIT_OK;
  if (!code && after && coordinate_given)
    code = error_set(&error, PLAIT_BAD_INPUT,
                     "--rank-coordinate is for the final Program; --after shows the graph of all ranks");
  int shown = (after != NULL) + (timeline != NULL) + (shards != NULL) + (picture != NULL) + (play != NULL) + mesh +
              algorithms + coordinate_given;
  if (!code && shown > 1)
    code =
        error_set(&error, PLAIT_BAD_INPUT,
                  "--after, --timeline, --play, --mesh, --algorithms, --shards, --picture and --rank-coordinate show "
                  "different things; give one of them");
  if (!code && only && (timeline || play || mesh || algorithms || shards || picture))
    code = error_set(&error, PLAIT_BAD_INPUT,
                     "--only chooses from a graph (--after) or a Program; it does not go with --timeline, --play, "
                     "--mesh, --algorithms, --shards or --picture");
  if (!code && (tensor != NULL) != (picture != NULL))
    code = error_set(&error, PLAIT_BAD_INPUT, "--tensor NAME and --picture FILE.svg go together: which parameter is "
                                              "drawn, and where to");
  if (!code && beside && !play)
    code = error_set(&error, PLAIT_BAD_INPUT, "--beside is for the page that --play FILE.html writes");
  if (!code && play) {
    code = explain_play(operands.count, operands.words, play, beside, &error);
    return code ? command_fail("explain", &error) : 0;
  }
  if (!code) code = recipe_load(operands.words[0], operands.count - 1, operands.words + 1, &recipe, &error);
  if (!code) code = setup_model_config(&recipe, &config, &error);
  if (!code)
    code = after      ? explain_graph(&recipe, &config, after, only, &error)
           : shards   ? explain_shards_of(&recipe, &config, shards, &error)
           : timeline ? explain_timeline(&recipe, &config, timeline, &error)
           : mesh     ? explain_mesh(&recipe, &config, &error)
           : algorithms ? explain_choices(&recipe, &config, &error)
           : picture  ? explain_tensor(&recipe, &config, tensor, picture, &error)
                      : explain_programs(&recipe, &config, (int)coordinate, only, &error);
  fflush(stdout); // notes come after what was printed, where both go to one file
  if (!code && recipe.notes) fputs(recipe.notes, stderr);
  if (!code) auto_plan_note(&recipe, stderr);
  model_config_free(&config);
  recipe_free(&recipe);
  return code ? command_fail("explain", &error) : 0;
}
