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

# ---- storage in rows that three ranks share, in parts of rows where these are too few: blocks stay whole ----

cat > wide.json <<'E'
{"model_type": "llama", "hidden_size": 1280, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "vocab_size": 300, "rms_norm_eps": 1e-5,
 "hidden_act": "silu", "tie_word_embeddings": true}
E
wide="$short precision=fp64 optimizer.states=8bit model.config=wide.json model.init=random"
# shellcheck disable=SC2086
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=wide $wide mesh.dp=1 parallel.zero=0
for zero in 1 2 3; do
  # shellcheck disable=SC2086
  expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=rows-$zero $wide mesh.dp=3 parallel.zero=$zero
  near wide rows-$zero 1e-10 2 4
done
# shellcheck disable=SC2086
expect 0 'rows:' "$PLAIT" explain recipe.yaml $wide mesh.dp=3 parallel.zero=3 --shards layer.0.attention.q.weight
# shellcheck disable=SC2086
expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=rows-resumed $wide mesh.dp=3 parallel.zero=3 \
  checkpoint.resume=wide/checkpoints/step-2
near wide rows-resumed 1e-10 2 4
# shellcheck disable=SC2086
expect 0 'resuming from .*step-2' "$PLAIT" train recipe.yaml run.dir=whole-resumed $wide mesh.dp=1 parallel.zero=0 \
  checkpoint.resume=rows-3/checkpoints/step-2
near wide whole-resumed 1e-10 2 4
finish
