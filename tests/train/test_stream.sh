#!/bin/bash
# tier 2; rooms schedule compile recipe runtime cmd; numbers
# Pipelines that never drain (parallel.pipeline 2bw; pipedream, whose stages update at once) through whole runs: one rank's numbers of
# delayed gradients, the same bits wherever it drains for evaluations and checkpoints, and a signal. plan counts two steps, explain
# draws three; what is not finite ends or rolls back the run; refusals. (A run that stops: test_stop_and_resume.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
steps=(precision=fp64 schedule.steps=12 eval.every=4 checkpoint.every=3 checkpoint.keep=0 mesh.dp=1 parallel.zero=0)
train() { expect 0 'step 12' "$PLAIT" train recipe.yaml "$@"; }

# streams NAME: with ${stream[@]}, has the numbers of one rank with ${keys[@]}
streams() {
  local name=$1 part step
  # one rank's numbers
  train "${keys[@]}" run.dir=one-$name
  train "${stream[@]}" run.dir=$name
  near one-$name $name 1e-10 0 12
  for step in 1 2 3 4 6 12; do close_to "$(metric one-$name $step grad_norm)" "$(metric $name $step grad_norm)" 1e-9 || fail "$name: norm of step $step"; done
  close_to "$(metric one-$name 12 eval_loss)" "$(metric $name 12 eval_loss)" 1e-10 || fail "$name: the evaluation"
  # the same bits wherever it drains, or nowhere
  train "${stream[@]}" eval.every=12 checkpoint.every=12 run.dir=never
  diff <(steady $name | grep -v eval_loss) <(steady never | grep -v eval_loss) >difference || { fail "$name: draining changes the run"; head -5 difference; }
  for part in $name/checkpoints/step-12/part-*; do
    cmp "$part" "never/checkpoints/step-12/${part##*/}" || fail "$name: draining changes the checkpoint"
  done
  # a stream resumes what one rank has saved, and the other way round
  train "${stream[@]}" run.dir=other checkpoint.resume="$work/one-$name/checkpoints/step-6"
  train "${keys[@]}" run.dir=back checkpoint.resume="$work/$name/checkpoints/step-6"
  for part in other back; do close_to "$(metric one-$name 12 loss)" "$(metric $part 12 loss)" 1e-10 || fail "$name: $part"; done
  # a signal: the steps that have begun are done as well, and the last one is saved
  start recipe.yaml "${stream[@]}" schedule.steps=4000 eval.every=4000 checkpoint.every=4000 run.dir=stopped
  wait_for grep -q '^step *[0-9]*/' log || { cat log; fail "$name: no step"; }
  kill -TERM "$running"
  wait "$running"
  [ $? -eq 143 ] || { cat log; fail "SIGTERM does not end $name with 143"; }
  running=''
  grep -q 'which is saved' log || { cat log; fail "$name: nothing is saved"; }
  expect 0 'older weights' "$PLAIT" plan recipe.yaml "${stream[@]}"
  expect 0 'bubble .* of three steps' "$PLAIT" explain recipe.yaml "${stream[@]}" --timeline stream.svg
  expect 0 'sums' "$PLAIT" explain recipe.yaml "${stream[@]}" --rank-coordinate 1
  rm -rf never other back stopped
}
refused() { refuse 2 "$1" "$PLAIT" plan recipe.yaml "${stream[@]}" "${@:2}"; }

# ---- pipedream: the learning rate moves all the time, and each stage is to take that of the step that it updates ----

sed 's/"n_layer": 2/"n_layer": 4/; s/"tie_word_embeddings": true/"tie_word_embeddings": false/' model.json >untied.json
base=("${steps[@]}" model.config=untied.json schedule.warmup=4 schedule.name=cosine batch.micro=8 optimizer.clip=0 run.non_finite=stop)
keys=("${base[@]}" 'optimizer.delay=[2,1,1,0]')
stream=("${keys[@]}" mesh.pp=3 'parallel.layers=[1,2,1]' parallel.pipeline=pipedream)
streams pipedream
train "${stream[@]}" mesh.dp=2 parallel.zero=2 batch.micro=4 run.dir=shards
close_to "$(metric one-pipedream 12 loss)" "$(metric shards 12 loss)" 1e-10 || fail 'dp 2 with ZeRO 2'

# what is not finite: weights have been updated with it; the run ends, or continues from a checkpoint
blow=(precision=fp32 optimizer.lr=1e6 optimizer.weight_decay=1e6 schedule.warmup=0 eval.every=0 eval.batches= checkpoint.every=2)
refuse 1 'step [0-9]+: the gradient norm was not finite; run.non_finite is stop' "$PLAIT" train recipe.yaml "${stream[@]}" "${blow[@]}" run.dir=stop
[ "$(grep -c '"skipped": 1' stop/metrics.jsonl)" = 0 ] || fail 'a step that has updated is told as skipped'
expect 1 'the run has been rolled back 3 times already' "$PLAIT" train recipe.yaml "${keys[@]}" "${blow[@]}" run.dir=rolled_one run.non_finite=rollback
expect 1 'the run has been rolled back 3 times already' "$PLAIT" train recipe.yaml "${stream[@]}" "${blow[@]}" run.dir=rolled run.non_finite=rollback
[ "$(grep -c rolled_back_to rolled/metrics.jsonl)" -ge 3 ] || fail 'no rollbacks'
steps_of() { sed -n 's/.*"step": \([0-9]*\), .*"loss": \([^,]*\).*/\1 \2/p; s/.*"rolled_back_to": \([0-9]*\).*/to \1/p' "$1/metrics.jsonl"; }
diff <(steps_of rolled_one | cut -c-8) <(steps_of rolled | cut -c-8) >difference || { fail 'a stream rolls back otherwise than one rank'; cat difference; }

# layers that are cut by cost: the list that is printed is the one that is taken
cut=("${base[@]}" mesh.pp=3 parallel.pipeline=pipedream)
"$PLAIT" plan recipe.yaml "${cut[@]}" optimizer.delay=1 >log 2>&1
list=$(sed -n 's/.*; take optimizer.delay \(\[[0-9,]*\]\), or .*/\1/p' log)
expect 0 'older weights' "$PLAIT" plan recipe.yaml "${cut[@]}" "optimizer.delay=$list"
refused 'optimizer.delay is 1, but .*; take optimizer.delay \[2,1,1,0\]' optimizer.delay=1
refused 'optimizer.delay is \[2,2,1,0\], but .*; take optimizer.delay \[2,1,1,0\]' 'optimizer.delay=[2,2,1,0]'
refused 'the last stage has no layer' 'parallel.layers=[2,2,0]'
refused 'takes one a step; take batch.micro 8' batch.micro=2
refused 'optimizer.clip is 1, .*; take optimizer.clip 0' optimizer.clip=1
refused 'run.non_finite is skip, .*; take run.non_finite stop or rollback' run.non_finite=skip
refused 'precision: fp16 skips steps' precision=fp16
refused 'run.noise_scale tries steps' run.noise_scale=2
refused 'the head of the model is its embedding' model.config=model.json mesh.pp=2 'parallel.layers=[1,1]' optimizer.delay=1

# ---- 2bw ----

keys=("${steps[@]}" optimizer.delay=1 schedule.warmup=0)
stream=("${keys[@]}" mesh.pp=2 parallel.pipeline=2bw)
streams 2bw
# steps are skipped at first, and the loss scale doubles; dp and ZeRO beside
expect 0 'step 1: gradients overflow' "$PLAIT" train recipe.yaml "${stream[@]}" precision=fp16 loss_scale.initial=268435456 \
  loss_scale.growth_interval=3 run.dir=half
[ "$(metric half 3 skipped)" = 1 ] || fail 'step 3 of fp16 is not skipped'
train "${stream[@]}" mesh.dp=2 parallel.zero=1 run.noise_scale=2 run.dir=noise batch.micro=1
close_to "$(metric one-2bw 12 loss)" "$(metric noise 12 loss)" 1e-10 || fail 'dp 2 with ZeRO 1'
# shares that change after a step: no later one has begun by then
printf '{"step": %d, "shares": [%s]}\n' 1 '4, 4' 3 '3, 5' 6 '5, 3' >log.jsonl
train "${stream[@]}" mesh.dp=2 batch.micro=1 batch.balance=measured batch.most=1.25 batch.replay=log.jsonl run.dir=shares
close_to "$(metric one-2bw 12 loss)" "$(metric shares 12 loss)" 1e-10 || fail 'shares that change'
refused 'optimizer.delay is not 1, but parallel.pipeline is 2bw' optimizer.delay=2
refused 'takes at least as many microbatches' batch.micro=8
finish
