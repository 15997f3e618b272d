#!/bin/bash
# tier 1; rooms device machine
# run.backend: cuda, commands that plan take it on any machine, and commands that run refuse it in one sentence where there is
# no driver, before anything is searched or written. (Runs: test_cuda_runs.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
cuda=run.backend=cuda

expect 0 '^  backend: cuda$' "$PLAIT" recipe recipe.yaml $cuda
expect 0 'plait simulate predicts it for cuda' "$PLAIT" plan recipe.yaml $cuda
grep -q 'this machine computes' output && fail "plan has an estimate of a GPU's time by this CPU"
"$PLAIT" plan recipe.yaml --bytes >cpu && "$PLAIT" plan recipe.yaml --bytes $cuda >gpu
[ "$(grep parameters cpu)" != "$(grep parameters gpu)" ] || fail "memory of a GPU is planned as that of a CPU"
for command in "simulate recipe.yaml --cluster h200-node" "compare recipe.yaml --cluster h200-node --quick" \
  "plan recipe.yaml --search --cluster h200-node --ranks 2 --top 1" "explain recipe.yaml --after stage"; do
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" $command >auto 2>err || fail "$command: $(cat err)"
  # shellcheck disable=SC2086
  "$PLAIT" $command $cuda >cuda 2>err || fail "$command $cuda: $(cat err)"
  [ -s cuda ] || fail "$command $cuda prints nothing"
  # A prediction is for the cluster's device anyway.
  case $command in simulate* | compare*) diff auto cuda || fail "$command: another device" ;; esac
done
expect 0 '<svg' sh -c '"$1" explain recipe.yaml run.backend=cuda --timeline t.svg && cat t.svg' - "$PLAIT"

# without a cluster: this CPU's times say nothing of it, and are not measured for it
shipped='run.backend: cuda is not what this machine has, so say which machine has it: --cluster NAME, or run.cluster, with a file or one of .*h200-node'
export XDG_CACHE_HOME=$PWD/cache
for command in simulate compare "plan --search"; do
  # shellcheck disable=SC2086 # words on purpose
  refuse 2 "$shipped" "$PLAIT" $command recipe.yaml $cuda
done
sed 's/^run: *{/run: {backend: cuda, /' recipe.yaml >gpu.yaml
refuse 2 '^plait simulate: gpu.yaml:[0-9]+:[0-9]+: run.backend: cuda' "$PLAIT" simulate gpu.yaml
[ ! -e cache ] || fail "this machine was measured for another one's times"

# without a driver
export PLAIT_CUDA_DRIVER=/nowhere/libcuda.so.1
sentence='run.backend is cuda: there is no CUDA driver here \(/nowhere/libcuda.so.1: cannot open .*\); NVIDIA.s driver packages have it$'
refuse 2 "^plait train: $sentence" "$PLAIT" train recipe.yaml $cuda
refuse 2 "^plait train: $sentence" "$PLAIT" train recipe.yaml $cuda plan=auto run.cluster=h200-node mesh=null
refuse 2 "^plait tune: $sentence" "$PLAIT" tune recipe.yaml $cuda --cluster h200-node
[ ! -e run ] || fail "a refused run has a folder"
refuse 2 '^plait train: gpu.yaml:[0-9]+:[0-9]+: run.backend is cuda' "$PLAIT" train gpu.yaml
expect 0 'step +1/1' "$PLAIT" train recipe.yaml schedule.steps=1 schedule.warmup=0
refuse 2 "$sentence" "$PLAIT" eval run --data valid $cuda
refuse 2 "$sentence" "$PLAIT" generate run --prompt ba $cuda
expect 0 '^(ok|--)  GPU  .*(none|by NVIDIA)' "$PLAIT" doctor
expect 0 'run.devices .*no numbers|run.devices is .*run.backend' "$PLAIT" plan recipe.yaml 'run.devices=[1]'
finish
