#!/bin/bash
# tier 2; rooms checkpoint op recipe; numbers
# optimizer.states: 8bit: checkpoints go from fp32 to 8 bits and back, and to another mesh. (A run that stops: test_stop_and_resume.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
short='schedule.steps=4 schedule.warmup=1 eval.every=2 checkpoint.every=2 checkpoint.keep=0'

# ---- from fp32 to 8 bits and back ----

# shellcheck disable=SC2086
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=plain $short
# shellcheck disable=SC2086 # words on purpose
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=eight $short optimizer.states=8bit
for states in fp32 8bit; do
  # shellcheck disable=SC2086
  expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=plain-$states $short optimizer.states=$states \
    checkpoint.resume=plain/checkpoints/step-2
  # shellcheck disable=SC2086
  expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=eight-$states $short optimizer.states=$states \
    checkpoint.resume=eight/checkpoints/step-2
done
near plain plain-fp32 0 2 4
near plain plain-8bit 0.01 2 4
near eight eight-8bit 0 2 4
near eight eight-fp32 0.01 2 4
# Nothing narrow is in the files.
expect 0 '[0-9]' grep -ac '"dtype":"F32"' eight/checkpoints/step-2/part-00000.safetensors
grep -aq '"dtype":"U8"' eight/checkpoints/step-2/part-00000.safetensors && fail 'codes in a checkpoint'
grep -aq 'scales\.' eight/checkpoints/step-2/part-00000.safetensors && fail 'scales in a checkpoint'

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
