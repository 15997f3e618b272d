#!/bin/bash
# tier 2 3; rooms program runtime machine
# Memory is planned: what the process takes from before the arenas to its peak is what plait plan printed, within 5%, and
# nothing is allocated after the first step, with checkpoints and evaluations in between.
. "$SOURCE/tests/train/harness.sh" || exit 1
long=60 short=20 # steps; checkpoints and evaluations fall between the third and the last
[ "$tier" -lt 3 ] || long=200
[ "${PLAIT_SIMD-}" = reference ] && long=30 limit=$((300 * patience)) # steps of 3 million parameters take it seconds
sanitized && long=8 short=8

sed 's/"n_embd": 32/"n_embd": 256/; s/"n_layer": 2/"n_layer": 4/' model.json >wide.json
sed 's/model.json/wide.json/; s/seq_len: 32/seq_len: 8/; s/global: 8, micro: 2/global: 2, micro: 1/' recipe.yaml >wide.yaml

# The plan's total of all local ranks, in bytes: the sum of the pipeline ranks' columns, times the other axes.
planned() {
  "$PLAIT" plan --bytes wide.yaml "$@" >plan || die "plait plan $*"
  awk -v others="$others" '/^= total/ { for (i = 3; i <= NF; i++) sum += $i } END { printf "%.0f\n", sum * others }' plan
}

# of STEP KEY: the value of a key in the line of a step
of() { sed -n "s/^{\"step\": $1, \"loss\".*\"$2\": \([0-9]*\).*/\1/p" run/metrics.jsonl; }

# check STEPS OTHERS KEY=VALUE…: OTHERS is dp × tp
check() {
  local steps=$1
  others=$2
  shift 2
  set -- schedule.steps=$steps checkpoint.every=$((steps * 2 / 5)) eval.every=$((steps * 2 / 5)) "$@"
  rm -rf run
  expect 0 "step $steps" "$PLAIT" train wide.yaml "$@"
  local plan before early late peak
  plan=$(planned "$@") before=$(of 1 memory_before_bytes) early=$(of 3 memory_bytes) late=$(of $steps memory_bytes)
  peak=$(sed -n 's/.*"memory_bytes": \([0-9]*\).*/\1/p' run/metrics.jsonl | sort -n | tail -1)
  [ -n "$plan" ] && [ -n "$before" ] && [ -n "$early" ] && [ -n "$late" ] || die "$*: a number is missing"
  echo "$*: planned $plan, grown $((peak - before)), from step 3 to $steps $((late - early))"
  sanitized && return
  [ "$plan" -gt 30000000 ] || fail "the model is too small to say anything: $plan bytes"
  local off=$((late - early)) far=$((peak - before - plan))
  [ ${off#-} -lt 1048576 ] || fail "$*: memory changes by $off bytes between steps 3 and $steps"
  [ $((${far#-} * 20)) -lt "$plan" ] || fail "$*: grows by $((peak - before)) bytes, planned are $plan"
}

check $long 1 mesh.dp=1 parallel.zero=0
check $long 2 mesh.dp=2 parallel.zero=1 run.threads=4
# In short runs a checkpoint is still being written at the last step where the machine is busy: each writer's stack and heap were in
# that number then, and not in that of step 3. So steps wait for checkpoints there, and what the first checkpoint and evaluation leave
# in the heaps of threads is there before the third step.
early='checkpoint.every=2 eval.every=2 checkpoint.async=off'
check $short 1 mesh.dp=1 mesh.pp=2 parallel.zero=0 $early
check $short 2 mesh.dp=1 mesh.tp=2 parallel.zero=0 $early
check $short 2 mesh.dp=2 parallel.zero=3 parallel.unsplit_tensors=true $early
# No axis divides the vocabulary: the embedding is cut the other way, and a collective of it is a list of 2049 buffers.
sed 's/"vocab_size": 300/"vocab_size": 2049/' wide.json >odd.json
check $short 4 mesh.dp=4 parallel.zero=3 precision=bf16 batch.global=4 model.config=odd.json $early
finish
