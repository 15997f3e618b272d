// tier 1
// Recipes: good ones, bad ones (each with the sentence it must give), overrides, paths, round trips, hostile text.
#include "base/file.h"
#include "base/yaml.h"
#include "recipe/recipe.h"
#include "op/optimizer.h"
#include "schedule/schedule.h"
#include "recipe/recipe_keys.h"
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include "parse.h"

#define ONES_16 "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
#define ONES_64 ONES_16 ONES_16 ONES_16 ONES_16
#define ONES_256 ONES_64 ONES_64 ONES_64 ONES_64
typedef struct Bad { const char *text, *override, *message; } Bad;

static const Bad bad[] = {
    {"", NULL, "holds no keys"},
    {"# nothing\n", NULL, "holds no keys"},
    {"- a\n", NULL, "x.yaml:1:1: a recipe is a map"},
    {"run: {dir: r}\ndata: {train: t}\n", NULL, "give model.config, or set model.init to a model folder"},
    {"model: {config: m}\nrun: {dir: r}\n", NULL, "data.train must be given, as in data/train"},
    {"model: {config: m}\ndata: {train: t}\n", NULL, "run.dir must be given"},
    {BASE "batch:\n  mikro: 3\n", NULL, "x.yaml:5:3: batch.mikro: unknown key; did you mean batch.micro?"},
    {BASE "micro: 3\n", NULL, "did you mean batch.micro?"},
    {BASE "optimiser: {lr: 1}\n", NULL, "optimiser: unknown key; did you mean optimizer?"},
    {BASE "zzzzzzzzzz: 1\n", NULL, "x.yaml:4:1: zzzzzzzzzz: unknown key"},
    {BASE "\"\": 1\n", NULL, "unknown key"},
    {BASE "batch: {micro: 1, micro: 2}\n", NULL, "x.yaml:4:19: micro is given twice (first on line 4)"},
    {BASE "run: {seed: 1}\n", NULL, "run is given twice (first on line 3)"},
    {BASE "batch: 8\n", NULL, "x.yaml:4:8: batch must hold keys, as in batch: {key: value}, not \"8\""},
    {BASE "batch: [8]\n", NULL, "batch must hold keys"},
    {BASE "batch: {micro: eight}\n", NULL,
     "x.yaml:4:16: batch.micro must be an integer from 1 to 16777216, not \"eight\""},
    {BASE "batch: {micro: \"8\"}\n", NULL, "not \"8\" in quotes"},
    {BASE "batch: {micro: 8.0}\n", NULL, "must be an integer"},
    {BASE "batch: {micro: 0}\n", NULL, "must be an integer from 1"},
    {BASE "batch: {micro: -8}\n", NULL, "must be an integer from 1"},
    {BASE "batch: {micro: 99999999999999999999}\n", NULL, "must be an integer from 1"},
    {BASE "batch: {micro: 0x10}\n", NULL, "must be an integer"},
    {BASE "batch: {micro: [8]}\n", NULL, "not a list"},
    {BASE "batch: {micro: {a: 8}}\n", NULL, "not a map"},
    {BASE "batch: {micro: auto}\n", NULL, "must be an integer"},
    {BASE "run: {dir: r, threads: 0}\n", NULL, "run is given twice"},
    {BASE, "run.threads=0", "run.threads must be an integer from 1 to 4096, or auto, not \"0\""},
    {BASE, "run.seed=-1", "run.seed must be an integer of at least 0"},
    {BASE, "run.seed=9223372036854775808", "run.seed must be an integer"},
    {BASE, "optimizer.lr=fast", "optimizer.lr must be a number"},
    {BASE, "optimizer.lr=nan", "must be a number"},
    {BASE, "optimizer.lr=.inf", "must be a number"},
    {BASE, "optimizer.lr=1e999", "must be a number"},
    {BASE, "optimizer.lr=0x1p-3", "must be a number"},
    {BASE, "optimizer.lr=-1", "must be a number from 0"},
    {BASE, "optimizer.lr=1e-3e", "must be a number"},
    {BASE, "optimizer.betas=[0.9, 1]",
     "optimizer.betas must be a list of two numbers of at least 0, below 1, but it contains \"1\""},
    {BASE, "optimizer.betas=[0.9]", "list of two numbers"},
    {BASE, "optimizer.betas=0.9", "list of two numbers"},
    {BASE, "optimizer.epsilon=0", "optimizer.epsilon must be a number above 0, at most 1, not \"0\""},
    {BASE, "optimizer.clip=-1", "optimizer.clip must be a number of at least 0"},
    {BASE, "optimizer.name=adam", "did you mean adamw?"},
    {BASE, "schedule.name=cosin", "one of cosine, linear, wsd, constant, not \"cosin\"; did you mean cosine?"},
    {BASE, "data.document_mask=yes", "data.document_mask must be true or false, not \"yes\""},
    {BASE, "mesh.cp=3",
     "data.seq_len is 1024, but mesh.cp is 3 and each of its ranks has two equal pieces of a sequence; "
     "it must be a multiple of 2 · 3; the nearest data.seq_len is 1020 or 1026"},
    {BASE, "parallel.zero=4", "parallel.zero must be an integer from 0 to 3"},
    {BASE, "precision=fp8", "not built yet"},
    {BASE, "loss_scale.initial=1024",
     "loss_scale.initial is 1024, but only precision: fp16 scales the loss, and this is fp32"},
    {BASE "precision: bf16\nloss_scale: {growth_interval: 5}\n", NULL,
     "loss_scale.growth_interval is 5, but only precision: fp16"},
    {BASE "mesh: {dp: 2}\nparallel: {zero: 2, shard_group: 1}\n", NULL,
     "x.yaml:5:34: parallel.shard_group is 1, but a group of one rank shards nothing; take 0 (groups of all 2"},
    {BASE "parallel: {unsplit_tensors: true}\n", NULL,
     "x.yaml:4:29: parallel.unsplit_tensors is true, but parallel.zero is 0, with which every data rank has all"},
    {BASE "parallel: {sequence: true}\n", NULL, "x.yaml:4:22: parallel.sequence is true, but mesh.tp is 1"},
    {BASE "parallel: {recompute_layers: 2}\n", NULL,
     "x.yaml:4:30: parallel.recompute_layers is 2, but parallel.recompute is none"},
    {BASE "parallel: {recompute: auto}\n", NULL,
     "x.yaml:4:23: parallel.recompute is auto, but parallel.memory is not given; give the bytes that a rank may use, "},
    {BASE, "parallel.memory=2 GiB",
     "parallel.memory must be a number of bytes such as 2GB, 1.5GB or 800MB, not \"2 GiB\""},
    {BASE "parallel: {recompute: [full x 4, kept]}\n", NULL,
     "x.yaml:4:23: parallel.recompute: the list has kept, where keep, selective, full or a segment in parentheses "
     "must"},
    {BASE "parallel: {recompute: {full: 4}}\n", NULL, "x.yaml:4:23: parallel.recompute must be one of none, "},
    {BASE "parallel: {recompute: fuller}\n", NULL, "x.yaml:4:23: parallel.recompute must be one of none, "},
    {BASE "parallel: {recompute: [full, keep], recompute_layers: 2}\n", NULL,
     "x.yaml:4:55: parallel.recompute_layers is 2, but parallel.recompute is [full, keep], which says it for every"},
    {BASE "mesh: {dp: 2}\nparallel: {shard_group: 2}\n", NULL,
     "x.yaml:5:25: parallel.shard_group is 2, but parallel.zero is 0, which shards nothing; take zero 1, 2 or 3"},
    {BASE "mesh: {dp: 2}\nparallel: {zero: 1, accumulate: local}\n", NULL,
     "x.yaml:5:33: parallel.accumulate is local, but parallel.zero is 1, with which every rank adds up whole gradients "
     "anyway; it belongs to zero 2 and 3"},
    {BASE "parallel: {reshard: false}\n", NULL,
     "x.yaml:4:21: parallel.reshard is false, but parallel.zero is 0, which gathers once a step anyway"},
    {BASE "checkpoint: {every: 0}\n", "run.non_finite=rollback",
     "run.non_finite is rollback, but checkpoint.every is 0: without checkpoints there is nothing to roll back to; set "
     "checkpoint.every to a number of steps below schedule.steps (1000), or run.non_finite to skip or stop"},
    {BASE "schedule: {steps: 500}\n", "run.non_finite=rollback",
     "but checkpoint.every is 500 and the run has 500 steps: no checkpoint would be there before the end; set "
     "checkpoint.every below 500, or run.non_finite to skip or stop"},
    {BASE "parallel: {layers: []}\n", NULL,
     "x.yaml:4:20: parallel.layers must be a list of 1 to 1024 integers of at least 0, not an empty list"},
    {BASE "parallel: {layers: 4}\n", NULL, "must be a list of 1 to 1024 integers of at least 0, not \"4\""},
    {BASE "parallel: {layers: [1, two]}\n", NULL,
     "x.yaml:4:24: parallel.layers must be a list of 1 to 1024 integers of at least 0, but it contains \"two\""},
    {BASE "parallel: {layers: [1, -1]}\n", NULL, "but it contains \"-1\""},
    {BASE "mesh: {pp: 2}\nparallel: {layers: [1, 2, 1]}\n", NULL,
     "x.yaml:5:20: parallel.layers has 3 numbers, but must have one for each of the mesh.pp · parallel.stages_per_rank "
     "= 2 · 1 "
     "= 2 stages"},
    {BASE "mesh: {pp: 3}\nparallel: {layers: [2, 0, 2]}\n", NULL,
     "x.yaml:5:20: parallel.layers gives stage 1 no layers; only the first"},
    {BASE, "parallel.layers=[" ONES_256 ONES_256 ONES_256 ONES_256 "1]",
     "parallel.layers has 1025 numbers, but at most 1024 are allowed"},
    {BASE "precision: fp16\nloss_scale: {initial: 0.5}\n", NULL,
     "x.yaml:5:23: loss_scale.initial must be a number from 1 to 1000000000, not \"0.5\""},
    {BASE, "loss_scale.initial=-1", "loss_scale.initial must be a number"},
    {BASE, "lossscale.initial=2", "did you mean loss_scale.initial?"},
    {BASE "precision: fp64\nparallel: {grad_dtype: bf16}\n", NULL,
     "parallel.grad_dtype is bf16, but with precision: fp64 gradients are fp64"},
    {BASE, "parallel.grad_dtype=fp16", "parallel.grad_dtype must be one of fp32, bf16, not \"fp16\"; did you mean"},
    {BASE, "run.non_finite=abort", "run.non_finite must be one of skip, stop, rollback"},
    {BASE "batch: {micro: 16}\nparallel: {update: in_backward}\noptimizer: {clip: 0}\n", "run.non_finite=stop",
     "x.yaml:5:20: parallel.update is in_backward, but the gradients of 4 microbatches are "
     "accumulated, so that none is complete in backward; take batch.micro 64, or parallel.update: end"},
    {BASE "batch: {micro: 64}\nparallel: {update: in_backward}\n", NULL,
     "but optimizer.clip is 1, and the global norm is known only after backward; run.non_finite is skip, and"},
    {BASE "batch: {micro: 64}\nparallel: {update: in_backward}\noptimizer: {clip: 0}\n", NULL,
     "but run.non_finite is skip, and what backward has applied cannot be taken back"},
    {BASE "batch: {micro: 64}\nparallel: {update: in_backward}\noptimizer: {clip: 0}\nprecision: fp16\n", NULL,
     "but precision: fp16 skips steps that overflow"},
    {BASE "precision: fp16\n", "parallel.update=in_backward",
     "parallel.update is in_backward, but the gradients of 8 microbatches are accumulated, so that none is complete in "
     "backward; optimizer.clip is 1, and the "
     "global norm is known only after backward; precision: fp16 skips steps that overflow, when backward has applied "
     "them already; run.non_finite is skip, and "
     "what backward has applied cannot be taken back; take batch.micro 64 and optimizer.clip 0 and precision: bf16 and "
     "run.non_finite stop or rollback, or "
     "parallel.update: end"},
    {BASE "mesh: {pp: 2}\nbatch: {micro: 64}\nparallel: {pipeline: interleaved, update: in_backward}\n", NULL,
     "x.yaml:6:43: parallel.update is in_backward, which takes one microbatch a step, but parallel.pipeline is "
     "interleaved, which takes a multiple of mesh.pp (2)"},
    {BASE "mesh: {pp: 2}\nbatch: {micro: 64}\nparallel: {pipeline: interleaved}\n", NULL,
     "batch.global 64 makes 1 microbatch, but parallel.pipeline interleaved"},
    {BASE "parallel: {zero: 1, shard_group: 2}\n", NULL,
     "x.yaml:4:34: parallel.shard_group is 2, but mesh.dp is 1, so that there is nothing to shard over; take 0"},
    {BASE "batch: {global: 72}\nmesh: {dp: 3}\nparallel: {zero: 1, shard_group: 2}\n", NULL,
     "parallel.shard_group is 2, but must divide mesh.dp (3); the nearest is 3"},
    {BASE "mesh: {dp: 2}\n", "parallel={shard_group: 2}",
     "parallel={shard_group: 2}: parallel.shard_group is 2, but parallel.zero is 0"},
    {BASE, "parallel.virtual=65", "parallel.virtual=65: parallel.stages_per_rank must be an integer from 1 to 64"},
    {BASE, "parallel.ownership=halves", "parallel.unsplit_tensors must be true or false, not \"halves\""},
    {BASE, "virtual=2", "unknown key; did you mean parallel.stages_per_rank?"},
    {BASE "mesh: {dp: 2}\nparallel: {zero: 1, shard_group: 2, hybrid: 2}\n", NULL,
     "x.yaml:5:37: parallel.shard_group is given a second time, once by its old name; keep one"},
    {BASE, "run.comm=nccl", "run.comm: nccl is not built yet"},
    {BASE, "run.backend=cudas", "did you mean cuda?"},
    {BASE, "batch.global=0", "batch.global must be an integer from 1"},
    {"model: {config: m.json}\ndata: {train: t}\nrun: {dir: r, comm: local}\n", "mesh.dp=2048",
     "more than 1024 ranks, the most that run.comm local allows"},
    {BASE, "mesh={pp: 60000, dp: 60000, tp: 60000}", "ranks, the most that run.comm auto, mpi or net allows"},
    {BASE, "mesh.dp=0", "mesh.dp must be an integer from 1"},
    {BASE, "schedule.warmup=1001", "schedule.warmup is 1001, but must be at most schedule.steps (1000)"},
    {BASE, "schedule.min_lr=1", "schedule.min_lr is 1, but must be at most optimizer.lr (0.0003); give a share of it, "
                                "such as schedule.min_lr=10%"},
    {BASE, "schedule.min_lr=101%", "schedule.min_lr must be a number from 0 to 1000000, or N % of optimizer.lr with N "
                                   "from 0 to 100, not \"101%\""},
    {BASE, "schedule.min_lr=-1 %", "not \"-1 %\""},
    {BASE, "schedule.min_lr=%", "schedule.min_lr"},
    {BASE, "schedule.min_lr=-1", "; the nearest is 0"},
    {BASE, "schedule={name: wsd, warmup: 600, decay_steps: 500}", "at most schedule.steps − schedule.warmup (400)"},
    {BASE, "eval.every=10", "eval.every is 10, but there is nothing to evaluate on: give data.valid or data.split"},
    {BASE, "run.dir=", "run.dir must be given"},
    {BASE, "run.dir=~/x", "~ is not expanded"},
    {BASE, "run.dir=\"\"", "run.dir must be a path"},
    {BASE, "run.dir=[a]", "run.dir must be a path, not a list"},
    {BASE, "data.train=[]", "data.train must be a path prefix"},
    {BASE, "data.train=[{weight: 2}]", "has no prefix"},
    {BASE, "data.train=[{prefix: a, wight: 2}]", "unknown key \"wight\""},
    {BASE, "data.train=[{prefix: a, weight: 0}]", "weight must be a number above 0, not \"0\""},
    {BASE, "data.train=[{prefix: a, weight: heavy}]", "weight must be a number above 0"},
    {BASE, "data.train={prefix: a}", "must be a path prefix"},
    {BASE, "batch.micro", "is not of the form key=value"},
    {BASE, "=3", "is not of the form key=value"},
    {BASE, "batch.mikro=3", "did you mean batch.micro?"},
    {BASE, "batch.micro=[", "not valid YAML"},
    {BASE "a: b: c\n", NULL, "x.yaml:4:5: not valid YAML"},
    {BASE "\tx: 1\n", NULL, "not valid YAML"},
    {BASE "batch: {micro: !!int 8}\n", NULL, "x.yaml:4:16: tags"},
    {BASE "batch: !thing {micro: 8}\n", NULL, "tags"},
    {BASE "eval: &a {batches: 3}\nbatch: *a\n", NULL, "anchors and aliases"},
    {BASE "eval: &a [*a]\n", NULL, "anchors and aliases"},
    {BASE "eval: *b\n", NULL, "not valid YAML"},
    {BASE "---\nx: 1\n", NULL, "a second document"},
    {BASE "? [a]\n: 1\n", NULL, "a key must be a word"},
    {BASE "x: [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]\n", NULL, "nested too deeply"},
    {BASE "x: \"a\\0b\"\n", NULL, "NUL"},
    {BASE "x: \xff\xfe\n", NULL, "not valid UTF-8"},
    {BASE "x: \x01\n", NULL, "not valid UTF-8"},
};

static void test_bad(void **state) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Recipe recipe;
    Error error = {0};
    char *override = (char *)bad[i].override;
    int code = parse(bad[i].text, override != NULL, &override, &recipe, &error);
    if (code != PLAIT_BAD_INPUT || !strstr(error.message, bad[i].message))
      fail_msg("case %zu (%s%s): code %d, \"%s\" lacks \"%s\"", i, bad[i].text, override ? override : "", code,
               error.message, bad[i].message);
    assert_null(strchr(error.message, '\n'));
    // What an override gave is named once where the sentence says it: "parallel.update is in_backward", without the
    // override in front.
    size_t key = override ? strcspn(override, "=") : 0;
    const char *said =
        override && !strncmp(error.message, override, strlen(override)) ? error.message + strlen(override) : "";
    if (!strncmp(said, ": ", 2) && !strncmp(said + 2, override, key) && !strncmp(said + 2 + key, " is ", 4))
      fail_msg("the key twice: %s", error.message);
    assert_null(recipe.run.dir);
    recipe_free(&recipe);
  }
}

// Values that do nothing with the others: each is said in one line with its place, and nothing else is.
static void test_notes(void **state) {
  static const struct { const char *text, *note;
  } cases[] = {
      {"", NULL},
      {"parallel: {zero: 2}\n", "note: x.yaml:4:18: parallel.zero is 2, but mesh.dp is 1 and mesh.cp is 1, so that "
                                "there is nothing to shard over\n"},
      {"mesh: {dp: 2}\nparallel: {zero: 2}\n", NULL},
      {"parallel: {pipeline: interleaved}\n",
       "note: x.yaml:4:22: parallel.pipeline is interleaved, but mesh.pp is 1, so that there is no pipeline\n"},
      {"mesh: {pp: 2}\nparallel: {pipeline: interleaved}\n", NULL},
      {"mesh: {dp: 2}\nparallel: {zero: 1, shard_group: 2}\n", "one group of all data ranks"},
      {"parallel: {bucket_mb: 0}\n", "parallel.bucket_mb has no effect: the mesh has only one rank"},
      {"run: {dir: r, desync_check: true}\n", "run.desync_check has no effect: the mesh has only one rank"},
      {"layout: {name: sequence}\n", "layout.name is sequence, but mesh.tp is 1, so all shipped Layouts are the same"},
      {"layout: {ffn: [tp]}\n", "note: x.yaml:4:15: layout.ffn names tp, but mesh.tp is 1, so it cuts nothing\n"},
      {"mesh: {tp: 2}\nlayout: {ffn: [tp]}\n", NULL},
      {"mesh: {tp: 4}\nparallel: {tensor: 2d}\nlayout: {ffn: [tp_depth]}\n",
       "layout.ffn names tp_depth, but parallel.tensor 2d leaves it one rank, so it cuts nothing\n"},
      {"mesh: {tp: 4}\nparallel: {tensor: 2d}\nlayout: {vocab: [tp]}\n", NULL},
      {"mesh: {dp: 2}\nlayout: {batch: []}\n",
       "note: x.yaml:4:12: mesh.dp is 2, but no row of the Layout names dp, so its ranks all compute the same\n"},
      {"mesh: {tp: 2}\nlayout: {name: data}\n", "mesh.tp is 2, but no row of the Layout names tp"},
      {"optimizer: {name: sgd, betas: [0.8, 0.9]}\n", "optimizer.betas is [0.8, 0.9], but optimizer.name is sgd"},
      {"optimizer: {name: sgd, epsilon: 1e-6}\n", "optimizer.epsilon is 1e-06, but optimizer.name is sgd"},
      {"optimizer: {name: sgd, betas: [0.9, 0.95], momentum: 0.9}\n", NULL}, // the default again
      {"optimizer: {name: lion, betas: [0.8, 0.9]}\n", NULL},
      {"optimizer: {name: lion, epsilon: 1e-6}\n",
       "optimizer.epsilon is 1e-06, but optimizer.name is lion, which does not read it"},
      {"optimizer: {muon_scale: original}\n", "optimizer.muon_scale is original, but optimizer.name is adamw"},
      {"optimizer: {name: muon, epsilon: 1e-6, momentum: 0.9}\n", NULL},
      {"optimizer: {master: split}\n", "optimizer.master is split, but precision is fp32, which keeps no bf16 Copy"},
      {"precision: bf16\noptimizer: {master: split}\n", NULL},
      {"optimizer: {momentum: 0.9}\n", "optimizer.momentum is 0.9, but optimizer.name is adamw"},
      {"schedule: {name: constant, min_lr: 1e-5}\n", "schedule.min_lr is 1e-05, but schedule.name is constant"},
      {"schedule: {decay_steps: 10}\n", "schedule.decay_steps is 10, but schedule.name is cosine"},
      {"schedule: {name: constant, decay_steps: 3}\n",
       "schedule.decay_steps is 3, but schedule.name is constant, so there is no final decay to min_lr\n"},
      {"eval: {batches: 3}\n", "eval.batches is 3, but data.valid is not given, so that nothing is evaluated\n"},
      {"run: {dir: r, dump_steps: 3}\n", "run.dump_steps is 3, but run.dump_gradients is not given"},
      {"run: {dir: r, trace_first: 2}\n", "run.trace_first is 2, but run.trace is not given"},
      {"run: {dir: r, trace_steps: 3}\n", "run.trace_steps is 3, but run.trace is not given"},
      {"run: {dir: r, trace: t, trace_first: 1001}\n",
       "run.trace_first is 1001, but schedule.steps is 1000, so run.trace stays empty"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Recipe r;
    Error error = {0};
    int has_run = strncmp(cases[i].text, "run:", 4) == 0;
    char *text =
        xformat("model: {config: m.json}\ndata: {train: t}\n%s%s", has_run ? "\n" : "run: {dir: r}\n", cases[i].text);
    if (parse(text, 0, NULL, &r, &error)) fail_msg("%s", error.message);
    const char *notes = r.notes ? r.notes : "";
    if (!cases[i].note ? *notes : !strstr(notes, cases[i].note) || strchr(notes, '\n')[1])
      fail_msg("case %zu: \"%s\" is not \"%s\"", i, notes, cases[i].note ? cases[i].note : "");
    recipe_free(&r);
    free(text);
  }
}

// Each renamed key: in the file and as an override the old name gives the recipe of the new one and one note; the
// effective recipe has the new name.
static void renamed_keys(void **state) {
  static const struct { const char *old, *now, *note; } cases[] = {
      {"parallel.virtual=2", "parallel.stages_per_rank=2", "parallel.virtual is now called parallel.stages_per_rank\n"},
      {"parallel.hybrid=2", "parallel.shard_group=2", "parallel.hybrid is now called parallel.shard_group\n"},
      {"parallel.ownership=tensors", "parallel.unsplit_tensors=true",
       "parallel.ownership is now called parallel.unsplit_tensors: write parallel.unsplit_tensors: true\n"},
      {"parallel.ownership=shards", "parallel.unsplit_tensors=false",
       "parallel.ownership is now called parallel.unsplit_tensors: write parallel.unsplit_tensors: false\n"},
      {"run.lend=false", "run.work_stealing=false", "run.lend is now called run.work_stealing\n"},
      {"run.check=true", "run.desync_check=true", "run.check is now called run.desync_check\n"},
  };
  static const char *const base = "model: {config: m.json}\ndata: {train: t}\nmesh: {dp: 4, pp: 2}\n";
  int covered = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Recipe now, old, in_file;
    Error error = {0};
    char *text = xformat("%sparallel: {pipeline: gpipe, zero: 1}\nrun: {dir: r}\n", base);
    char *overrides[] = {(char *)cases[i].now}, *old_overrides[] = {(char *)cases[i].old};
    if (parse(text, 1, overrides, &now, &error)) fail_msg("%s", error.message);
    if (parse(text, 1, old_overrides, &old, &error)) fail_msg("%s", error.message);
    free(text);
    const char *leaf = strchr(cases[i].old, '.') + 1, *value = strchr(leaf, '=');
    int of_run = !strncmp(cases[i].old, "run.", 4);
    char *line = xformat(", %.*s: %s", (int)(value - leaf), leaf, value + 1);
    text = xformat("%sparallel: {pipeline: gpipe, zero: 1%s}\nrun: {dir: r%s}\n", base, of_run ? "" : line,
                   of_run ? line : "");
    if (parse(text, 0, NULL, &in_file, &error)) fail_msg("%s", error.message);
    free(line);
    free(text);
    assert_true(recipe_equal(&now, &old) && recipe_equal(&now, &in_file));
    assert_null(now.notes);
    char *note = xformat("note: %s: %s", cases[i].old, cases[i].note);
    assert_string_equal(old.notes, note);
    free(note);
    if (strncmp(in_file.notes, "note: x.yaml:", 13) || !strstr(in_file.notes, cases[i].note) ||
        strchr(in_file.notes, '\n')[1])
      fail_msg("%s in a file: \"%s\"", cases[i].old, in_file.notes);
    covered += !i || strncmp(cases[i].old, cases[i - 1].old, (size_t)(strchr(cases[i].old, '=') - cases[i].old));
    recipe_free(&now);
    recipe_free(&old);
    recipe_free(&in_file);
  }
  assert_int_equal(covered, recipe_alias_count);
  for (int i = 0; i < recipe_alias_count; i++) {
    assert_non_null(recipe_key_find(recipe_aliases[i].path));
    assert_null(recipe_key_find(recipe_aliases[i].old));
  }
}

// A name that no table has: the sentence lists those that there are.
static void names_that_are_not_in_a_table(void **state) {
  char names[512] = "";
  for (int i = 0; i < SCHEDULES; i++)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "must be one of ",
             schedules[i].name);
  Recipe r;
  Error error = {0};
  assert_int_equal(parse(BASE "parallel: {pipeline: 2f2b}\n", 0, NULL, &r, &error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, names) || !strstr(error.message, "2f2b"))
    fail_msg("\"%s\" does not say \"%s\"", error.message, names);
  snprintf(names, sizeof names, "must be one of ");
  const char *comma = "";
  error = (Error){0};
  for (int op = 0; op < OP_COUNT; op++)
    if (op_def((Op)op)->optimizer)
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", comma, op_def((Op)op)->name), comma = ", ";
  assert_int_equal(parse(BASE "optimizer: {name: shampoo}\n", 0, NULL, &r, &error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, names) || !strstr(error.message, "shampoo"))
    fail_msg("\"%s\" does not say \"%s\"", error.message, names);
}

static void must_parse(const char *text, int n, char **overrides, Recipe *recipe) {
  Error error = {0};
  if (parse(text, n, overrides, recipe, &error) < 0) fail_msg("%s", error.message);
}

static void test_defaults(void **state) {
  Recipe r;
  must_parse(BASE, 0, NULL, &r);
  assert_string_equal(r.model.config, "/base/m.json");
  assert_string_equal(r.model.init, "random");
  assert_string_equal(r.data.train.items[0].prefix, "/base/t");
  assert_string_equal(r.run.dir, "/base/r");
  assert_int_equal(r.data.train.count, 1);
  assert_int_equal(r.data.valid.count, 0);
  assert_null(r.data.tokenizer);
  assert_null(r.run.dump_gradients);
  assert_true(r.data.document_mask);
  assert_int_equal(recipe_rank_count(&r), 1);
  assert_int_equal(recipe_microbatches(&r), 8);
  assert_int_equal(r.precision, DTYPE_F32);
  assert_true(r.optimizer.lr == 3e-4 && r.optimizer.betas[0] == 0.9 && r.optimizer.betas[1] == 0.95);
  assert_true(r.optimizer.epsilon == 1e-8 && r.optimizer.clip == 1 && r.optimizer.momentum == 0);
  assert_int_equal(r.schedule.decay_steps, -1); // stays auto in the effective recipe
  assert_int_equal(recipe_decay_steps(&r), 100);
  assert_int_equal(r.eval.every, 0); // nothing to evaluate on
  assert_int_equal(r.run.threads, 0);
  assert_int_equal(r.run.seed, 1234);
  assert_string_equal(r.checkpoint.resume, "auto");
  recipe_free(&r);
}

static void test_values(void **state) {
  Recipe r;
  must_parse("model: {init: ../hf}\n"
             "data:\n"
             "  train: [{prefix: a, weight: 0.3}, {weight: 7, prefix: /b}, ./c/./d]\n"
             "  valid: 'v v'\n  document_mask: false\n"
             "mesh: {pp: 2, dp: 2, tp: 2}\nparallel: {zero: 1, pipeline: 1f1b}\nprecision: fp64\n"
             "batch: {global: 32, micro: 4}\noptimizer: {name: sgd, lr: 0.1, betas: [0, .5], clip: 0}\n"
             "schedule: {name: wsd, steps: 50, warmup: 5, decay_steps: 20, min_lr: 1e-2}\n"
             "checkpoint: {resume: old/step-3}\neval:\n"
             "run: {dir: r, threads: auto, seed: 9223372036854775807, dump_gradients: g}\n",
             0, NULL, &r);
  assert_string_equal(r.model.init, "/hf");
  assert_string_equal(r.model.config, "/hf/config.json");
  assert_int_equal(r.data.train.count, 3);
  assert_true(r.data.train.items[0].weight == 0.3 && r.data.train.items[1].weight == 7);
  assert_string_equal(r.data.train.items[1].prefix, "/b");
  assert_string_equal(r.data.train.items[2].prefix, "/base/c/d");
  assert_string_equal(r.data.valid.items[0].prefix, "/base/v v");
  assert_false(r.data.document_mask);
  assert_int_equal(recipe_rank_count(&r), 8);
  assert_int_equal(recipe_microbatches(&r), 4);
  assert_int_equal(r.parallel.zero, 1);
  assert_int_equal(r.parallel.pipeline, SCHEDULE_1F1B);
  assert_int_equal(r.precision, DTYPE_F64);
  assert_int_equal(r.optimizer.name, OP_SGD);
  assert_int_equal(r.schedule.name, RECIPE_WSD);
  assert_int_equal(r.schedule.decay_steps, 20);
  assert_int_equal(r.eval.every, 200);
  assert_string_equal(r.checkpoint.resume, "/base/old/step-3");
  assert_true(r.run.seed == INT64_MAX);
  assert_string_equal(r.run.dump_gradients, "/base/g");
  recipe_free(&r);
}

// Writes, loads back from another folder, compares to the bit.
// The default of betas is the optimizer's; one that is given stays.
static void betas_of_optimizers(void **state) {
  static const struct { const char *optimizer; double beta1, beta2, momentum;
  } cases[] = {{"{name: adamw}", 0.9, 0.95, 0},
               {"{name: lion}", 0.9, 0.99, 0},
               {"{name: lion, betas: [0.9, 0.95]}", 0.9, 0.95, 0},
               {"{name: sgd}", 0.9, 0.95, 0},
               {"{name: muon, muon_scale: original}", 0.9, 0.95, 0.95},
               {"{name: muon, momentum: 0.9}", 0.9, 0.95, 0.9}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text = xformat(BASE "optimizer: %s\n", cases[i].optimizer);
    Recipe r;
    must_parse(text, 0, NULL, &r);
    if (r.optimizer.betas[0] != cases[i].beta1 || r.optimizer.betas[1] != cases[i].beta2 ||
        r.optimizer.momentum != cases[i].momentum)
      fail_msg("%s: [%g, %g], %g", text, r.optimizer.betas[0], r.optimizer.betas[1], r.optimizer.momentum);
    check_round_trip(&r); // the effective recipe has them
    recipe_free(&r);
    free(text);
  }
}

static void test_overrides(void **state) {
  char here[PATH_MAX], expected[PATH_MAX + 8];
  assert_non_null(getcwd(here, sizeof here));
  char *overrides[] = {"batch.micro=4", "batch.micro=2", "run.dir=o/r", "optimizer={lr: 1e-3, betas: [0.8, 0.9]}",
                       "data.tokenizer=", "precision=fp64", "data.train=/x=y"};
  Recipe r;
  must_parse(BASE "batch: {micro: 16}\n", 7, overrides, &r);
  assert_int_equal(r.batch.micro, 2);
  snprintf(expected, sizeof expected, "%s/o/r", here);
  assert_string_equal(r.run.dir, expected);
  assert_string_equal(r.model.config, "/base/m.json");
  assert_true(r.optimizer.lr == 1e-3 && r.optimizer.betas[0] == 0.8 && r.optimizer.weight_decay == 0.1);
  assert_null(r.data.tokenizer);
  assert_string_equal(r.data.train.items[0].prefix, "/x=y");
  recipe_free(&r);
}

static void test_round_trip(void **state) {
  Recipe r, other;
  must_parse(BASE, 0, NULL, &r);
  check_round_trip(&r);
  must_parse(BASE "batch: {micro: 4}\n", 0, NULL, &other);
  assert_false(recipe_equal(&r, &other));
  recipe_free(&other);
  r.optimizer.lr = 0.1 + 0.2; // needs 17 digits
  r.optimizer.epsilon = 0x1.fffffffffffffp-30;
  r.optimizer.betas[0] = 1.0 / 3;
  r.optimizer.clip = 1.7976931348623157e308;
  r.schedule.min_lr = 5e-324;
  check_round_trip(&r);
  recipe_free(&r);
  must_parse("model: {config: \"a: b # \\\" \\\\ \\u00e9 \\u0085 \\u2028 \\ufeff \\t\", init: \"/auto\"}\n"
             "data: {train: [{prefix: 'x, }', weight: 0.1}, y], valid: [{prefix: \" sp \", weight: 2}]}\n"
             "run: {dir: \"-\", threads: 3}\nschedule: {decay_steps: 0}\n"
             "checkpoint: {resume: ./never}\n",
             0, NULL, &r);
  assert_string_equal(r.checkpoint.resume, "/base/never");
  check_round_trip(&r);
  recipe_free(&r);
}

static void test_relative_to_recipe(void **state) {
  char folder[] = "/tmp/plait-recipe-XXXXXX";
  assert_non_null(mkdtemp(folder));
  char *path = xformat("%s/r.yaml", folder), *link = xformat("%s/sub/link.yaml", folder);
  char *sub = xformat("%s/sub", folder), *config = xformat("%s/m.json", folder);
  Error error = {0};
  AtomicFile file;
  assert_int_equal(folder_create(sub, &error), 0);
  assert_int_equal(file_begin(&file, path, &error), 0);
  fputs(BASE, file.stream);
  assert_int_equal(file_commit(&file, &error), 0);
  assert_int_equal(symlink("../r.yaml", link), 0);
  Recipe r;
  assert_int_equal(recipe_load(link, 0, NULL, &r, &error), 0);
  assert_string_equal(r.model.config, config);
  recipe_free(&r);
  assert_int_equal(recipe_load(sub, 0, NULL, &r, &error), PLAIT_BAD_INPUT); // a folder
  assert_non_null(strstr(error.message, sub));
  error = (Error){0};
  assert_int_equal(recipe_load("/nowhere/r.yaml", 0, NULL, &r, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "/nowhere/r.yaml"));
  folder_remove(folder, &error);
  free(path);
  free(link);
  free(sub);
  free(config);
}

// Every byte of a good recipe replaced in turn by awkward ones, and cut short: no crash, and an error has a sentence.
static void test_mutations(void **state) {
  static const char good[] = BASE "batch: {global: 8, micro: [8]}\n? \"q\\x41\" : &a *b\n";
  static const char awkward[] = {0,   '\n', '\t', '[', '{', '}', '"', '\'',      '&',
                                 '*', '!',  '|',  '-', ':', '#', '%', (char)0xff};
  char text[sizeof good];
  for (size_t i = 0; i < sizeof good - 1; i++) {
    for (size_t j = 0; j <= sizeof awkward; j++) {
      memcpy(text, good, sizeof good);
      if (j < sizeof awkward) text[i] = awkward[j];
      Recipe r;
      Error error = {0};
      int code = recipe_parse("x", text, j < sizeof awkward ? sizeof good - 1 : i, "/", 0, NULL, &r, &error);
      assert_true(code == PLAIT_OK || (code == PLAIT_BAD_INPUT && error.message[0]));
      recipe_free(&r);
    }
  }
}

// Texts as large as allowed, of what costs a parser most: none may take long.
static void test_large(void **state) {
  static const char *const units[] = {"[",  "{", "- ",   "? ",       "[]{}",   "&a x\n", "a: [",
                                      "\"", "'", "|\n ", "- &a x\n", "a: b\n", "%",      "!"};
  size_t size = YAML_MAX_BYTES;
  char *text = xcalloc(size + 1, 1);
  Recipe r;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t n = strlen(units[i]);
    for (size_t at = 0; at < size; at++) text[at] = units[i][at % n];
    Error error = {0};
    alarm(60); // dies where libyaml's time grows with the square of the size
    assert_int_equal(recipe_parse("x", text, size, "/", 0, NULL, &r, &error), PLAIT_BAD_INPUT);
    alarm(0);
  }
  Error error = {0};
  assert_int_equal(recipe_parse("x", text, size + 1, "/", 0, NULL, &r, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "larger than"));
  error = (Error){0};
  memset(text, 'a', 100);
  strcpy(text + 100, ": 1\n");
  assert_int_equal(recipe_parse("x", text, strlen(text), "/", 0, NULL, &r, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "unknown key"));
  free(text);
}

// The table is consistent: defaults and examples parse, docs are complete sentences, and the example recipe loads.
static void test_key_table(void **state) {
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    assert_ptr_equal(recipe_key_find(key->path), key);
    size_t n = strlen(key->doc);
    assert_true(n > 5 && key->doc[n - 1] == '.');
    if (!key->example) continue;
    char *override = xformat("%s=%s", key->path, key->example);
    char *overrides[] = {"data.valid=v", "batch.global=64", "schedule.steps=2000", override};
    Recipe r;
    must_parse(BASE, 4, overrides, &r);
    recipe_free(&r);
    free(override);
  }
}

static void test_docs(void **state) {
  char *made, *kept;
  size_t made_size, kept_size;
  FILE *out = open_memstream(&made, &made_size);
  recipe_print_docs(out);
  fclose(out);
  Error error = {0};
  assert_int_equal(file_read(SOURCE_FOLDER "/docs/recipes.md", 1 << 20, &kept, &kept_size, &error), PLAIT_OK);
  if (strcmp(made, kept)) fail_msg("docs/recipes.md is out of date; run: build/plait recipe --docs > docs/recipes.md");
  char *start = strstr(made, "```yaml\n") + 8, *end = strstr(start, "```\n");
  Recipe r;
  if (recipe_parse("example", start, (size_t)(end - start), "/base", 0, NULL, &r, &error) < 0)
    fail_msg("%s", error.message);
  assert_int_equal(r.mesh.dp, 2);
  recipe_free(&r);
  free(made);
  free(kept);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(renamed_keys),
      cmocka_unit_test(names_that_are_not_in_a_table),
      cmocka_unit_test(betas_of_optimizers),
      cmocka_unit_test(test_bad),
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_overrides),
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_relative_to_recipe),
      cmocka_unit_test(test_mutations),
      cmocka_unit_test(test_large),
      cmocka_unit_test(test_key_table),
      cmocka_unit_test(test_docs),
      cmocka_unit_test(test_notes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
