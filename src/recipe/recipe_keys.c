// The key table of recipes: the words that keys take, one row a key with its sentence for docs/recipes.md, the keys
// that have been renamed, and what other systems call them. recipe_key_lookup.c reads it.
#include "recipe/recipe_keys.h"
#include "parallel/parallel.h"
#include "device/device.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include <limits.h>
#include <math.h>
#include <stddef.h>

static const RecipeWord init_words[] = {{"random", 0, false}, {0}};
static const RecipeWord resume_words[] = {{"auto", 0, false}, {"never", 0, false}, {0}};
static const RecipeWord async_words[] = {
    {"auto", RECIPE_ASYNC_AUTO, false}, {"on", RECIPE_ASYNC_ON, false},   {"off", RECIPE_ASYNC_OFF, false},
    {"true", RECIPE_ASYNC_ON, false},   {"false", RECIPE_ASYNC_OFF, false}, {0},
};
static const RecipeWord overlap_words[] = {{"true", RECIPE_OVERLAP_ON, false},
                                           {"false", RECIPE_OVERLAP_OFF, false},
                                           {"auto", RECIPE_OVERLAP_AUTO, false},
                                           {0}};
static const RecipeWord recompute_words[] = {
    {"none", RECIPE_RECOMPUTE_NONE, false},
    {"selective", RECIPE_RECOMPUTE_SELECTIVE, false},
    {"full", RECIPE_RECOMPUTE_FULL, false},
    {"auto", RECIPE_RECOMPUTE_AUTO, false},
    {0},
};
static const RecipeWord gather_words[] = {{"block", GATHER_BLOCK, false}, {"layer", GATHER_LAYER, false}, {0}};
static const RecipeWord accumulate_words[] = {
    {"reduced", RECIPE_ACCUMULATE_REDUCED, false}, {"local", RECIPE_ACCUMULATE_LOCAL, false}, {0}};
static const RecipeWord update_words[] = {
    {"end", RECIPE_UPDATE_END, false}, {"in_backward", RECIPE_UPDATE_IN_BACKWARD, false}, {0}};
static const RecipeWord device_words[] = {{"auto", 0, false}, {0}};
static const RecipeWord balance_words[] = {{"even", 0, false}, {"measured", RECIPE_BALANCE_MEASURED, false}, {0}};
static const RecipeWord context_words[] = {
    {"auto", ALGORITHM_NONE, false},
#define ALGORITHM(id, choice, name, what) {name, ALGORITHM_##id, false},
#include "ir/algorithms.def"
    {0}};
static const char context_doc[] = "How attention, whose queries see the keys of all positions, crosses mesh.cp."
#define ALGORITHM(id, choice, name, what) " `" name "`: " what "."
#include "ir/algorithms.def"
                                  " `auto`: what moves the fewest elements; `plait explain RECIPE --algorithms` prints "
                                  "them. The results do not change.";
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
static const RecipeWord kv_words[] = {{"auto", RECIPE_KV_AUTO, false},
                                      {"fp64", DTYPE_F64, false},
                                      {"fp32", DTYPE_F32, false},
                                      {"bf16", DTYPE_BF16, false},
                                      {0}};
static const RecipeWord plan_words[] = {{"fixed", RECIPE_PLAN_FIXED, false}, {"auto", RECIPE_PLAN_AUTO, false}, {0}};
static const RecipeWord grad_dtype_words[] = {{"fp32", DTYPE_F32, false}, {"bf16", DTYPE_BF16, false}, {0}};
static const RecipeWord non_finite_words[] = {
    {"skip", RECIPE_SKIP, false}, {"stop", RECIPE_STOP, false}, {"rollback", RECIPE_ROLLBACK, false}, {0}};
static const RecipeWord deterministic_words[] = {
    {"auto", RECIPE_DETERMINISTIC_AUTO, false}, {"true", RECIPE_DETERMINISTIC_ON, false},
    {"false", RECIPE_DETERMINISTIC_OFF, false}, {0}};
static const RecipeWord verify_words[] = {
    {"bind", RECIPE_VERIFY_BIND, false}, {"step", RECIPE_VERIFY_STEP, false}, {"off", RECIPE_VERIFY_OFF, false}, {0}};
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
static const RecipeWord muon_scale_words[] = {
    {"adamw", MUON_SCALE_ADAMW, false}, {"original", MUON_SCALE_ORIGINAL, false}, {0}};
static const RecipeWord schedule_words[] = {
    {"cosine", RECIPE_COSINE, false},     {"linear", RECIPE_LINEAR, false}, {"wsd", RECIPE_WSD, false},
    {"constant", RECIPE_CONSTANT, false}, {0},
};
static const RecipeWord wire_words[] = {
    {"auto", RECIPE_WIRE_AUTO, false}, {"sockets", RECIPE_WIRE_SOCKETS, false}, {"ucx", RECIPE_WIRE_UCX, false}, {0}};
static const RecipeWord comm_words[] = {
    {"auto", RECIPE_COMM_AUTO, false}, {"local", RECIPE_COMM_LOCAL, false}, {"mpi", RECIPE_COMM_MPI, false},
    {"net", RECIPE_COMM_NET, false},   {"nccl", RECIPE_COMM_NCCL, true},   {0},
};
static const RecipeWord backend_words[] = {
    {"auto", DEVICE_AUTO, false},
#define DEVICE(id, name, shares) {#name, DEVICE_##id, false},
#include "device/devices.def"
    {0},
};

static const RecipeWord layout_words[] = {
    {"auto", RECIPE_LAYOUT_AUTO, false},
#define LAYOUT_SHIPPED(id, name, ...) {name, RECIPE_LAYOUT_##id, false},
#include "sharding/layout_rows.def"
    {0},
};

static const char layout_doc[] =
    "The Layout that the rows below start from; it says which mesh axes cut which dims. These come with plait:"
#define LAYOUT_SHIPPED(id, name, meaning, ...) " `" name "` (" meaning "),"
#include "sharding/layout_rows.def"
    " and auto: `sequence` if parallel.sequence is true, else `tensor`. With parallel.tensor 2d, 2.5d or 3d, "
    "auto is the Layout of that arrangement; tp_row and tp_depth in a row below are the rows and the depth of tp's "
    "ranks, and tp is what is left of them. Every Layout gives the same results.";

static const char config_doc[] = "The model, as a Hugging Face `config.json`, of one of the families"
#define FAMILY(name) " `" #name "`"
#include "model/families.def"
#undef FAMILY
    ". It may be left out if `model.init` is a folder that contains one.";

static const char pipeline_doc[] = "The pipeline schedule, for mesh.pp above 1."
#define SCHEDULE(id, name, generator, needs, meaning, ...) " `" name "`: " meaning "."
#include "schedule/schedules.def"
    ;

static const RecipeWord tensor_words[] = {
#define LAYOUT_TENSOR(id, name, ...) {name, LAYOUT_TENSOR_##id, false},
#include "sharding/layout_rows.def"
    {0},
};

static const char tensor_doc[] = "How tensor parallelism arranges tp's ranks:"
#define LAYOUT_TENSOR(id, name, meaning, ...) " `" name "`: " meaning "."
#include "sharding/layout_rows.def"
                                 " Rows and depth divide the batch as mesh.dp does: with 2d there are dp · rows data "
                                 "ranks, with 2.5d and 3d dp · depth · rows, and batch.micro is for each of them. "
                                 "`plait plan` shows what each of them would move. All give the same results.";

enum { MANY = 1 << 24, AXIS = 1 << 16 };
#define STEPS 1e15 // so that arithmetic with steps cannot overflow; messages do not mention it

#define KEY(path, kind, field, ...) {path, kind, offsetof(Recipe, field), __VA_ARGS__}

const RecipeKey recipe_keys[] = {
    KEY("model.config", RECIPE_PATH, model.config, .example = "models/gpt-small.json", .another_run = true,
        .doc = config_doc),
    KEY("model.init", RECIPE_WORD_OR_PATH, model.init, "random", .words = init_words, .example = "random",
        .another_run = true, .doc = "Where the weights start: `random`, or a Hugging Face folder to load them from."),

    KEY("data.train", RECIPE_CORPORA, data.train, .required = true, .example = "data/train", .another_run = true,
        .doc = "The token files to train on, named by their prefix (`PREFIX.bin` and `PREFIX.idx`). A list of "
               "`{prefix, weight}` mixes several in proportion to their weights."),
    KEY("data.valid", RECIPE_CORPORA, data.valid, .example = "data/valid", .another_run = true,
        .doc = "The token files to evaluate on, written like `data.train`. Without this key and data.split, "
               "nothing is evaluated."),
    KEY("data.split", RECIPE_REAL, data.split, "0", .least = 0, .most = 0.5, .another_run = true,
        .doc = "Holds out this fraction of the documents of data.train for evaluation, instead of data.valid; "
               "`0.05` is usual. Training never sees them. The choice depends only on a document's position in "
               "its corpus."),
    KEY("data.tokenizer", RECIPE_PATH, data.tokenizer, .example = "data/tokenizer.json", .another_run = true,
        .doc = "The Hugging Face `tokenizer.json` that made the token files, or a folder with one. It is copied into "
               "the run and its exports."),
    KEY("data.seq_len", RECIPE_INT, data.seq_len, "1024", .least = 1, .most = MANY, .example = "256",
        .another_run = true, .doc = "Sequence length: tokens per sample."),
    KEY("data.document_mask", RECIPE_BOOL, data.document_mask, "true", .example = "true", .another_run = true,
        .doc = "`true`: attention and positions restart at each document, and a document's last token has no "
               "target. `false`: documents are one continuous text."),
    KEY("data.prefetch", RECIPE_INT, data.prefetch, "4", .least = 1, .most = 1024,
        .doc = "How many batches the loader reads ahead."),

    KEY("mesh.pp", RECIPE_INT, mesh.pp, "1", .least = 1, .most = AXIS, .example = "1", .inference = true,
        .doc = "Pipeline-parallel ranks: each computes some of the layers."),
    KEY("mesh.dp", RECIPE_INT, mesh.dp, "1", .least = 1, .most = AXIS, .has_auto = true, .automatic = 0, .example = "2",
        .inference = true,
        .doc = "Data-parallel ranks: each computes some of the sequences of a batch. The number of ranks is pp "
               "· dp · cp · tp; tp varies fastest, so its ranks are neighbours. auto: as many as the processes that a "
               "launcher has started allow, ranks ÷ (pp · cp · tp), rounded down; ranks that are left over are idle. "
               "Without a launcher 1: then one rank has all cores. A run may resume with another number of ranks: it "
               "has the same samples in the same order."),
    KEY("mesh.cp", RECIPE_INT, mesh.cp, "1", .least = 1, .most = AXIS, .example = "1", .inference = true,
        .doc = "Context-parallel ranks: each reads and computes a part of every sequence; parallel.context says how "
               "attention sees the rest. With gather and ring a part is two pieces, of which one lies as far from the "
               "sequence's end as the other from its start, so that causal attention is the same work for all; "
               "data.seq_len must then be a multiple of 2 · cp. With ulysses it is one piece, and data.seq_len a "
               "multiple of cp. ZeRO shards over "
               "dp · cp."),
    KEY("mesh.tp", RECIPE_INT, mesh.tp, "1", .least = 1, .most = AXIS, .example = "1", .inference = true,
        .doc = "Tensor-parallel ranks: each computes some of the heads, of the feed-forward layer and of the "
               "vocabulary."),

    KEY("parallel.zero", RECIPE_INT, parallel.zero, "0", .least = 0, .most = 3, .example = "0", .inference = true,
        .doc = "ZeRO stage. 0: every data-parallel rank stores everything. 1: the optimizer state and the stored "
               "weights are sharded over them (the copy that computes remains whole on every data rank), 2: the "
               "gradients as well, 3: that copy as well (FSDP)."),
    KEY("parallel.reshard", RECIPE_BOOL, parallel.reshard, "true", .inference = true,
        .doc = "With zero 3. `true`: gathered parameters are freed after each use and gathered again for the "
               "next. `false`: they are gathered once a step and kept, which takes the memory of zero 2 and a "
               "third of the traffic."),
    KEY("parallel.gather", RECIPE_MB, parallel.gather, "block", .words = gather_words, .least = 1, .most = 1 << 20,
        .example = "block", .inference = true,
        .doc = "With zero 3: what is gathered at a time, one such unit ahead of the one that is computed with. "
               "`block`: all parameters of a block. `layer`: one layer's, as a weight and its bias. `N MB`: as many "
               "neighbours as have N megabytes. Smaller units take less memory and more, smaller messages. "
               "`plait plan` prints the peak of each."),
    KEY("parallel.shard_group", RECIPE_INT, parallel.shard_group, "0", .least = 0, .most = AXIS, .inference = true,
        .doc = "Hybrid sharding (HSDP): zero shards over groups of this many neighbouring data ranks (the ranks "
               "of one node, for example) and replicates over the groups. It must divide mesh.dp. 0: over all "
               "data ranks."),
    KEY("parallel.unsplit_tensors", RECIPE_BOOL, parallel.unsplit_tensors, "false", .inference = true,
        .doc = "How zero divides over data ranks: every rank stores an equal shard of every tensor (false), or every "
               "tensor (tp's shard of it) is stored unsplit on one of the ranks (true), for optimizers that need whole "
               "matrices. The ranks' memory then differs by at most the largest tensor of their stage."),
    KEY("parallel.sequence", RECIPE_BOOL, parallel.sequence, "false", .inference = true,
        .doc = "Sequence parallelism: between tensor-parallel regions, the sequence is sharded over mesh.tp."),
    KEY("parallel.tensor", RECIPE_CHOICE, parallel.tensor, "1d", .words = tensor_words, .example = "1d",
        .inference = true, .doc = tensor_doc),
    KEY("parallel.rows", RECIPE_INT, parallel.rows, "auto", .least = 1, .most = AXIS, .has_auto = true, .automatic = 0,
        .inference = true,
        .doc = "With parallel.tensor 2d or 2.5d: the rows of tp's ranks; the rest are columns. Each row has samples of "
               "its own and counts as a data rank (batch.micro). auto: as near to a square as mesh.tp (÷ "
               "parallel.depth) allows."),
    KEY("parallel.depth", RECIPE_INT, parallel.depth, "auto", .least = 1, .most = AXIS, .has_auto = true,
        .automatic = 0, .inference = true,
        .doc = "With parallel.tensor 2.5d: the depth of tp's ranks, how many grids of rows and columns there are. Each "
               "grid has samples of its own, as each row. auto: the least above 1 that leaves a square."),
    KEY("parallel.summa", RECIPE_BOOL, parallel.summa, "false", .inference = true,
        .doc = "With parallel.tensor 2d or 2.5d and as many rows as columns: matrix products run in as many steps, in "
               "each of which one block of every operand that lies elsewhere is broadcast, instead of gathering the "
               "operands whole (SUMMA). Operands move as much, in more and smaller messages; results of CPUs move "
               "(1 + 1/rows) times as much, from 3 rows on. Of a gathered operand two blocks are held. Worth it from "
               "3 rows on."),
    KEY("parallel.recompute", RECIPE_WORD_OR_LIST, parallel.recompute, "none", .words = recompute_words,
        .example = "none",
        .doc = "Activation recomputation: what backward computes again instead of storing it. `full`: all of a "
               "block. `selective`: what is cheap compared with the matrix products and attention. Activations "
               "and norms run again in any case. `auto`: the list of "
               "blocks and segments that costs the least time within parallel.memory. A list says it block by block, "
               "as in `[full x 4, selective x 2, keep x 6]`; blocks in parentheses are a segment, of which only the "
               "first input is kept: `[(keep x 3) x 2, keep x 6]`. A list for fewer blocks begins again. The results "
               "do not change. With pipeline zb-h1 and zb-v it saves little, or takes more; `plait plan` prints how "
               "much. docs/recompute.md explains lists and auto."),
    KEY("parallel.memory", RECIPE_BYTES, parallel.memory, .least = 1, .most = 1e15,
        .doc = "With parallel.recompute auto: the bytes that a rank may use in all, everything that `plait plan` adds "
               "up. As in `2GB`, `1.5GB`, `800MB` (powers of 1000), or bytes."),
    KEY("parallel.recompute_layers", RECIPE_INT, parallel.recompute_layers, "0", .least = 0, .most = MANY,
        .doc = "How many blocks of each pipeline stage are recomputed. 0: all."),
    KEY("parallel.pipeline", RECIPE_CHOICE, parallel.pipeline, "1f1b", .words = pipeline_words, .inference = true,
        .doc = pipeline_doc),
#define TRANSFORM_OF_parallel(...) KEY(__VA_ARGS__),
#include "recipe/recipe_transforms.h"
    KEY("parallel.stages_per_rank", RECIPE_INT, parallel.stages_per_rank, "auto", .least = 1, .most = 64,
        .has_auto = true, .automatic = 0, .inference = true,
        .doc = "Pipeline stages per rank; stage s runs on pipeline rank s mod mesh.pp. Under zb-v stages go there and "
               "back: rank r has stages r and 2 · mesh.pp − 1 − r. auto: the fewest that the schedule runs."),
    KEY("parallel.layers", RECIPE_INTS, parallel.layers, .least = 0, .most = INT_MAX, .inference = true,
        .doc = "How many layers each of the mesh.pp · parallel.stages_per_rank stages has, for example `[1, 2, "
               "1]`. The embedding belongs to the first stage and the head to the last, so these two may have 0. "
               "Without this key, stages are cut so that the busiest pipeline rank computes as little as possible."),
    KEY("parallel.overlap", RECIPE_CHOICE, parallel.overlap, "true", .words = overlap_words, .example = "true",
        .inference = true,
        .doc = "Overlap communication with computation: collectives start as soon as their operands are ready, "
               "and parameters are gathered one block before they are used. `false`: each collective is waited "
               "for where it is issued. `auto`: the one of them whose step, simulated on run.cluster (or `--cluster`), "
               "is shorter; without a cluster `true`. The results do not change."),
    KEY("parallel.bucket_mb", RECIPE_INT, parallel.bucket_mb, "25", .least = 0, .most = 1 << 20, .inference = true,
        .doc = "Bucket size: how many megabytes of gradients (and of parameters with zero 3) are communicated "
               "together. 0: each tensor alone, and no parallel.overlap."),
    KEY("parallel.grad_dtype", RECIPE_CHOICE, parallel.grad_dtype, "fp32", .words = grad_dtype_words, .example = "fp32",
        .doc = "The number format in which gradients are accumulated and reduced. bf16 halves their memory and "
               "traffic, but has only 8 bits of precision: a microbatch's addend below 1/256 of the sum is lost "
               "(for the head's weight, the addend of some hundred rows). "
               "With precision fp64, fp32 here means fp64."),
    KEY("parallel.accumulate", RECIPE_CHOICE, parallel.accumulate, "reduced", .words = accumulate_words,
        .example = "reduced",
        .doc = "With zero 2 and 3: where the gradients of a step's microbatches are added up. `reduced`: each "
               "microbatch's are reduced over the data ranks, and a rank adds up its shard. `local`: every rank adds "
               "up its own microbatches' whole gradients, which are reduced once a step: less is communicated, and a "
               "rank keeps whole gradients."),
    KEY("parallel.update", RECIPE_CHOICE, parallel.update, "end", .words = update_words, .example = "end",
        .doc = "When parameters are updated. `end`: all at the end of the step. `in_backward`: each as soon as "
               "its gradient is complete, which frees the gradient's memory; this requires one microbatch per "
               "step, optimizer.clip 0, run.non_finite stop or rollback, and a precision without a loss scale. "
               "Parameters shared by several layers are always updated at the end."),

    KEY("parallel.context", RECIPE_CHOICE, parallel.context, "auto", .words = context_words, .inference = true,
        .doc = context_doc),
    KEY("parallel.ulysses", RECIPE_INT, parallel.ulysses, "auto", .least = 1, .most = AXIS, .has_auto = true,
        .automatic = 0, .inference = true,
        .doc = "Ranks of mesh.cp, neighbours, that exchange positions for heads inside a ring: with parallel.context "
               "ring, mesh.cp is rings of mesh.cp / parallel.ulysses such groups. auto: with ulysses all of mesh.cp, "
               "else none."),

    KEY("parallel.ep", RECIPE_INT, parallel.ep, "1", .least = 1, .most = AXIS, .inference = true,
        .doc =
            "Expert parallelism: the number of ranks that have different experts, the innermost of dp · cp · tp: all "
            "of tp, then "
            "all of cp, then a part of dp. Rows of tokens go to the ranks of their experts and back (all_to_all). It "
            "must divide the number of experts. 1: as layout.expert says."),
    KEY("layout.name", RECIPE_CHOICE, layout.name, "auto", .words = layout_words, .inference = true, .doc = layout_doc),
#define LAYOUT_ROW(id, name, meaning)                                                                                  \
  KEY("layout." name, RECIPE_AXIS_LIST, layout.rows.row[LAYOUT_ROW_##id], "auto", .inference = true,                   \
      .doc = "The mesh axes that cut " meaning ", outermost first. `[]`: none. auto: as layout.name says."),
#include "sharding/layout_rows.def"

    KEY("plan", RECIPE_CHOICE, plan, "fixed", .words = plan_words, .example = "fixed",
        .doc =
            "`auto`: `plait train` first searches for the fastest plan on run.cluster, as `plait plan --search` does: "
            "the keys of mesh, parallel and layout that the recipe does not give, and batch.micro, are chosen; none "
            "of them changes what is learned. It prints what it chose and why, and the run's recipe.yaml keeps the "
            "plan (with `plan: fixed`). The same command resumes on another number of ranks and plans anew. "
            "`fixed`: the keys are as the recipe says."),
    KEY("precision", RECIPE_CHOICE, precision, "fp32", .words = precision_words, .example = "fp32", .inference = true,
        .doc = "The number format of weights and activations. bf16 and fp16 keep fp32 master weights, moments "
               "and sums. fp16 is slow on CPUs, which convert it to fp32 for computing. `auto`: bf16 where this "
               "machine computes it fast (AMX, or AVX-512 BF16), else fp32; a run keeps the choice of its first "
               "start, on any machine."),

    KEY("loss_scale.initial", RECIPE_REAL, loss_scale.initial, "65536", .least = 1, .most = 1e9,
        .doc = "fp16: the initial loss multiplier, which keeps small gradients from vanishing. A step whose "
               "gradients overflow is skipped and halves the scale. Only precision: fp16 accepts this key."),
    KEY("loss_scale.growth_interval", RECIPE_LONG, loss_scale.growth_interval, "2000", .least = 0, .most = STEPS,
        .doc = "fp16: the loss scale doubles after this many steps without overflow. 0: never."),

    KEY("moe.balance_loss", RECIPE_REAL, moe.balance_loss, "auto", .least = 0, .most = 1e6, .has_auto = true,
        .automatic = -1,
        .doc =
            "Models with experts: how much the balance loss weighs, which keeps the experts of a layer equally busy "
            "(Fedus et al., 2022). For a layer and a sequence it is E · Σ f · P over the E experts: f is the share of "
            "the sequence's tokens that go to an expert, P the mean probability that the router gives it. It is at "
            "least about 1, where all are alike; the mean over layers and sequences is added to the loss. auto: "
            "router_aux_loss_coef of model.config. 0: it is only measured."),
    KEY("moe.z_loss", RECIPE_REAL, moe.z_loss, "0", .least = 0, .most = 1e6,
        .doc = "Models with experts: the coefficient of the z loss, which keeps the router's logits small (Zoph et "
               "al., 2022): the mean of their squared logsumexp. 1e-3 is usual. 0: it is only measured."),
    KEY("moe.bias_rate", RECIPE_REAL, moe.bias_rate, "0", .least = 0, .most = 1, .another_run = true,
        .doc = "Models with experts: loss-free balancing (Wang et al., 2024). Each expert has a bias, added to its "
               "probability when experts are chosen and nowhere else. After each step the bias of an expert that was "
               "chosen more often than the mean falls by this rate, that of another rises. 1e-3 is usual, with "
               "moe.balance_loss: 0; both together work too. A Hugging Face folder cannot hold biases: `plait export` "
               "says so and asks for --force. 0: there are none."),
#define TRANSFORM_OF_moe(...) KEY(__VA_ARGS__),
#include "recipe/recipe_transforms.h"

    KEY("batch.global", RECIPE_INT, batch.global, "64", .least = 1, .most = MANY, .example = "64",
        .doc = "Sequences per step, over all ranks. The number need not be divisible: some data ranks then get "
               "one sequence fewer than others, or none, and `plait plan` says how much of their time is idle."),
    KEY("batch.micro", RECIPE_INT, batch.micro, "8", .least = 1, .most = MANY, .example = "8", .inference = true,
        .doc =
            "Microbatch: the most sequences that a data rank computes at a time. With parallel.tensor 2d, 2.5d or "
            "3d each row (and depth) of tp's ranks is a data rank, and its columns compute these sequences together. "
            "The result of a step does not depend on it."),
    KEY("batch.balance", RECIPE_INTS, batch.balance, "even", .words = balance_words, .least = 1, .most = 1000000,
        .example = "even",
        .doc = "How the sequences of a step are divided among the data ranks. `even`: equally, to one sequence. "
               "`[3, 1]`: in proportion to these weights, one for each data rank. `measured`: as fast as the ranks "
               "turn out to be: every 10 steps they compare their seconds per sequence, and shares change where "
               "that makes a step 5 % shorter. metrics.jsonl has the shares. The result of a step does not depend on "
               "it, beyond rounding."),
    KEY("batch.most", RECIPE_REAL, batch.most, "1.5", .least = 1, .above = true, .most = 1024,
        .doc =
            "With batch.balance measured: the most sequences that a data rank gets, as a multiple of the even share. "
            "Microbatches and memory are planned for this number."),
    KEY("batch.replay", RECIPE_PATH, batch.replay,
        .doc = "With batch.balance measured: the metrics.jsonl of a run to repeat to the bit. Shares change where they "
               "did there, and nothing is measured."),

    KEY("optimizer.name", RECIPE_CHOICE, optimizer.name, default_optimizer, .words = optimizer_words,
        .meaning = optimizer_meaning, .example = default_optimizer, .doc = "The update rule."),
    KEY("optimizer.lr", RECIPE_REAL, optimizer.lr, "3e-4", .least = 0, .most = 1e6, .example = "3e-4",
        .doc = "The peak learning rate, after the warm-up."),
    KEY("optimizer.betas", RECIPE_PAIR, optimizer.betas, "[0.9, 0.95]", .least = 0, .most = 1, .below = true,
        .example = "[0.9, 0.95]", .doc = "Decay rates of the first and second moment."),
    KEY("optimizer.weight_decay", RECIPE_REAL, optimizer.weight_decay, "0.1", .least = 0, .most = 1e6, .example = "0.1",
        .doc = "Weight decay of matrices and embeddings. Norms and biases are not decayed."),
    KEY("optimizer.epsilon", RECIPE_REAL, optimizer.epsilon, "1e-8", .least = 0, .most = 1, .above = true,
        .doc = "Added to the square root of the second moment."),
    KEY("optimizer.momentum", RECIPE_REAL, optimizer.momentum, "0", .least = 0, .most = 1, .below = true,
        .doc = "Momentum."),
    KEY("optimizer.muon_scale", RECIPE_CHOICE, optimizer.muon_scale, "adamw", .words = muon_scale_words,
        .doc = "How long an update of a matrix is. `adamw`: 0.2 · √max(rows, columns) times the orthogonal matrix, "
               "about as long as adamw's, so that adamw's learning rate and weight decay fit (Liu et al., 2025). "
               "`original`: √max(1, rows ÷ columns) times it (Jordan et al., 2024)."),
#define TRANSFORM_OF_optimizer(...) KEY(__VA_ARGS__),
#include "recipe/recipe_transforms.h"
    KEY("optimizer.clip", RECIPE_REAL, optimizer.clip, "1.0", .least = 0, .most = INFINITY, .example = "1.0",
        .doc = "Gradient clipping: gradients with a larger global norm are scaled down to this norm. 0 disables "
               "clipping."),
    KEY("optimizer.delay", RECIPE_INTS, optimizer.delay, "0", .least = 0, .most = MAX_DELAY, .one_for_all = true,
        .another_run = true,
        .doc = "Delayed gradients: the gradient of a step is taken at the weights of this many steps ago (at first, at "
               "the initial weights), as in pipelines that never drain, on any mesh with the same numbers. A list has "
               "one number for each layer; the embedding has the first layer's, the head the last one's. Each step of "
               "delay keeps another copy of the weights. Evaluation and export use the newest weights. pipeline 2bw "
               "wants 1, and pipedream the number of stages after each layer's; a message prints the list where it is "
               "wrong."),

    KEY("schedule.name", RECIPE_CHOICE, schedule.name, "cosine", .words = schedule_words, .example = "cosine",
        .doc = "The learning rate after a linear warm-up. `cosine`: a cosine down to min_lr. `linear`: a "
               "straight line down to min_lr. `wsd`: constant, then a straight line at the end. `constant`: "
               "constant."),
    KEY("schedule.warmup", RECIPE_LONG, schedule.warmup, "0", .least = 0, .most = INFINITY, .example = "100",
        .doc = "Steps of linear warm-up: step n of w uses lr · (n + 1) / w."),
    KEY("schedule.steps", RECIPE_LONG, schedule.steps, "1000", .least = 1, .most = STEPS, .example = "2000",
        .doc = "Steps of the whole run."),
    KEY("schedule.min_lr", RECIPE_LR, schedule.min_lr, "0", .least = 0, .most = 1e6, .example = "10 %",
        .doc = "The learning rate at the end; at most optimizer.lr, or a share of it."),
    KEY("schedule.decay_steps", RECIPE_LONG, schedule.decay_steps, "auto", .least = 0, .most = STEPS, .has_auto = true,
        .automatic = -1, .doc = "wsd: how many of the last steps go down to min_lr. auto: a tenth of schedule.steps."),

    KEY("checkpoint.every", RECIPE_LONG, checkpoint.every, "500", .least = 0, .most = STEPS, .example = "500",
        .doc = "Steps between checkpoints. 0: only one, at the end. A run that a signal stops saves one as well."),
    KEY("checkpoint.keep", RECIPE_INT, checkpoint.keep, "3", .least = 0, .most = INT_MAX, .example = "3",
        .doc = "How many of the newest checkpoints are kept. 0: all."),
    KEY("checkpoint.best", RECIPE_BOOL, checkpoint.best, "false",
        .doc = "Saves a checkpoint whenever the held-out loss is the lowest so far, and keeps the best one in "
               "addition to the newest. `RUN/checkpoints/best` is a link to it; `plait eval`, `generate` and "
               "`export` accept it."),
    KEY("checkpoint.async", RECIPE_CHOICE, checkpoint.async, "auto", .words = async_words, .example = "auto",
        .doc = "Checkpoints are written while the next steps run; the files are the same. `on`: each rank keeps memory "
               "for a copy of what it writes, which `plait plan` shows. `off`: steps wait until the files are written. "
               "`auto`: on where that memory is there. The checkpoint that ends a run is always waited for. `true` and "
               "`false` mean `on` and `off`."),
    KEY("checkpoint.memory_every", RECIPE_LONG, checkpoint.memory_every, "0", .least = 0, .most = STEPS,
        .doc = "Under `plait launch`, with a process for each rank: steps between copies of the state that are kept in "
               "memory only, so that a crash of processes loses at most this many steps. Two copies are kept in turn, "
               "which `plait plan` shows. 0: none."),
    KEY("checkpoint.copies", RECIPE_INT, checkpoint.copies, "0", .least = 0, .most = 1,
        .doc = "1: what `checkpoint.memory_every` keeps is also kept on the next machine of `plait launch`, so that a "
               "lost machine costs no more steps than a crash of processes, also where each machine has only a part of "
               "the state (`parallel.zero`). It takes as much memory again, which `plait plan` shows. 0: only on its "
               "own machine."),
    KEY("checkpoint.resume", RECIPE_WORD_OR_PATH, checkpoint.resume, "auto", .words = resume_words, .example = "auto",
        .of_this_start = true,
        .doc = "`auto`: resume from the newest valid checkpoint in run.dir, if there is one. `never`: start from "
               "the beginning. A folder: start from this checkpoint; once the run has later checkpoints of its own, it "
               "resumes from those. If run.dir holds later checkpoints already, of a run that did not begin there, "
               "that is refused without `--force`, which moves them aside."),

    KEY("eval.every", RECIPE_LONG, eval.every, "200", .least = 0, .most = STEPS, .example = "200",
        .doc = "Steps between evaluations on data.valid, or on the documents that data.split holds out. 0: "
               "never."),
    KEY("eval.batches", RECIPE_INT, eval.batches, "20", .least = 1, .most = MANY, .example = "20",
        .doc = "Global batches per evaluation. Several corpora take turns."),
    KEY("eval.patience", RECIPE_LONG, eval.patience, "0", .least = 0, .most = STEPS,
        .doc = "Early stopping: the run ends, with a checkpoint, after this many evaluations in a row that do "
               "not lower the best held-out loss. It resumes only with another value. 0: never."),

    KEY("infer.context", RECIPE_INT, infer.context, "auto", .least = 1, .most = MANY, .has_auto = true, .automatic = 0,
        .inference = true, .generation = true,
        .doc = "The most tokens that a request looks back on; where they are full, the newer half stays. auto: as in "
               "training, or as the model's config says, and at most 4096, since the cache of keys and values takes "
               "memory."),
    KEY("infer.requests", RECIPE_INT, infer.requests, "auto", .least = 1, .most = 4096, .has_auto = true,
        .automatic = 0, .inference = true, .generation = true,
        .doc = "How many requests each data rank computes at a time; a request's text does not depend on it. auto: 8, "
               "and 1 for `plait generate --prompt`."),
    KEY("infer.tokens", RECIPE_INT, infer.tokens, "auto", .least = 1, .most = 65536, .has_auto = true, .automatic = 0,
        .inference = true, .generation = true,
        .doc =
            "How many tokens each data rank computes in a tick at most, of all its requests together. auto: the size "
            "from which on a token of a prompt costs no less, at most 1024, where `plait probe` has measured this "
            "machine and ranks are threads; else 256. At least one for each request."),
    KEY("infer.page", RECIPE_INT, infer.page, "32", .least = 1, .most = 4096, .inference = true, .generation = true,
        .doc = "Tokens of a page of the cache. Requests that begin with the same tokens share whole pages."),
    KEY("infer.kv_memory", RECIPE_BYTES, infer.kv_memory, .least = 1, .most = 1e15, .inference = true,
        .generation = true,
        .doc = "The bytes of each data rank's cache of keys and values, on all ranks that share it, as in `2GB`. "
               "Requests that find no room in it wait. Without this key there is room for all of infer.requests at "
               "their longest."),
    KEY("infer.kv_dtype", RECIPE_CHOICE, infer.kv_dtype, "auto", .words = kv_words, .inference = true,
        .generation = true,
        .doc =
            "The number format of the cache of keys and values: that of precision (auto), or a narrower one, in which "
            "more requests fit. Keys and values are then rounded, so that log-probabilities are no longer those "
            "of `plait eval` to the bit."),
    KEY("infer.prefix", RECIPE_BOOL, infer.prefix, "true", .inference = true, .generation = true,
        .doc = "Whether pages of ended requests are kept, while there is room, for later requests that begin with the "
               "same tokens."),
    KEY("infer.speculate", RECIPE_INT, infer.speculate, "0", .least = 0, .most = 16, .inference = true,
        .generation = true,
        .doc = "How many tokens are guessed for a request in a tick, by what followed its last ones before, and "
               "verified at once: the same text, sooner where it repeats itself."),
    KEY("infer.in_flight", RECIPE_INT, infer.in_flight, "auto", .least = 1, .most = 64, .has_auto = true,
        .automatic = 0, .inference = true, .generation = true,
        .doc = "How many ticks of different requests are under way at a time: with mesh.pp each stage computes another "
               "one. auto: mesh.pp."),

    KEY("watchdog.start", RECIPE_REAL, watchdog.start, "1800", .least = 0, .most = 1e9,
        .doc = "How many seconds a rank may take to start: memory, weights, checkpoint. After this limit, or one "
               "of the others below, the run ends with a message that names the rank. 0: no limit."),
    KEY("watchdog.data", RECIPE_REAL, watchdog.data, "600", .least = 0, .most = 1e9,
        .doc = "How many seconds a rank may wait for a batch of data."),
    KEY("watchdog.step", RECIPE_REAL, watchdog.step, "3600", .least = 0, .most = 1e9,
        .doc = "How many seconds a step, or a batch of an evaluation, may take."),
    KEY("watchdog.checkpoint", RECIPE_REAL, watchdog.checkpoint, "1800", .least = 0, .most = 1e9,
        .doc = "How many seconds saving a checkpoint may take."),

    KEY("run.dir", RECIPE_PATH, run.dir, .required = true, .example = "runs/demo", .of_this_start = true,
        .doc = "The run's folder, for the effective recipe, `metrics.jsonl` and `checkpoints/`. It is locked "
               "while a run uses it."),
    KEY("run.seed", RECIPE_LONG, run.seed, "1234", .least = 0, .most = INFINITY, .example = "1234", .another_run = true,
        .doc = "Seed of the initial weights, the data order and dropout. Every mesh gets the same bits from it."),
    KEY("run.comm", RECIPE_CHOICE, run.comm, "auto", .words = comm_words, .example = "auto", .inference = true,
        .doc = "How ranks communicate. `local`: they are threads of this process. `mpi`: they are processes, "
               "started by `mpirun` or `srun`. `net`: they are processes that any launcher has started, and talk "
               "without MPI (docs/launch.md). `auto`: `mpi` if an MPI finds more than one process, `net` if a "
               "launcher has started several otherwise, else `local`."),
    KEY("run.wire", RECIPE_CHOICE, run.wire, "auto", .words = wire_words, .inference = true,
        .doc =
            "With `run.comm: net`: what carries the messages of ranks. `auto`: shared memory by UCX between the ranks "
            "of a machine (Unix sockets where there is no UCX), and plait's own TCP connections between machines. "
            "`sockets`: Unix sockets and TCP. `ucx`: UCX for all, as for InfiniBand or RoCE; it opens ports that "
            "obey whoever reaches them, so nobody else may be in that network (docs/launch.md)."),
    KEY("run.silence", RECIPE_REAL, run.silence, "5", .least = 0.2, .most = 1e6,
        .doc =
            "With `run.comm: net`: how many seconds a rank may say nothing before it counts as dead. Its process, not "
            "its computing, says ten times in that time that it is alive."),
    KEY("run.backend", RECIPE_CHOICE, run.backend, "auto", .words = backend_words, .example = "auto", .inference = true,
        .doc = "The device that computes: `cpu`, or `cuda`, an NVIDIA GPU (docs/cuda.md says what of it was tried on a "
               "card: so far nothing). `auto` is the CPU until a card has shown that `cuda` is right and fast."),
    KEY("run.devices", RECIPE_INTS, run.devices, "auto", .words = device_words, .least = 0,
        .most = DEVICE_MOST_NUMBERS - 1, .inference = true,
        .doc =
            "With run.backend: cuda: the numbers of the devices that the ranks of a machine take in turn, as `[0, 2]`. "
            "`auto`: all of them. Several ranks may share one."),
    KEY("run.cluster", RECIPE_NAME_OR_PATH, run.cluster,
        .doc = "The cluster that `plait plan` and `plait simulate` predict for where `--cluster` is missing, "
               "and that `plan: auto` plans for: the name of one that comes with plait (`plait cluster` lists them), "
               "a file (docs/clusters.md), or `probe`, this machine as `plait probe` measures it, which is the "
               "default. Layers are cut into pipeline stages by its seconds; but for that a run on "
               "this machine is the same with any of them."),
    KEY("run.threads", RECIPE_INT, run.threads, "auto", .least = 1, .most = 4096, .has_auto = true, .automatic = 0,
        .example = "auto", .inference = true,
        .doc = "Threads of all ranks on this machine together; each rank has at least one. auto: as many as this "
               "process may use cores."),
    KEY("run.work_stealing", RECIPE_BOOL, run.work_stealing, "true", .inference = true,
        .doc = "Work stealing: a local rank that waits for another (in a pipeline's bubble) helps with the kernels of "
               "those that compute, if every thread has a core. Results are bit-identical either way."),
    KEY("run.log_every", RECIPE_LONG, run.log_every, "10", .least = 1, .most = STEPS,
        .doc = "Steps between loss lines. On a terminal one more line shows the steps between, in place."),
    KEY("run.noise_scale", RECIPE_LONG, run.noise_scale, "0", .least = 0, .most = STEPS,
        .doc = "Measures the gradient noise scale every this many steps, for metrics and the summary: about how many "
               "sequences a batch needs before its gradient is more signal than noise (McCandlish et al., 2018). Each "
               "measurement takes as long as a step; `20` is usual. 0: never."),
    KEY("run.dump_gradients", RECIPE_PATH, run.dump_gradients,
        .doc = "For debugging: a folder that gets the whole gradients of the first steps as "
               "`step-N.safetensors`."),
    KEY("run.dump_steps", RECIPE_LONG, run.dump_steps, "1", .least = 1, .most = STEPS,
        .doc = "For how many of the first steps run.dump_gradients writes gradients."),
    KEY("run.non_finite", RECIPE_CHOICE, run.non_finite, "skip", .words = non_finite_words, .example = "skip",
        .doc = "What to do when a gradient is infinite or NaN, and a loss scale is not the cause. The first such "
               "value is always reported. `skip`: skip the step and continue; the run ends after 20 such steps "
               "in a row. `stop`: end the run. `rollback`: return to the weights of the newest checkpoint and "
               "continue with the next batches, at most 3 times without a finite step saved in between. With "
               "parallel.update: in_backward the step cannot be skipped, since backward has already applied it."),
    KEY("run.deterministic", RECIPE_CHOICE, run.deterministic, "auto", .words = deterministic_words, .example = "true",
        .doc =
            "On the CPU a run has the same bits each time. With run.backend: cuda gradients of attention by cuDNN may "
            "differ in the last bit of some elements. `true`: cuDNN makes them the same, which is slower and needs "
            "2 · samples · heads · length² bytes, which are in the plan. `auto`: as `true` where several ranks compute "
            "the same attention, or with run.desync_check; else as `false`."),
    KEY("run.verify", RECIPE_CHOICE, run.verify, "bind", .words = verify_words, .example = "step",
        .doc =
            "`bind`: with run.backend: cuda each product and attention of a library is compared with plait's own "
            "kernel before the run, which takes the place of one that is wrong. `step`: for debugging; every kernel of "
            "the first step, too, is run once more on the host, on the operands that it really had, and the first "
            "whose result is not the CPU's to rounding ends the run with its name. On the CPU kernels are compared "
            "with the reference kernels, which are slow: take a small model. `off`: nothing is compared."),
    KEY("run.desync_check", RECIPE_BOOL, run.desync_check, "false",
        .doc =
            "For debugging: after each step all ranks compare which collectives they issued, in which order, and "
            "the bits of every variable that several of them hold. The first difference ends the run with a message "
            "that names the ranks, the step and the variable. With parallel.pipeline 2bw and pipedream, which do not "
            "end a step at the same time on all ranks, it compares when the pipeline drains."),
    KEY("run.tensorboard", RECIPE_BOOL, run.tensorboard, "true",
        .doc = "Whether the run writes event files for TensorBoard to run.dir, next to `metrics.jsonl`."),
    KEY("run.trace", RECIPE_PATH, run.trace,
        .doc = "A file that records what every rank did in a few steps, kernel by kernel. Open it in "
               "ui.perfetto.dev or chrome://tracing."),
    KEY("run.trace_first", RECIPE_LONG, run.trace_first, "3", .least = 1, .most = STEPS,
        .doc = "The first step that run.trace records."),
    KEY("run.trace_steps", RECIPE_LONG, run.trace_steps, "2", .least = 1, .most = 1000,
        .doc = "How many steps run.trace records."),

};
const int recipe_key_count = sizeof recipe_keys / sizeof *recipe_keys;

const RecipeAlias recipe_aliases[] = {
#define RECIPE_ALIAS(old, key, ...) {old, key, {__VA_ARGS__}},
#include "recipe/recipe_aliases.def"
};
const int recipe_alias_count = sizeof recipe_aliases / sizeof *recipe_aliases;

const RecipeSynonym recipe_synonyms[] = {
#define RECIPE_SYNONYM(theirs, key, value, note) {theirs, key, value, note},
#define RECIPE_SYNONYM_VALUE(theirs, word)
#include "recipe/recipe_synonyms.def"
};
const int recipe_synonym_count = sizeof recipe_synonyms / sizeof *recipe_synonyms;

const char *const recipe_word_synonyms[][2] = {
#define RECIPE_SYNONYM(theirs, key, value, note)
#define RECIPE_SYNONYM_VALUE(theirs, word) {theirs, word},
#include "recipe/recipe_synonyms.def"
};
const int recipe_word_synonym_count = sizeof recipe_word_synonyms / sizeof *recipe_word_synonyms;
