// The key table of recipes, and the look-ups in it.
#include "recipe/recipe_keys.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const RecipeWord init_words[] = {{"random", 0, false}, {0}};
static const RecipeWord resume_words[] = {{"auto", 0, false}, {"never", 0, false}, {0}};
static const RecipeWord recompute_words[] = {
    {"none", RECIPE_RECOMPUTE_NONE, false},
    {"selective", RECIPE_RECOMPUTE_SELECTIVE, false},
    {"full", RECIPE_RECOMPUTE_FULL, false},
    {0},
};
static const RecipeWord update_words[] = {
    {"end", RECIPE_UPDATE_END, false}, {"in_backward", RECIPE_UPDATE_IN_BACKWARD, false}, {0}};
static const RecipeWord pipeline_words[] = {
#define SCHEDULE(id, name, ...) {name, SCHEDULE_##id, false},
#include "schedule/schedules.def"
    {0},
};
static const RecipeWord precision_words[] = {
    {"fp64", DTYPE_F64, false}, {"fp32", DTYPE_F32, false}, {"bf16", DTYPE_BF16, false},
    {"fp16", DTYPE_F16, false}, {"fp8", DTYPE_U8, true},    {"auto", RECIPE_PRECISION_AUTO, false},
    {0},
};
static const RecipeWord grad_dtype_words[] = {{"fp32", DTYPE_F32, false}, {"bf16", DTYPE_BF16, false}, {0}};
static const RecipeWord non_finite_words[] = {
    {"skip", RECIPE_SKIP, false}, {"stop", RECIPE_STOP, false}, {"rollback", RECIPE_ROLLBACK, false}, {0}};
static const RecipeWord optimizer_words[] = {
#define OPTIMIZER(id, name) {#name, OP_##id, false},
#include "ir/optimizers.def"
    {0},
};
static const char default_optimizer[] =
#define OPTIMIZER(id, name)
#define OPTIMIZER_DEFAULT(id, name) #name
#include "ir/optimizers.def"
    ;
static const RecipeWord schedule_words[] = {
    {"cosine", RECIPE_COSINE, false},     {"linear", RECIPE_LINEAR, false}, {"wsd", RECIPE_WSD, false},
    {"constant", RECIPE_CONSTANT, false}, {0},
};
static const RecipeWord comm_words[] = {
    {"auto", RECIPE_COMM_AUTO, false}, {"local", RECIPE_COMM_LOCAL, false}, {"mpi", RECIPE_COMM_MPI, false},
    {"nccl", RECIPE_COMM_NCCL, true},  {0},
};
static const RecipeWord backend_words[] = {
    {"auto", RECIPE_BACKEND_AUTO, false}, {"cpu", RECIPE_BACKEND_CPU, false}, {"cuda", RECIPE_BACKEND_CUDA, true}, {0}};

static const RecipeWord layout_words[] = {
    {"auto", RECIPE_LAYOUT_AUTO, false},
#define LAYOUT_SHIPPED(id, name, ...) {name, RECIPE_LAYOUT_##id, false},
#include "sharding/layout_rows.def"
    {0},
};

static const char layout_doc[] =
    "The Layout that the rows below start from: which mesh axes cut which dims. Shipped are"
#define LAYOUT_SHIPPED(id, name, meaning, ...) " `" name "` (" meaning "),"
#include "sharding/layout_rows.def"
    " and auto: `sequence` where parallel.sequence is true, else `tensor`. Every Layout gives the same numbers.";

static const char config_doc[] = "The model, as a Hugging Face `config.json`, of one of the families"
#define FAMILY(name) " `" #name "`"
#include "model/families.def"
#undef FAMILY
    ". May be left out where `model.init` is a folder that has one.";

static const char pipeline_doc[] = "The pipeline's schedule, where mesh.pp is above 1."
#define SCHEDULE(id, name, generator, meaning, ...) " `" name "`: " meaning "."
#include "schedule/schedules.def"
    ;

enum { MANY = 1 << 24, AXIS = 1 << 16 };
#define STEPS 1e15 // so that arithmetic with steps cannot overflow; messages do not mention it

#define KEY(path, kind, field, ...) {path, kind, offsetof(Recipe, field), __VA_ARGS__}
#define LATER(path) {path, RECIPE_LATER, 0, .doc = ""}

const RecipeKey recipe_keys[] = {
    KEY("model.config", RECIPE_PATH, model.config, .example = "models/gpt-small.json", .another_run = true,
        .doc = config_doc),
    KEY("model.init", RECIPE_WORD_OR_PATH, model.init, "random", .words = init_words, .example = "random",
        .another_run = true, .doc = "Where the weights start: `random`, or a Hugging Face folder."),

    KEY("data.train", RECIPE_CORPORA, data.train, .required = true, .example = "data/train", .another_run = true,
        .doc = "Token files to train on, by their prefix (`PREFIX.bin` and `PREFIX.idx`); or a list of "
               "`{prefix, weight}`, blended by weight."),
    KEY("data.valid", RECIPE_CORPORA, data.valid, .example = "data/valid", .another_run = true,
        .doc = "Token files to evaluate on; written as `data.train`. Without it and data.split nothing is evaluated."),
    KEY("data.split", RECIPE_REAL, data.split, "0", .least = 0, .most = 0.5, .another_run = true,
        .doc = "Holds out this fraction of the documents of data.train and evaluates on them, in place of data.valid; "
               "`0.05` is usual. Which documents depends on their place in each corpus alone. Training never sees "
               "them."),
    KEY("data.tokenizer", RECIPE_PATH, data.tokenizer, .example = "data/tokenizer.json", .another_run = true,
        .doc = "The Hugging Face `tokenizer.json` that made the token files; it goes into checkpoints and exports."),
    KEY("data.seq_len", RECIPE_INT, data.seq_len, "1024", .least = 1, .most = MANY, .example = "256",
        .another_run = true, .doc = "Tokens of a sample."),
    KEY("data.document_mask", RECIPE_BOOL, data.document_mask, "true", .example = "true", .another_run = true,
        .doc = "Attention and positions restart at each document, and a document's last token has no target. "
               "`false`: documents run into one another."),
    KEY("data.prefetch", RECIPE_INT, data.prefetch, "4", .least = 1, .most = 1024,
        .doc = "Batches that the loader reads ahead."),

    KEY("mesh.pp", RECIPE_INT, mesh.pp, "1", .least = 1, .most = AXIS, .example = "1", .inference = true,
        .doc = "Pipeline stages."),
    KEY("mesh.dp", RECIPE_INT, mesh.dp, "1", .least = 1, .most = AXIS, .example = "2", .inference = true,
        .doc = "Data-parallel ranks. The rank count is pp · dp · cp · tp, tp on neighbouring ranks."),
    KEY("mesh.cp", RECIPE_INT, mesh.cp, "1", .least = 1, .most = AXIS, .built_most = 1, .example = "1",
        .inference = true, .doc = "Context-parallel ranks: shards of the sequence."),
    KEY("mesh.tp", RECIPE_INT, mesh.tp, "1", .least = 1, .most = AXIS, .example = "1", .inference = true,
        .doc = "Tensor-parallel ranks: shards of heads, feed-forward and vocabulary."),

    KEY("parallel.zero", RECIPE_INT, parallel.zero, "0", .least = 0, .most = 3, .example = "0", .inference = true,
        .doc = "ZeRO stage: 0 replicates everything over dp, 1 shards the optimizer state, 2 the gradients too, "
               "3 the parameters too (FSDP)."),
    KEY("parallel.reshard", RECIPE_BOOL, parallel.reshard, "true", .inference = true,
        .doc = "With zero 3: gathered parameters are freed behind each use and gathered again (true), or gathered once "
               "a step "
               "and kept (false: zero 2's memory, a third of the traffic)."),
    KEY("parallel.shard_group", RECIPE_INT, parallel.shard_group, "0", .least = 0, .most = AXIS, .inference = true,
        .doc = "Hybrid sharding (HSDP): zero shards over groups of this many neighbouring data ranks (the ranks of one "
               "node, for example) and replicates over the groups. It must divide mesh.dp. 0: over all data ranks."),
    KEY("parallel.unsplit_tensors", RECIPE_BOOL, parallel.unsplit_tensors, "false", .inference = true,
        .doc = "How zero divides over data ranks: every rank stores an equal shard of every tensor (false), or every "
               "tensor (tp's shard of it) is stored unsplit on one of the ranks (true), for optimizers that need whole "
               "matrices. The ranks' memory then differs by at most the largest tensor of their stage."),
    KEY("parallel.sequence", RECIPE_BOOL, parallel.sequence, "false", .inference = true,
        .doc = "Sequence parallelism: between tensor-parallel regions the sequence is sharded over mesh.tp."),
    KEY("parallel.recompute", RECIPE_CHOICE, parallel.recompute, "none", .words = recompute_words, .example = "none",
        .doc = "What backward computes again instead of keeping: in a block, all (full) or what is cheap beside the "
               "products "
               "and attention (selective). The numbers do not change."),
    KEY("parallel.recompute_layers", RECIPE_INT, parallel.recompute_layers, "0", .least = 0, .most = MANY,
        .doc = "How many blocks of each pipeline stage recompute; 0: all."),
    KEY("parallel.pipeline", RECIPE_CHOICE, parallel.pipeline, "1f1b", .words = pipeline_words, .inference = true,
        .doc = pipeline_doc),
    KEY("parallel.stages_per_rank", RECIPE_INT, parallel.stages_per_rank, "auto", .least = 1, .most = 64,
        .has_auto = true, .automatic = 0, .inference = true,
        .doc = "Stages of each pipeline rank, laid over the ranks in turn; auto: the fewest that the schedule runs."),
    KEY("parallel.layers", RECIPE_INTS, parallel.layers, .least = 0, .most = INT_MAX, .inference = true,
        .doc = "How many layers each of the mesh.pp · parallel.stages_per_rank stages has, as in `[1, 2, 1]`; the "
               "embedding "
               "goes with the first and "
               "the head with the last. Without it, stages are cut so that the costliest costs the least."),
    KEY("parallel.overlap", RECIPE_BOOL, parallel.overlap, "true", .inference = true,
        .doc = "Ranks communicate while they compute: collectives start as soon as their operands are there, and "
               "gathers of parameters "
               "a block before their readers. `false`: each is waited for where it stands. The numbers do not change."),
    KEY("parallel.bucket_mb", RECIPE_INT, parallel.bucket_mb, "25", .least = 0, .most = 1 << 20, .inference = true,
        .doc = "Megabytes of gradients (and of the parameters of zero 3) that are communicated together. 0: one by "
               "one, and without parallel.overlap."),
    KEY("parallel.grad_dtype", RECIPE_CHOICE, parallel.grad_dtype, "fp32", .words = grad_dtype_words, .example = "fp32",
        .doc = "The number format in which gradients are accumulated and reduced. bf16 halves their memory and "
               "traffic, but keeps "
               "8 bits: what a microbatch adds to a sum 256 times as large is lost. fp32 means fp64 with precision: "
               "fp64."),
    KEY("parallel.update", RECIPE_CHOICE, parallel.update, "end", .words = update_words, .example = "end",
        .doc = "When gradients are applied: all at the end of the step, or each in backward as soon as it is complete, "
               "after which its "
               "memory is free again (in_backward). That takes one microbatch a step, optimizer.clip 0, run.non_finite "
               "stop or rollback, "
               "and a precision without a loss scale. Parameters that several layers share are updated at the end all "
               "the same."),

    KEY("layout.name", RECIPE_CHOICE, layout.name, "auto", .words = layout_words, .inference = true, .doc = layout_doc),
#define LAYOUT_ROW(id, name, meaning)                                                                                  \
  KEY("layout." name, RECIPE_AXIS_LIST, layout.rows.row[LAYOUT_ROW_##id], "auto", .inference = true,                   \
      .doc = "The mesh axes that cut " meaning ", outer first; `[]`: none; auto: those of layout.name."),
#include "sharding/layout_rows.def"

    KEY("precision", RECIPE_CHOICE, precision, "fp32", .words = precision_words, .example = "fp32", .inference = true,
        .doc = "The number format of weights and activations. bf16 and fp16 keep fp32 masters, moments and sums; fp16 "
               "is slow on "
               "CPUs, which compute it by way of fp32. `auto`: bf16 where this machine computes it fast (AMX, or "
               "AVX-512 BF16), else fp32; a run keeps what it was started with, on any machine."),

    KEY("loss_scale.initial", RECIPE_REAL, loss_scale.initial, "65536", .least = 1, .most = 1e9,
        .doc =
            "fp16: by what the loss is multiplied at first, so that small gradients do not vanish. A step whose "
            "gradients "
            "overflow is skipped and halves the scale. With another precision there is none, and the key is refused."),
    KEY("loss_scale.growth_interval", RECIPE_LONG, loss_scale.growth_interval, "2000", .least = 0, .most = STEPS,
        .doc = "fp16: steps without overflow after which the scale is doubled; 0: it stays as it is given."),

    KEY("batch.global", RECIPE_INT, batch.global, "64", .least = 1, .most = MANY, .example = "64",
        .doc = "Sequences of a step, over all ranks. They need not divide: some data ranks then have a sequence less "
               "than others, or none, "
               "and `plait plan` says how much of their time is idle."),
    KEY("batch.micro", RECIPE_INT, batch.micro, "8", .least = 1, .most = MANY, .example = "8", .inference = true,
        .doc = "The most sequences that one data rank computes at a time. The step's result does not depend on it."),

    KEY("optimizer.name", RECIPE_CHOICE, optimizer.name, default_optimizer, .words = optimizer_words,
        .meaning = optimizer_meaning, .example = default_optimizer, .doc = "The update rule."),
    KEY("optimizer.lr", RECIPE_REAL, optimizer.lr, "3e-4", .least = 0, .most = 1e6, .example = "3e-4",
        .doc = "The learning rate after warm-up."),
    KEY("optimizer.betas", RECIPE_PAIR, optimizer.betas, "[0.9, 0.95]", .least = 0, .most = 1, .below = true,
        .example = "[0.9, 0.95]", .doc = "Decay of the first and second moment."),
    KEY("optimizer.weight_decay", RECIPE_REAL, optimizer.weight_decay, "0.1", .least = 0, .most = 1e6, .example = "0.1",
        .doc = "Weight decay of matrices and embeddings; norms and biases have none."),
    KEY("optimizer.epsilon", RECIPE_REAL, optimizer.epsilon, "1e-8", .least = 0, .most = 1, .above = true,
        .doc = "Added to the root of the second moment."),
    KEY("optimizer.momentum", RECIPE_REAL, optimizer.momentum, "0", .least = 0, .most = 1, .below = true,
        .doc = "Momentum."),
    KEY("optimizer.clip", RECIPE_REAL, optimizer.clip, "1.0", .least = 0, .most = INFINITY, .example = "1.0",
        .doc = "Largest global gradient norm: longer gradients are scaled to it. 0: none are."),

    KEY("schedule.name", RECIPE_CHOICE, schedule.name, "cosine", .words = schedule_words, .example = "cosine",
        .doc = "The learning rate after a linear warm-up: cosine or straight line to min_lr, flat and then a line "
               "(wsd), or flat."),
    KEY("schedule.warmup", RECIPE_LONG, schedule.warmup, "0", .least = 0, .most = INFINITY, .example = "100",
        .doc = "Steps of warm-up; step n of w trains with lr · (n + 1) / w."),
    KEY("schedule.steps", RECIPE_LONG, schedule.steps, "1000", .least = 1, .most = STEPS, .example = "2000",
        .doc = "Steps of the run."),
    KEY("schedule.min_lr", RECIPE_REAL, schedule.min_lr, "0", .least = 0, .most = 1e6, .example = "3e-5",
        .doc = "The learning rate at the end; at most optimizer.lr."),
    KEY("schedule.decay_steps", RECIPE_LONG, schedule.decay_steps, "auto", .least = 0, .most = STEPS, .has_auto = true,
        .automatic = -1, .doc = "Last steps, over which wsd goes down to min_lr; auto: a tenth of schedule.steps."),

    KEY("checkpoint.every", RECIPE_LONG, checkpoint.every, "500", .least = 0, .most = STEPS, .example = "500",
        .doc = "Steps between checkpoints; 0: only one, at the end. A signal saves one too."),
    KEY("checkpoint.keep", RECIPE_INT, checkpoint.keep, "3", .least = 0, .most = INT_MAX, .example = "3",
        .doc = "How many of the newest stay; 0: all."),
    KEY("checkpoint.best", RECIPE_BOOL, checkpoint.best, "false",
        .doc = "Saves a checkpoint whenever the held-out loss is the lowest so far, and keeps the best one besides the "
               "newest: `RUN/checkpoints/best` is a link to it, which `plait eval`, `generate` and `export` take."),
    KEY("checkpoint.resume", RECIPE_WORD_OR_PATH, checkpoint.resume, "auto", .words = resume_words, .example = "auto",
        .of_this_start = true,
        .doc =
            "`auto` resumes from the newest valid checkpoint of run.dir if there is one, `never` starts anew, a folder "
            "is a checkpoint to begin at; once run.dir has later checkpoints of its own, the run resumes from these."),

    KEY("eval.every", RECIPE_LONG, eval.every, "200", .least = 0, .most = STEPS, .example = "200",
        .doc = "Steps between evaluations on data.valid, or on what data.split holds out; 0: never."),
    KEY("eval.batches", RECIPE_INT, eval.batches, "20", .least = 1, .most = MANY, .example = "20",
        .doc = "Global batches of an evaluation; where there are several corpora to evaluate on, they take turns."),
    KEY("eval.patience", RECIPE_LONG, eval.patience, "0", .least = 0, .most = STEPS,
        .doc = "Ends the run early, with a checkpoint, after this many evaluations in a row that do not lower the best "
               "held-out loss. Resuming it trains on only with another value. 0: never."),

    KEY("watchdog.start", RECIPE_REAL, watchdog.start, "1800", .least = 0, .most = 1e9,
        .doc = "Seconds that a rank may take to start: memory, weights, checkpoint. A rank that takes longer is named "
               "and the "
               "run ends, as with the other limits. 0: no limit."),
    KEY("watchdog.data", RECIPE_REAL, watchdog.data, "600", .least = 0, .most = 1e9,
        .doc = "Seconds that a rank may wait for a batch of data."),
    KEY("watchdog.step", RECIPE_REAL, watchdog.step, "3600", .least = 0, .most = 1e9,
        .doc = "Seconds that a step, or a batch of an evaluation, may take."),
    KEY("watchdog.checkpoint", RECIPE_REAL, watchdog.checkpoint, "1800", .least = 0, .most = 1e9,
        .doc = "Seconds that saving a checkpoint may take."),

    KEY("run.dir", RECIPE_PATH, run.dir, .required = true, .example = "runs/demo", .of_this_start = true,
        .doc = "The run's folder: the effective recipe, `metrics.jsonl`, `checkpoints/`. Locked while in use."),
    KEY("run.seed", RECIPE_LONG, run.seed, "1234", .least = 0, .most = INFINITY, .example = "1234", .another_run = true,
        .doc = "Seed of initial weights, data order and dropout; the same bits under every mesh."),
    KEY("run.comm", RECIPE_CHOICE, run.comm, "auto", .words = comm_words, .example = "auto", .inference = true,
        .doc = "How ranks talk. `local`: they are threads of this process. `mpi`: they are processes that `mpirun` or "
               "`srun` has "
               "started. `auto`: `mpi` where one of these has started more than one, else `local`."),
    KEY("run.backend", RECIPE_CHOICE, run.backend, "auto", .words = backend_words, .example = "auto", .inference = true,
        .doc = "What computes."),
    KEY("run.threads", RECIPE_INT, run.threads, "auto", .least = 1, .most = 4096, .has_auto = true, .automatic = 0,
        .example = "auto", .inference = true,
        .doc = "Threads of all local ranks together, of which each has at least one; auto: the cores that this process "
               "may use."),
    KEY("run.work_stealing", RECIPE_BOOL, run.work_stealing, "true", .inference = true,
        .doc = "Work stealing: a local rank that waits for another (in a pipeline's bubble) helps with the kernels of "
               "those that compute, if every thread has a core. Results are bit-identical either way."),
    KEY("run.log_every", RECIPE_LONG, run.log_every, "10", .least = 1, .most = STEPS,
        .doc = "Steps between progress lines where the output is not a terminal."),
    KEY("run.dump_gradients", RECIPE_PATH, run.dump_gradients,
        .doc = "A folder for the gathered gradients of the first steps, `step-N.safetensors`."),
    KEY("run.dump_steps", RECIPE_LONG, run.dump_steps, "1", .least = 1, .most = STEPS,
        .doc = "How many first steps run.dump_gradients writes."),
    KEY("run.non_finite", RECIPE_CHOICE, run.non_finite, "skip", .words = non_finite_words, .example = "skip",
        .doc = "What follows when a gradient is infinite or not a number, and a loss scale is not the cause. The first "
               "such value is "
               "named and the step is skipped (not with parallel.update: in_backward, where backward has applied it); "
               "then the run goes on (skip; it ends after 20 such steps in a row), ends (stop), or goes on from the "
               "weights of the newest checkpoint with the next batches (rollback; at most 3 times without a finite "
               "step saved in between)."),
    KEY("run.desync_check", RECIPE_BOOL, run.desync_check, "false",
        .doc = "For debugging: after each step all ranks compare which collectives they issued, in which order, and "
               "the bits of every variable that several of them hold. The first difference ends the run with a message "
               "that names the ranks, the step and the variable."),
    KEY("run.tensorboard", RECIPE_BOOL, run.tensorboard, "true",
        .doc = "Whether run.dir gets event files for TensorBoard beside `metrics.jsonl`."),
    KEY("run.trace", RECIPE_PATH, run.trace,
        .doc = "A file for what every rank did when in a few steps, kernel by kernel; ui.perfetto.dev and "
               "chrome://tracing "
               "open it."),
    KEY("run.trace_first", RECIPE_LONG, run.trace_first, "3", .least = 1, .most = STEPS,
        .doc = "The first step in run.trace."),
    KEY("run.trace_steps", RECIPE_LONG, run.trace_steps, "2", .least = 1, .most = 1000,
        .doc = "How many steps run.trace shows."),

    LATER("parallel.context"),
    LATER("parallel.ep"),
    LATER("parallel.tensor"),
};
const int recipe_key_count = sizeof recipe_keys / sizeof *recipe_keys;

const RecipeAlias recipe_aliases[] = {
#define RECIPE_ALIAS(old, key, ...) {old, key, {__VA_ARGS__}},
#include "recipe/recipe_aliases.def"
};
const int recipe_alias_count = sizeof recipe_aliases / sizeof *recipe_aliases;

const RecipeAlias *recipe_alias_find(const char *old) {
  for (int i = 0; i < recipe_alias_count; i++)
    if (!strcmp(recipe_aliases[i].old, old)) return &recipe_aliases[i];
  return NULL;
}

const char *recipe_alias_value(const RecipeAlias *alias, const char *value) {
  for (size_t i = 0; i < sizeof alias->values / sizeof *alias->values && alias->values[i][0]; i++)
    if (!strcmp(alias->values[i][0], value)) return alias->values[i][1];
  return value;
}

const RecipeKey *recipe_key_find(const char *path) {
  for (int i = 0; i < recipe_key_count; i++)
    if (!strcmp(recipe_keys[i].path, path)) return &recipe_keys[i];
  return NULL;
}

int recipe_key_section_length(const RecipeKey *key) {
  const char *dot = strchr(key->path, '.');
  return dot ? (int)(dot - key->path) : 0;
}

const char *recipe_key_leaf(const RecipeKey *key) {
  int length = recipe_key_section_length(key);
  return length ? key->path + length + 1 : key->path;
}

bool recipe_section_exists(const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < recipe_key_count; i++)
    if (length && (size_t)recipe_key_section_length(&recipe_keys[i]) == length &&
        !strncmp(recipe_keys[i].path, name, length))
      return true;
  return false;
}

const RecipeWord *recipe_word(const RecipeKey *key, const char *name) {
  for (const RecipeWord *w = key->words; w && w->name; w++)
    if (!strcmp(w->name, name)) return w;
  return NULL;
}

static bool is_word(const RecipeKey *key, const char *name, int value) {
  const RecipeWord *word = recipe_word(key, name);
  return word && word->value == value;
}

static bool row_has_axis(const Recipe *recipe, const RecipeKey *key, const char *name) {
  LayoutWords axes =
      recipe_layout_row(recipe, (LayoutRow)((key->offset - offsetof(Recipe, layout.rows)) / sizeof axes));
  for (int i = 0; i < axes.count; i++)
    if (!strcmp(axes.axis[i], name)) return true;
  return false;
}

bool recipe_fulfils(const Recipe *recipe, const RecipeKey *key, const char *condition) {
  const void *field = (const char *)recipe + key->offset;
  const char *text = strchr(condition, ' ') + 1;
  bool negated = condition[0] == '!';
  if (!strncmp(condition, "reads ", 6)) return optimizer_reads((Op) * (const int *)field, text);
  if (key->kind == RECIPE_BOOL) return (*(const bool *)field == !strcmp(text, "true")) != negated;
  if (key->kind == RECIPE_CHOICE) return is_word(key, text, *(const int *)field) != negated;
  if (key->kind == RECIPE_PATH) return (*(char *const *)field != NULL) != negated;
  if (key->kind == RECIPE_AXIS_LIST) return row_has_axis(recipe, key, text) != negated;
  if (key->kind == RECIPE_CORPORA && field == &recipe->data.valid) field = recipe_corpora(recipe, true); // data.split
  if (key->kind == RECIPE_CORPORA) return (((const RecipeCorpora *)field)->count > 0) != negated;
  if (key->kind != RECIPE_INT && key->kind != RECIPE_LONG) return false;
  int64_t value = key->kind == RECIPE_INT ? *(const int *)field : *(const int64_t *)field,
          least = strtoll(text, NULL, 10);
  return condition[0] == '>' ? value > least : (value == least) != negated;
}

static void range_text(const RecipeKey *key, char *out, size_t size) {
  if (key->most >= INT_MAX) snprintf(out, size, "%s %.15g", key->above ? "above" : "of at least", key->least);
  else if (key->above || key->below)
    snprintf(out, size, "in %c%.15g, %.15g%c", key->above ? '(' : '[', key->least, key->most, key->below ? ')' : ']');
  else snprintf(out, size, "from %.15g to %.15g", key->least, key->most);
}

static void words_text(const RecipeWord *words, const char *between, char *out, size_t size) {
  out[0] = 0;
  for (int i = 0; words[i].name; i++) {
    size_t n = strlen(out);
    snprintf(out + n, size - n, "%s%s%s", i ? between : "", words[i].name, words[i].later ? " (not built yet)" : "");
  }
}

void recipe_key_allowed(const RecipeKey *key, char *out, size_t size) {
  char range[128];
  range_text(key, range, sizeof range);
  switch (key->kind) {
  case RECIPE_INT:
  case RECIPE_LONG: snprintf(out, size, "an integer %s%s", range, key->has_auto ? ", or auto" : ""); break;
  case RECIPE_REAL: snprintf(out, size, "a number %s", range); break;
  case RECIPE_PAIR: snprintf(out, size, "a list of two numbers %s", range); break;
  case RECIPE_INTS: snprintf(out, size, "a list of 1 to %d integers %s", RECIPE_MAX_INTS, range); break;
  case RECIPE_AXIS_LIST: snprintf(out, size, "auto, or a list of mesh axes out of dp, cp and tp"); break;
  case RECIPE_BOOL: snprintf(out, size, "true or false"); break;
  case RECIPE_CHOICE: {
    char words[256];
    words_text(key->words, ", ", words, sizeof words);
    snprintf(out, size, "one of %s", words);
    break;
  }
  case RECIPE_PATH: snprintf(out, size, "a path"); break;
  case RECIPE_WORD_OR_PATH: {
    char words[256];
    words_text(key->words, ", ", words, sizeof words);
    snprintf(out, size, "%s, or a path", words);
    break;
  }
  case RECIPE_CORPORA: snprintf(out, size, "a path prefix, or a list of {prefix: PATH, weight: NUMBER}"); break;
  case RECIPE_LATER: snprintf(out, size, "left out"); break;
  }
}
