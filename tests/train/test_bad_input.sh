#!/bin/bash
# tier 1 2; rooms recipe model data checkpoint; numbers
# Whatever is wrong gets one sentence that names it, status 2 (1 where the machine is at fault), and costs nothing: the
# recipe, the metrics and the checkpoints of the run before are as they were, and it continues.
# Tier 1: without disks that fill up and losses that are not numbers.
. "$SOURCE/tests/train/harness.sh" || exit 1

train() { "$PLAIT" train recipe.yaml "$@"; }
# bad PATTERN KEY=VALUE…
bad() {
  local pattern=$1
  shift
  refuse 2 "$pattern" "$PLAIT" train recipe.yaml "$@"
}

train schedule.steps=6 >log 2>&1 || { cat log; die "the run before"; }
cp -r run before
untouched() { diff -r -x lock before run >difference || fail "$1: changed the run folder: $(head -3 difference)"; }

# ---- recipes and meshes ----

bad 'optimizer.lrr.*optimizer.lr' optimizer.lrr=1
bad 'mesh.dp' mesh.dp=0
bad 'mesh.tp is 3.*heads' mesh.dp=1 mesh.tp=3
bad 'mesh.pp is 4.*2 layers' mesh.dp=1 mesh.pp=4
bad 'mesh.pp|rank' mesh.pp=1000000
bad 'model.json: n_positions is 64.*65' data.seq_len=65
bad 'precision' precision=fp12
bad 'nosuch.json' model.config=nosuch.json
bad 'checkpoint.resume: .*nosuch does not exist' checkpoint.resume=nosuch
bad 'checkpoint.resume: .*corpus.idx is not a checkpoint' checkpoint.resume=corpus.idx
bad 'data.tokenizer: .*nosuch.json does not exist' data.tokenizer=nosuch.json
# tokens without a row in the model: refused where the data has one, before anything is trained; else said
sed 's/"vocab_size": 300/"vocab_size": 257/' model.json >few.json
bad 'data.train: .*corpus.bin: the token at position [0-9]* has id [0-9]*, allowed are 0 to 256 .*; set vocab_size in .*few.json to at least 300 for a new model' model.config=few.json
for i in $(seq 200); do echo 'qzqzj'; done >letters.txt
"$PLAIT" tokenize --tokenizer tokenizer.json --out letters letters.txt >/dev/null || fail letters
sed 's/"vocab_size": 300/"vocab_size": 299/' model.json >few.json
"$PLAIT" train recipe.yaml model.config=few.json data.train=letters data.valid=letters run.dir=few schedule.steps=1 schedule.warmup=1 >few.log 2>&1 || fail "a token without a row: $(cat few.log)"
grep -q '^note: .*data.tokenizer: .*tokenizer.json has 1 token, 299 and above, for which the model has no row, because vocab_size in .*few.json is 299; the data has none of them$' few.log || fail "no note of a token without a row: $(cat few.log)"
echo '{"model": {"type": "WordPiece", "vocab": {"a": 0}}}' >pieces.json
bad 'data.tokenizer: .*pieces.json: model.type is WordPiece, supported is BPE' data.tokenizer=pieces.json
bad 'model.config: .*nosuch.json: cannot be read' model.config=nosuch.json
bad 'schedule.warmup is 9, but must be .* as in schedule.steps=8 schedule.warmup=1$' schedule.steps=8 schedule.warmup=9
bad 'model.init: .*nosuch does not exist; .*downloads nothing' model.init=nosuch
refuse 2 'run is a run and not a recipe; its recipe is run/recipe.yaml' "$PLAIT" train run
printf 'model:\n\tconfig: x\n' >tab.yaml
refuse 2 'tab.yaml:2:1: .* indents with spaces only' "$PLAIT" train tab.yaml
untouched recipes

# ---- corpora ----

bad 'data.train: no token files at .*nosuch: .*nosuch.idx does not exist; make them with plait tokenize' data.train=nosuch
bad 'data.train: .*corpus.bin is one of two token files; give their prefix, without .bin' data.train=corpus.bin
bad 'data.valid.*nosuch' data.valid=nosuch
for side in bin idx; do
  cp corpus.bin bad.bin
  cp corpus.idx bad.idx
  head -c -10 corpus.$side >bad.$side
  bad "data.train: .*bad\\.$side|data.train: .*bad\\.idx.*bad\\.bin" data.train=bad
  bad "data.valid: .*bad\\.$side|data.valid: .*bad\\.idx.*bad\\.bin" data.valid=bad
  rm bad.$side
  bad "data.train: .*bad\\.$side" data.train=bad
done
head -c 4096 /dev/urandom >bad.idx
bad 'bad.idx' data.train=bad
rm -f bad.bin bad.idx
mkdir bad.bin bad.idx
bad 'bad' data.train=bad
rmdir bad.bin bad.idx
untouched corpora

# ---- models ----

for change in 's/"n_head": 4/"n_head": 5/' 's/"n_layer": 2/"n_layer": 1000000000000/' 's/"n_embd": 32/"n_embd": -32/' \
  's/"vocab_size": 300/"vocab_size": 1e99/' 's/"gpt2"/"gpt3"/' 's/"n_embd": 32/"n_embd": "32"/' 's/"n_layer": 2,//' 's/{/[/' \
  's/"layer_norm_epsilon": 1e-05/"layer_norm_epsilon": {"a": [1, 2]}/'; do
  sed "$change" model.json >hostile.json
  bad 'hostile.json' model.config=hostile.json
done
head -c 100000 /dev/zero | tr '\0' '[' >hostile.json
bad 'hostile.json' model.config=hostile.json
head -c 1000 /dev/urandom >hostile.json
bad 'hostile.json' model.config=hostile.json
sed 's/"n_embd": 32/"n_embd": 65536/; s/"n_layer": 2/"n_layer": 96/' model.json >huge.json
refuse 1 'need .* of memory, but only' "$PLAIT" train recipe.yaml model.config=huge.json

# a checkpoint of another model: names, then shapes
sed 's/"n_layer": 2/"n_layer": 3/' model.json >other.json
bad 'step-6.*(h.2|layers?.2)' model.config=other.json
sed 's/"n_embd": 32/"n_embd": 64/' model.json >other.json
bad 'step-6: tensor .* is \[.*\] in the checkpoint but \[.*\] here' model.config=other.json
bad 'step-6' optimizer.name=sgd
bad 'before' checkpoint.resume=before
bad 'step 6 already.*resume: auto' checkpoint.resume=never
bad 'optimizer.name was adamw and is sgd in this run: .*unexpected tensor.*: moment1' optimizer.name=sgd
bad 'precision was fp32 and is fp16 in this run: .*lacks 2 tensor.*loss_scale' precision=fp16

# model.init: a folder that lacks a tensor, or holds none
"$PLAIT" export run/checkpoints/step-6 --out exported >log 2>&1 || { cat log; die "export"; }
expect 0 'step 1:' "$PLAIT" train recipe.yaml model.init=exported run.dir=from-export schedule.steps=1 schedule.warmup=0
mkdir lacking
cp exported/config.json lacking
bad 'lacking' model.init=lacking run.dir=new
sed 's/wpe.weight/wpe.xeight/' exported/model.safetensors >lacking/model.safetensors
bad 'lacking.*wpe' model.init=lacking run.dir=new
head -c 5000 exported/model.safetensors >lacking/model.safetensors
bad 'lacking' model.init=lacking run.dir=new
[ ! -e new/metrics.jsonl ] || fail "a refused run has written metrics"
untouched models

# ---- damaged checkpoints ----

cp -r before damaged
for part in damaged/checkpoints/step-*/part-00000.safetensors; do
  head -c 300 "$part" >half
  mv half "$part"
done
cp damaged/metrics.jsonl kept
bad 'no checkpoint in .*damaged/checkpoints can be read .*part-00000.safetensors: 300 bytes' run.dir=damaged
bad 'part-00000' run.dir=elsewhere checkpoint.resume=damaged/checkpoints/step-4
cmp kept damaged/metrics.jsonl || fail "a run without a valid checkpoint has lost its metrics"
rm damaged/checkpoints/step-6/checkpoint.json
cp -r before/checkpoints/step-4/. damaged/checkpoints/step-4
expect 0 'resuming from .*step-4' "$PLAIT" train recipe.yaml run.dir=damaged schedule.steps=6
grep -q 'skipped checkpoint .*step-6' output || fail "says nothing about the damaged checkpoint"

# ---- folders and disks ----

touch file
refuse 2 'run.dir: .*file' "$PLAIT" train recipe.yaml run.dir=file
refuse 2 'run.dir: .*file' "$PLAIT" train recipe.yaml run.dir=file/below
refuse 2 'run.dir: /proc/nosuch' "$PLAIT" train recipe.yaml run.dir=/proc/nosuch

if [ "$tier" = 1 ]; then
  untouched everything
  expect 0 'resuming from .*run/checkpoints/step-6' "$PLAIT" train run/recipe.yaml schedule.steps=8
  finish
fi

# The disk fills up during a checkpoint; when there is room again, the run continues as if nothing had been.
"$PLAIT" train recipe.yaml run.dir=whole checkpoint.keep=0 >log 2>&1 || { cat log; die "the unbroken run"; }
full() { # full FOLDER: what must be true when a run has met the limit
  grep -q '"step": 2' "$1/metrics.jsonl" || fail "$1: metrics are gone"
  compgen -G "$1/checkpoints/*.tmp" && fail "$1: an unfinished checkpoint is left"
}
(
  failures=0
  ulimit -f 60 # KiB in one file: less than a part
  refuse 1 'rank [01]: .*part-0000[01].safetensors.*File too large' "$PLAIT" train recipe.yaml run.dir=limited
  [ "$failures" -eq 0 ]
) || fail "a file that is too large"
full limited
expect 0 'step 40' "$PLAIT" train recipe.yaml run.dir=limited
same_run whole limited

mkdir disk
if mount -t tmpfs -o size=2560k plait-test disk 2>/dev/null; then
  mounted=$work/disk
  refuse 1 '(part|checkpoint|metrics).*No space left' "$PLAIT" train recipe.yaml run.dir=disk/run checkpoint.keep=0
  full disk/run
  ls -d disk/run/checkpoints/step-2 >/dev/null || fail "the checkpoint before the disk was full is gone"
  mount -o remount,size=40m "$mounted"
  expect 0 'resuming from .*step-' "$PLAIT" train recipe.yaml run.dir=disk/run
  same_run whole disk/run
  umount "$mounted" && mounted=
else
  echo "no tmpfs here: the full disk was tried by ulimit -f alone"
fi

# ---- numbers that are none ----

expect 0 'not a number; skipped|infinite; skipped' "$PLAIT" train recipe.yaml run.dir=infinite schedule.steps=15 optimizer.lr=1e6 optimizer.weight_decay=1 schedule.warmup=0 optimizer.clip=0
[ "${PLAIT_SIMD:-}" = reference ] || grep -q '"loss": null' infinite/metrics.jsonl || fail "no loss is nan"
grep -q '"grad_norm": null, .*"skipped": 1' infinite/metrics.jsonl || fail "no update is skipped"
grep -E '[:,] *-?(nan|inf) *[,}]' infinite/metrics.jsonl && fail "a number that JSON does not have"
expect 0 'done' "$PLAIT" train recipe.yaml run.dir=infinite schedule.steps=15 optimizer.lr=1e6 optimizer.weight_decay=1 schedule.warmup=0 optimizer.clip=0

# ---- the lines of the metrics ----

for key in step loss grad_norm lr tokens target_tokens tokens_per_s mfu step_seconds data_wait_seconds comm_seconds memory_bytes skipped; do
  [ "$(grep -c "[{ ]\"$key\": \([-0-9.e]*\|null\)[,}]" <(grep '"loss"' whole/metrics.jsonl))" -eq 40 ] || fail "not every line has $key"
done
[ "$(grep -c '^{"step": [0-9]*, "eval_loss": [0-9.]*, "eval_tokens": [0-9]*}$' whole/metrics.jsonl)" -eq 10 ] || fail "evaluation lines"

# the run of the beginning continues after all of this
untouched everything
expect 0 'resuming from .*run/checkpoints/step-6' "$PLAIT" train run/recipe.yaml schedule.steps=8
finish
