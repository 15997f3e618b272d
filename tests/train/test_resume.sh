#!/bin/bash
# tier 1 2; rooms checkpoint runtime data; numbers
# A run that is killed at any moment, also inside a checkpoint write, continues as if nothing had happened: the same losses
# and weights to the bit, no metrics line twice or missing. Under another layout: the same losses to rounding. In tier 1
# few kills and one layout. (Stopping and resuming with every key that keeps something: test_stop_and_resume.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
kills=21 # odd, so that the last falls inside a checkpoint write, and the run that follows has steps to do
sanitized && kills=7
[ "$tier" = 1 ] && kills=3
RANDOM=4321

"$PLAIT" train recipe.yaml run.dir=whole checkpoint.keep=0 >log 2>&1 || { cat log; die "the unbroken run"; }
[ "$(grep -c '"loss"' whole/metrics.jsonl)" -eq 40 ] || die "the unbroken run has not 40 lines"
[ "$(grep -c '"eval_loss"' whole/metrics.jsonl)" -eq 10 ] || die "the unbroken run has not 10 evaluations"

# ---- kill -9 ----

# Is a checkpoint being written that this process began? An older one may still lie there, and one that is removed has another
# name in the meantime, but a newer one beside it.
writing() {
  local folder other step
  for folder in "$1"/checkpoints/step-*.tmp; do
    [ "$folder" -nt "$work/started" ] || continue
    step=${folder##*/step-} step=${step%%.*}
    for other in "$1"/checkpoints/step-*[0-9]; do
      [ -d "$other" ] && [ "${other##*/step-}" -gt "$step" ] && continue 2
    done
    return 0
  done
  return 1
}

# Kills the process in the middle of a checkpoint: when one has begun, and a moment later, it is stopped. If the checkpoint is
# complete by then, it tries the next one.
kill_inside() {
  local wait
  while :; do
    until writing "$1"; do kill -0 "$running" 2>/dev/null || return; done
    wait=$((RANDOM % 400))
    while ((wait-- > 0)); do :; done
    halt "$running" || return
    writing "$1" && inside=$((inside + 1)) && break
    kill -CONT "$running"
  done
  kill -9 "$running" 2>/dev/null
}

kill_sometime() {
  sleep "0.$(printf '%03d' $((RANDOM % 400)))"
  kill -9 "$running" 2>/dev/null
}

killed=0 inside=0 round=0 finished=0
while [ "$killed" -lt "$kills" ]; do
  run=killed-$round
  touch started
  start recipe.yaml run.dir=$run
  if ((tier > 1 && killed % 2)); then kill_sometime; else kill_inside $run; fi # a time that is drawn is not a condition
  wait "$running" 2>/dev/null
  status=$?
  running=
  if [ "$status" -eq 0 ]; then
    same_run whole $run
    finished=$((finished + 1)) round=$((round + 1))
    [ "$finished" -lt 100 ] || die "the runs end before they are killed"
    continue
  fi
  [ "$status" -eq 137 ] || { cat log; die "$run: status $status, not killed"; }
  killed=$((killed + 1))
done
run=killed-$round
expect 0 'step 40' "$PLAIT" train recipe.yaml run.dir=$run
same_run whole $run
[ "$inside" -ge $((kills / 2)) ] || fail "only $inside of $killed kills fell inside a checkpoint write"
compgen -G "$run/checkpoints/*.tmp" && fail "an unfinished checkpoint is left"
[ "$(ls $run/checkpoints | wc -l)" -eq 3 ] || fail "keep: 3 keeps $(ls $run/checkpoints)"
echo "$killed kills, $inside inside a checkpoint write, $((finished + 1)) runs finished"

# ---- killed after a checkpoint was complete, and before older ones were removed ----

# late LAST STEPS…: the run was killed when step LAST was saved; STEPS are the checkpoints that are there after it was started again
late() {
  local last=$1 step
  shift
  cp -r $run late-$last
  rm -rf late-$last/checkpoints
  mkdir -p late-$last/checkpoints/step-30.tmp
  for step in 6 4 2 0; do cp -r whole/checkpoints/step-$((last - step)) late-$last/checkpoints; done
  expect 0 'step 40|all 40 steps are done' "$PLAIT" train recipe.yaml run.dir=late-$last
  same_run whole late-$last
  diff <(cd late-$last/checkpoints && ls) <(printf 'step-%s\n' "$@") || fail "late-$last keeps other checkpoints than $*"
}
late 38 36 38 40
late 40 34 36 38 40 # all is done: no checkpoint is removed, but what was half written

# ---- a machine that went down: half a line, a checkpoint that the disk has damaged ----

cp -r whole torn
rm -rf torn/checkpoints/step-4? torn/checkpoints/step-3[2-9]
printf '{"step": 41, "lo' >>torn/metrics.jsonl
head -c 100 torn/checkpoints/step-30/part-00001.safetensors >half
mv half torn/checkpoints/step-30/part-00001.safetensors
expect 0 'skipped checkpoint .*step-30/part-00001.safetensors: 100 bytes' "$PLAIT" train recipe.yaml run.dir=torn checkpoint.keep=0
grep -q 'resuming from .*step-28' output || fail "did not resume from the newest valid checkpoint"
same_run whole torn

# ---- another layout ----

layouts=('mesh.dp=2 mesh.pp=2 mesh.tp=2 parallel.zero=1' 'mesh.dp=1 parallel.zero=0' 'mesh.dp=4 parallel.zero=0' 'mesh.dp=1 mesh.pp=2'
  'mesh.dp=1 mesh.tp=2' 'mesh.dp=4 batch.micro=1')
[ "$tier" = 1 ] && layouts=("${layouts[0]}")
doubles='precision=fp64 eval.every=0 checkpoint.every=20 checkpoint.keep=0'
expect 0 'step 40' "$PLAIT" train recipe.yaml run.dir=fp64 $doubles

# close A B STEPS: losses and gradient norms of the steps of B, to 1e-9
close() {
  local pattern='s/.*"step": ([0-9]+), "loss": ([^,]*), "grad_norm": ([^,]*),.*/\1 \2 \3/p'
  join <(sed -nE "$pattern" "$1/metrics.jsonl" | sort) <(sed -nE "$pattern" "$2/metrics.jsonl" | sort) >joined
  awk 'function far(a, b) { d = a - b; return (d < 0 ? -d : d) > 1e-9 * a } far($2, $4) || far($3, $5) { print; bad = 1 }
    END { exit bad || NR != '"$3"' }' joined || fail "$2: the losses are not those of $1"
}

for layout in "${layouts[@]}"; do
  rm -rf other
  # shellcheck disable=SC2086 # words on purpose
  expect 0 'resuming from .*fp64/checkpoints/step-20' \
    "$PLAIT" train recipe.yaml run.dir=other checkpoint.resume=fp64/checkpoints/step-20 $doubles $layout
  close fp64 other 20
done
[ "$tier" = 1 ] && finish
# from and to virtual pipeline stages: a deeper model, half of it under one layout
deep='model.config=deep.json schedule.steps=8 eval.every=0 checkpoint.every=4 checkpoint.keep=0 precision=fp64'
sed 's/"n_layer": 2/"n_layer": 5/' model.json >deep.json
interleaved='mesh.dp=1 mesh.pp=2 parallel.pipeline=interleaved'
# shellcheck disable=SC2086
{
  expect 0 'step 8' "$PLAIT" train recipe.yaml run.dir=plain $deep
  expect 0 'step 8' "$PLAIT" train recipe.yaml run.dir=virtual $deep $interleaved 'parallel.layers=[1,2,1,1]'
  expect 0 'resuming from' "$PLAIT" train recipe.yaml run.dir=onto checkpoint.resume=plain/checkpoints/step-4 $deep $interleaved
  expect 0 'resuming from' "$PLAIT" train recipe.yaml run.dir=from checkpoint.resume=virtual/checkpoints/step-4 $deep parallel.zero=3
}
# from and to tensors that lie whole on one data rank each
whole='mesh.dp=2 mesh.pp=2 parallel.zero=2 parallel.unsplit_tensors=true'
# shellcheck disable=SC2086
{
  expect 0 'step 8' "$PLAIT" train recipe.yaml run.dir=owned $deep $whole
  expect 0 'resuming from' "$PLAIT" train recipe.yaml run.dir=onto-whole checkpoint.resume=virtual/checkpoints/step-4 $deep $whole
  expect 0 'resuming from' "$PLAIT" train recipe.yaml run.dir=from-whole checkpoint.resume=owned/checkpoints/step-4 $deep mesh.dp=4 parallel.zero=3
  expect 0 'resuming from' "$PLAIT" train recipe.yaml run.dir=of-others checkpoint.resume=owned/checkpoints/step-4 $deep mesh.dp=4 mesh.tp=2 \
    parallel.zero=3 parallel.unsplit_tensors=true
}
for run in owned onto-whole from-whole of-others; do close plain $run $([ $run = owned ] && echo 8 || echo 4); done
for run in virtual onto from; do close plain $run $([ $run = virtual ] && echo 8 || echo 4); done
# and back again, into the layout that it came from
rm -rf back
# shellcheck disable=SC2086
expect 0 'resuming from' "$PLAIT" train recipe.yaml run.dir=back checkpoint.resume=other/checkpoints/step-40 $doubles schedule.steps=60
finish
