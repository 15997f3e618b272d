#!/bin/bash
# A pipeline that never drains (parallel.pipeline 2bw) through whole runs: one rank's numbers of delayed gradients, the same bits
# wherever it drains for evaluations and checkpoints, and after a resume and a signal. plan counts two steps, explain draws three.
. "$SOURCE/tests/train/harness.sh" || exit 1
metric() { sed -n "s/.*\"step\": $2, .*\"$3\": \([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
near() { awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) <= most * a) }'; }
keys=(optimizer.delay=1 schedule.steps=12 schedule.warmup=0 eval.every=4 checkpoint.every=3 checkpoint.keep=0 mesh.dp=1 parallel.zero=0)
stream=("${keys[@]}" mesh.pp=2 parallel.pipeline=2bw)

# one rank's numbers
expect 0 'step 12' "$PLAIT" train recipe.yaml precision=fp64 "${keys[@]}" run.dir=one
expect 0 'step 12' "$PLAIT" train recipe.yaml precision=fp64 "${stream[@]}" run.dir=whole
for step in 1 2 3 4 6 12; do
  near "$(metric one $step loss)" "$(metric whole $step loss)" 1e-10 || fail "step $step: $(metric whole $step loss), not $(metric one $step loss)"
done
near "$(metric one 12 eval_loss)" "$(metric whole 12 eval_loss)" 1e-10 || fail 'the evaluation'

# the same bits wherever it drains: nowhere, and after a resume
expect 0 'step 12' "$PLAIT" train recipe.yaml precision=fp64 "${stream[@]}" eval.every=12 checkpoint.every=12 run.dir=never
diff <(steady whole | grep -v eval_loss) <(steady never | grep -v eval_loss) >difference || { fail 'draining changes the run'; head -5 difference; }
cmp whole/checkpoints/step-12/part-* never/checkpoints/step-12/part-* 2>/dev/null || for part in whole/checkpoints/step-12/part-*; do
  cmp "$part" "never/checkpoints/step-12/${part##*/}" || fail 'draining changes the checkpoint'
done
for from in 3 9; do
  cp -r whole broken
  rm -rf broken/checkpoints/best
  for step in 6 9 12; do [ "$step" -gt "$from" ] && rm -rf broken/checkpoints/step-$step; done
  expect 0 'step 12' "$PLAIT" train recipe.yaml precision=fp64 "${stream[@]}" run.dir=broken
  same_run whole broken
  rm -rf broken
done

# what one rank has saved, a stream goes on with
expect 0 'step 12' "$PLAIT" train recipe.yaml precision=fp64 "${stream[@]}" run.dir=other checkpoint.resume="$work/one/checkpoints/step-6"
near "$(metric one 12 loss)" "$(metric other 12 loss)" 1e-10 || fail 'a stream that resumes from one rank'

# a signal: the step that has begun is done as well, and saved
long=("${stream[@]}" schedule.steps=4000 eval.every=4000 checkpoint.every=4000)
start recipe.yaml precision=fp64 "${long[@]}" run.dir=stopped
wait_for grep -q '^step *[0-9]*/' log || { cat log; fail 'no step'; }
kill -TERM "$running"
wait "$running"
[ $? -eq 143 ] || { cat log; fail 'SIGTERM does not end a stream with 143'; }
running=''
grep -q 'which is saved' log || { cat log; fail 'nothing is saved'; }

# steps are skipped at first, and the loss scale doubles; dp and ZeRO beside
half=(precision=fp16 loss_scale.initial=268435456 loss_scale.growth_interval=3)
expect 0 'step 1: gradients overflow' "$PLAIT" train recipe.yaml "${half[@]}" "${stream[@]}" run.dir=half
[ "$(metric half 3 skipped)" = 1 ] || fail 'step 3 of fp16 is not skipped'
expect 0 'step 12' "$PLAIT" train recipe.yaml precision=fp64 "${stream[@]}" mesh.dp=2 parallel.zero=1 run.noise_scale=2 run.dir=shards batch.micro=1
near "$(metric one 12 loss)" "$(metric shards 12 loss)" 1e-10 || fail 'dp 2 with ZeRO 1'

# plan, explain, refusals
expect 0 'older weights' "$PLAIT" plan recipe.yaml "${stream[@]}"
expect 0 'bubble .* of three steps' "$PLAIT" explain recipe.yaml "${stream[@]}" --timeline stream.svg
expect 0 'sums' "$PLAIT" explain recipe.yaml "${stream[@]}" --rank-coordinate 0
refuse 2 'optimizer.delay is not 1, but parallel.pipeline is 2bw' "$PLAIT" plan recipe.yaml "${stream[@]}" optimizer.delay=2
refuse 2 'takes at least as many microbatches' "$PLAIT" plan recipe.yaml "${stream[@]}" batch.micro=8
finish
