#!/bin/bash
# tier 2; rooms checkpoint op recipe; numbers
# optimizer.master: split keeps the fp32 weights to the bit: checkpoints go from split to fp32 masters and back without a bit lost.
# (A run that stops: test_stop_and_resume.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
short='precision=bf16 parallel.grad_dtype=bf16 schedule.steps=4 schedule.warmup=1 eval.every=2 checkpoint.every=2 checkpoint.keep=0'
export_weights() { expect 0 . "$PLAIT" export "$1" --out "$2" --dtype fp32; }

# ---- from fp32 to split and back: a step with a learning rate of 0 leaves the weights as they were ----

# shellcheck disable=SC2086
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=plain $short
# shellcheck disable=SC2086 # words on purpose
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=split $short optimizer.master=split
for from in plain split; do
  export_weights $from/checkpoints/step-2 $from.before
  for master in fp32 split; do
    # shellcheck disable=SC2086
    expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=$from-$master $short optimizer.master=$master \
      checkpoint.resume=$from/checkpoints/step-2 optimizer.lr=0 schedule.steps=3 mesh.dp=1 batch.micro=8 parallel.zero=0
    export_weights $from-$master/checkpoints/step-3 $from-$master.after
    cmp $from.before/model.safetensors $from-$master.after/model.safetensors || fail "weights of $from changed in $master"
  done
done
# Nothing narrow is in the files, and what the two kinds of run learn is close.
for run in plain split; do
  expect 0 '[0-9]' grep -ac '"dtype":"F32"' $run/checkpoints/step-2/part-00000.safetensors
  grep -aq '"dtype":"BF16"\|"dtype":"U16"' $run/checkpoints/step-2/part-00000.safetensors && fail "$run: narrow tensors in a checkpoint"
  sed -nE 's/.*"step": 4, "loss": ([^,]*),.*/\1/p' $run/metrics.jsonl
done | sort -n | awk '{ x[NR] = $1 } END { exit !(NR == 2 && x[2] - x[1] < 0.002 * x[1] && x[1] > 0) }' || fail 'split masters learn something else'

# ---- what it says ----

expect 0 'note: optimizer.master is split, but precision is fp32' "$PLAIT" plan recipe.yaml optimizer.master=split precision=fp32
refuse 2 'optimizer.master must be one of fp32, split, not "bf16"' "$PLAIT" plan recipe.yaml optimizer.master=bf16
finish
