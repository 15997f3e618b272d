#!/bin/bash
# A pipeline whose stages update at once (parallel.pipeline pipedream) through whole runs: one rank's numbers of its list
# of delays, the same bits wherever it drains for evaluations and checkpoints, and after a resume and a signal; what is
# not finite ends or rolls back the run; refusals.
. "$SOURCE/tests/train/harness.sh" || exit 1
metric() { sed -n "s/.*\"step\": $2, .*\"$3\": \([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
near() { awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) <= most * a) }'; }
sed 's/"n_layer": 2/"n_layer": 4/; s/"tie_word_embeddings": true/"tie_word_embeddings": false/' model.json >untied.json
# The learning rate moves all the time: each stage is to take that of the step that it updates.
base=(precision=fp64 model.config=untied.json schedule.steps=12 schedule.warmup=4 schedule.name=cosine eval.every=4 checkpoint.every=3 checkpoint.keep=0
  mesh.dp=1 parallel.zero=0 batch.micro=8 optimizer.clip=0 run.non_finite=stop)
keys=("${base[@]}" 'optimizer.delay=[2,1,1,0]')
stream=("${keys[@]}" mesh.pp=3 'parallel.layers=[1,2,1]' parallel.pipeline=pipedream)

# one rank's numbers
expect 0 'step 12' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=one
expect 0 'step 12' "$PLAIT" train recipe.yaml "${stream[@]}" run.dir=whole
for step in 1 2 3 4 6 12; do
  near "$(metric one $step loss)" "$(metric whole $step loss)" 1e-10 || fail "step $step: $(metric whole $step loss), not $(metric one $step loss)"
  near "$(metric one $step grad_norm)" "$(metric whole $step grad_norm)" 1e-9 || fail "step $step: norm $(metric whole $step grad_norm), not $(metric one $step grad_norm)"
done
near "$(metric one 12 eval_loss)" "$(metric whole 12 eval_loss)" 1e-10 || fail 'the evaluation'

# the same bits wherever it drains: nowhere, and after a resume
expect 0 'step 12' "$PLAIT" train recipe.yaml "${stream[@]}" eval.every=12 checkpoint.every=12 run.dir=never
diff <(steady whole | grep -v eval_loss) <(steady never | grep -v eval_loss) >difference || { fail 'draining changes the run'; head -5 difference; }
for part in whole/checkpoints/step-12/part-*; do
  cmp "$part" "never/checkpoints/step-12/${part##*/}" || fail 'draining changes the checkpoint'
done
for from in 3 9; do
  cp -r whole broken
  rm -rf broken/checkpoints/best
  for step in 6 9 12; do [ "$step" -gt "$from" ] && rm -rf broken/checkpoints/step-$step; done
  expect 0 'step 12' "$PLAIT" train recipe.yaml "${stream[@]}" run.dir=broken
  same_run whole broken
  rm -rf broken
done

# what one rank has saved, a stream goes on with, and the other way round
expect 0 'step 12' "$PLAIT" train recipe.yaml "${stream[@]}" run.dir=other checkpoint.resume="$work/one/checkpoints/step-6"
near "$(metric one 12 loss)" "$(metric other 12 loss)" 1e-10 || fail 'a stream that resumes from one rank'
expect 0 'step 12' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=back checkpoint.resume="$work/whole/checkpoints/step-6"
near "$(metric one 12 loss)" "$(metric back 12 loss)" 1e-10 || fail 'one rank that resumes from a stream'

# dp with ZeRO beside
expect 0 'step 12' "$PLAIT" train recipe.yaml "${stream[@]}" mesh.dp=2 parallel.zero=2 batch.micro=4 run.dir=shards
near "$(metric one 12 loss)" "$(metric shards 12 loss)" 1e-10 || fail 'dp 2 with ZeRO 2'

# a signal: the steps that have begun are done as well, and the last one is saved
long=("${stream[@]}" schedule.steps=4000 eval.every=4000 checkpoint.every=4000)
start recipe.yaml "${long[@]}" run.dir=stopped
wait_for grep -q '^step *[0-9]*/' log || { cat log; fail 'no step'; }
kill -TERM "$running"
wait "$running"
[ $? -eq 143 ] || { cat log; fail 'SIGTERM does not end a stream with 143'; }
running=''
grep -q 'which is saved' log || { cat log; fail 'nothing is saved'; }

# what is not finite: weights have been updated with it; the run ends, or goes on from a checkpoint
blow=(precision=fp32 optimizer.lr=1e6 optimizer.weight_decay=1e6 schedule.warmup=0 eval.every=0 eval.batches= checkpoint.every=2)
refuse 1 'step [0-9]+: the gradient norm was not finite; run.non_finite is stop' "$PLAIT" train recipe.yaml "${stream[@]}" "${blow[@]}" run.dir=stop
[ "$(grep -c '"skipped": 1' stop/metrics.jsonl)" = 0 ] || fail 'a step that has updated is told as skipped'
expect 1 'the run has been rolled back 3 times already' "$PLAIT" train recipe.yaml "${keys[@]}" "${blow[@]}" run.dir=rolled_one run.non_finite=rollback
expect 1 'the run has been rolled back 3 times already' "$PLAIT" train recipe.yaml "${stream[@]}" "${blow[@]}" run.dir=rolled run.non_finite=rollback
[ "$(grep -c rolled_back_to rolled/metrics.jsonl)" -ge 3 ] || fail 'no rollbacks'
steps() { sed -n 's/.*"step": \([0-9]*\), .*"loss": \([^,]*\).*/\1 \2/p; s/.*"rolled_back_to": \([0-9]*\).*/to \1/p' "$1/metrics.jsonl"; }
diff <(steps rolled_one | cut -c-8) <(steps rolled | cut -c-8) >difference || { fail 'a stream rolls back otherwise than one rank'; cat difference; }

# plan, explain, refusals
expect 0 'older weights' "$PLAIT" plan recipe.yaml "${stream[@]}"
expect 0 'bubble .* of three steps' "$PLAIT" explain recipe.yaml "${stream[@]}" --timeline stream.svg
expect 0 'sums' "$PLAIT" explain recipe.yaml "${stream[@]}" --rank-coordinate 1
refuse 2 'optimizer.delay is 1, but .*; take optimizer.delay \[2,1,1,0\]' "$PLAIT" plan recipe.yaml "${stream[@]}" optimizer.delay=1
refuse 2 'optimizer.delay is \[2,2,1,0\], but .*; take optimizer.delay \[2,1,1,0\]' "$PLAIT" plan recipe.yaml "${stream[@]}" 'optimizer.delay=[2,2,1,0]'
# layers that are cut by cost: the list that is printed is the one that is taken
cut=("${base[@]}" mesh.pp=3 parallel.pipeline=pipedream)
"$PLAIT" plan recipe.yaml "${cut[@]}" optimizer.delay=1 >log 2>&1
list=$(sed -n 's/.*; take optimizer.delay \(\[[0-9,]*\]\), or .*/\1/p' log)
expect 0 'older weights' "$PLAIT" plan recipe.yaml "${cut[@]}" "optimizer.delay=$list"
refuse 2 'the last stage has no layer' "$PLAIT" plan recipe.yaml "${stream[@]}" 'parallel.layers=[2,2,0]'
refuse 2 'takes one a step; take batch.micro 8' "$PLAIT" plan recipe.yaml "${stream[@]}" batch.micro=2
refuse 2 'optimizer.clip is 1, .*; take optimizer.clip 0' "$PLAIT" plan recipe.yaml "${stream[@]}" optimizer.clip=1
refuse 2 'run.non_finite is skip, .*; take run.non_finite stop or rollback' "$PLAIT" plan recipe.yaml "${stream[@]}" run.non_finite=skip
refuse 2 'precision: fp16 skips steps' "$PLAIT" plan recipe.yaml "${stream[@]}" precision=fp16
refuse 2 'run.noise_scale tries steps' "$PLAIT" plan recipe.yaml "${stream[@]}" run.noise_scale=2
refuse 2 'the head of the model is its embedding' "$PLAIT" plan recipe.yaml "${stream[@]}" model.config=model.json mesh.pp=2 'parallel.layers=[1,1]' optimizer.delay=1
finish
