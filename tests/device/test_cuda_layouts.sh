#!/bin/bash
# tier 2 3; rooms device runtime program op; numbers
# needs emulated_cuda
# Collectives with run.backend=cuda go through pinned pages of the host, as many as plait plan says, or where the system allows no more through
# two pieces; and layouts of experts, with capacities and biases of routers, and Muon compute everything on the device.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CUDA_DRIVER=${PLAIT%/*}/libemulated_cuda.so
unset PLAIT_CUDA_LIBRARIES
sed 's/"vocab_size": [0-9]*/"vocab_size": 300/; s/"hidden_size": [0-9]*/"hidden_size": 32/
  s/"intermediate_size": [0-9]*/"intermediate_size": 48/; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' "$SOURCE/models/moe-demo.json" >moe.json
short='schedule.steps=3 schedule.warmup=1 checkpoint.every=2 eval.every=3'
# mirrored RANKS NAME KEYS…: three steps near the CPU's, with as many pinned bytes as planned; and with two pages less, after a note (in
# tier 2 once among data ranks and once among experts)
mirrored() {
  local ranks=$1 name=$2 planned locked
  shift 2
  # shellcheck disable=SC2086 # words on purpose, here and below
  "$PLAIT" plan recipe.yaml --json $short run.backend=cuda "$@" >plan.json 2>log || { cat log; fail "$name: plan"; }
  planned=$(grep -oE '"mirror": *[0-9]+' plan.json | awk '{ sum += $NF } END { print sum }')
  [ "${planned:-0}" -gt 0 ] || fail "$name: the plan has no mirror: $(cat plan.json)"
  grep -q '"pp": 2' plan.json || planned=$((planned * ranks))
  "$PLAIT" train recipe.yaml $short run.backend=cpu run.dir="$name.cpu" "$@" >log 2>&1 || { tail -5 log; fail "$name on the CPU"; }
  for locked in "$planned" $((planned - 4194304)); do
    [ "$locked" = "$planned" ] || [ "$tier" -gt 2 ] || [ "$name" = zero3 ] || [ "$name" = uneven ] || continue
    PLAIT_EMULATED_LOCKED=$locked expect 0 'step +3/3' "$PLAIT" train recipe.yaml $short run.backend=cuda run.dir="$name.$locked" "$@"
    if [ "$locked" = "$planned" ]; then grep 'cannot be pinned' output && fail "$name: it pins more than the $planned bytes of its plan"
    else [ "$(grep -c '^note: CUDA device 0: .* cannot be pinned (CUDA_ERROR_OUT_OF_MEMORY' output)" = 1 ] || fail "$name: no note of memory that cannot be pinned"; fi
    grep 'run on the host' output && fail "$name: ops run on the host"
    paste <(numbers "$name.cpu") <(numbers "$name.$locked") | awk 'function off(a, b) { d = a - b; return !((d < 0 ? -d : d) <= 1e-5 * a) }
      off($1, $3) || ($2 && off($2, $4)) { bad = 1 } END { exit bad || NR != 4 }' ||
      fail "$name: $(paste <(numbers "$name.cpu") <(numbers "$name.$locked"))"
  done
}
mirrored 2 zero3 precision=fp32 mesh.dp=2 parallel.zero=3
mirrored 2 muon precision=fp32 mesh.dp=2 parallel.zero=1 optimizer.name=muon
mirrored 4 experts precision=fp32 model.config=moe.json mesh.dp=4 parallel.ep=2 batch.global=8
mirrored 2 uneven precision=fp32 model.config=moe.json mesh.dp=2 parallel.ep=2 'batch.balance=[3,1]'
mirrored 2 capacity precision=fp32 model.config=moe.json mesh.dp=1 parallel.zero=0 mesh.cp=2 moe.capacity=1 moe.bias_rate=0.01

# reads RANKS KEYS…: how often two steps, with their metrics, copy to the host, by runs of five and of three steps
reads() {
  local ranks=$1 steps=() n
  shift
  for n in 3 5; do
    rm -rf counts "reads.$n"
    PLAIT_EMULATED_COUNTS=counts expect 0 "step +$n/$n" "$PLAIT" train recipe.yaml precision=fp32 mesh.dp=$ranks parallel.zero=0 schedule.warmup=1 \
      checkpoint.every=0 eval.every=0 run.backend=cuda schedule.steps=$n run.dir="reads.$n" "$@" >&2
    steps+=("$(awk '/ copy to the host$/ { n += $1 } END { print n + 0 }' counts)")
  done
  echo $((steps[1] - steps[0]))
}
# Metrics are read at the end of a step: loss, norm and skipped steps, and of each layer's router. More microbatches have no more to read.
dense=$(reads 1)
[ "$dense" -gt 0 ] && [ "$dense" -le 10 ] || fail "two dense steps copy $dense times to the host"
for capacity in none 1; do
  [ "$capacity" = 1 ] || [ "$tier" -gt 2 ] || continue
  one=$(reads 1 model.config=moe.json moe.capacity=$capacity batch.micro=8)
  four=$(reads 1 model.config=moe.json moe.capacity=$capacity batch.micro=2)
  [ "$one" -gt 0 ] && [ "$four" = "$one" ] ||
    fail "with capacity $capacity two steps of experts copy $one times to the host, and with four microbatches $four times"
done
# Where rows are exchanged, a microbatch has six copies more a layer and rank: the part of the mask that the other rank needs, rows to their
# experts and back, and their gradients; and one copy of counts. Three microbatches more in two steps, of two layers on two ranks.
one=$(reads 2 model.config=moe.json parallel.ep=2 batch.micro=4)
four=$(reads 2 model.config=moe.json parallel.ep=2 batch.micro=1)
[ $((four - one)) = $((3 * 2 * 2 * 2 * 6)) ] || fail "with ep 2 two steps copy $one times to the host, and with four microbatches $four times"
finish
