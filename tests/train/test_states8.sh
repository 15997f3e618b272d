#!/bin/bash
# optimizer.states: 8bit: a run that stops resumes as if it had not, with every optimizer and under every kind of storage, also on
# another mesh; checkpoints go from fp32 to 8 bits and back.
. "$SOURCE/tests/train/harness.sh" || exit 1
short='schedule.steps=4 schedule.warmup=1 eval.every=2 checkpoint.every=2 checkpoint.keep=0'

# ---- resuming: the same bits ----

n=0
for keys in '' 'optimizer.name=sgd optimizer.momentum=0.9' 'optimizer.name=lion' 'optimizer.name=muon' 'parallel.zero=0' \
  'parallel.zero=3' 'mesh.dp=1 mesh.tp=2' 'mesh.dp=1 mesh.pp=2 optimizer.delay=1' 'checkpoint.async=on' \
  'precision=bf16 optimizer.master=split parallel.grad_dtype=bf16 parallel.zero=3' \
  'parallel.update=in_backward optimizer.clip=0 run.non_finite=stop batch.micro=4' \
  'mesh.dp=1 mesh.pp=2 parallel.pipeline=2bw optimizer.delay=1'; do
  n=$((n + 1))
  # shellcheck disable=SC2086 # words on purpose
  expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=whole$n $short optimizer.states=8bit $keys
  cp -r whole$n again$n
  rm -r again$n/checkpoints/step-4
  # shellcheck disable=SC2086
  expect 0 'step-2' "$PLAIT" train recipe.yaml run.dir=again$n $short optimizer.states=8bit $keys
  [ -e again$n/checkpoints/step-4 ] || fail "$keys: no checkpoint after resuming"
  same_run whole$n again$n
done

# ---- from fp32 to 8 bits and back ----

# shellcheck disable=SC2086
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=plain $short
for states in fp32 8bit; do
  # shellcheck disable=SC2086
  expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=plain-$states $short optimizer.states=$states \
    checkpoint.resume=plain/checkpoints/step-2
  # shellcheck disable=SC2086
  expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=eight-$states $short optimizer.states=$states \
    checkpoint.resume=whole1/checkpoints/step-2
done
near plain plain-fp32 0 2 4
near plain plain-8bit 0.01 2 4
near whole1 eight-8bit 0 2 4
near whole1 eight-fp32 0.01 2 4
# Nothing narrow is in the files.
expect 0 '[0-9]' grep -ac '"dtype":"F32"' whole1/checkpoints/step-2/part-00000.safetensors
grep -aq '"dtype":"U8"' whole1/checkpoints/step-2/part-00000.safetensors && fail 'codes in a checkpoint'
grep -aq 'scales\.' whole1/checkpoints/step-2/part-00000.safetensors && fail 'scales in a checkpoint'

# ---- on another mesh the moments are the same: fp64, so that gradients are, too ----

# shellcheck disable=SC2086
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=exact $short precision=fp64 optimizer.states=8bit
# shellcheck disable=SC2086
expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=exact-tp $short precision=fp64 optimizer.states=8bit \
  mesh.dp=1 mesh.tp=2 parallel.zero=0 checkpoint.resume=exact/checkpoints/step-2
near exact exact-tp 1e-10 2 4
# Blocks that come in pieces from two ranks' parts, the second of which may have the larger values.
# shellcheck disable=SC2086
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=cut $short precision=fp64 optimizer.states=8bit mesh.dp=1 mesh.tp=2 parallel.zero=0
# shellcheck disable=SC2086
expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=joined $short precision=fp64 optimizer.states=8bit \
  mesh.dp=1 parallel.zero=0 checkpoint.resume=cut/checkpoints/step-2
near cut joined 1e-10 2 4
finish
