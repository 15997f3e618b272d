#!/bin/bash
# tier 2; rooms runtime op; threads numbers
# Steps that are not finite: the search for a loss scale, the three policies, metrics, checkpoints and resuming.
. "$SOURCE/tests/train/harness.sh" || exit 1

# fp16: the scale is found, the steps until then are skipped, and say so.
expect 0 'step 1: gradients overflow \(head, linear_cross_entropy.*rank 0.*infinite\); skipped, the loss scale is 134217728 now' \
  "$PLAIT" train recipe.yaml precision=fp16 loss_scale.initial=268435456 schedule.steps=16 run.dir=search
grep -q '"skipped": 1, "loss_scale": 134217728, "non_finite": "head, linear_cross_entropy' search/metrics.jsonl || fail 'the skipped step is not in the metrics'
[ "$(metric search 16 skipped)" = 0 ] || fail 'no scale was found'
skipped=$(grep -c '"skipped": 1' search/metrics.jsonl)
[ "$skipped" -ge 2 ] && [ "$skipped" -le 14 ] || fail "$skipped steps skipped"

# The scale is in the checkpoint: another layout continues with it, and with the same numbers.
expect 0 'step 16' "$PLAIT" train recipe.yaml precision=fp16 loss_scale.initial=268435456 schedule.steps=16 run.dir=moved mesh.dp=1 mesh.tp=2 checkpoint.resume="$work/search/checkpoints/step-14"
[ "$(metric moved 16 loss_scale)" = "$(metric search 16 loss_scale)" ] || fail 'another layout continues with another scale'
a=$(metric moved 16 loss) b=$(metric search 16 loss)
awk -v a="$a" -v b="$b" 'BEGIN { exit !(a > b - 1e-3 && a < b + 1e-3) }' || fail "loss $a after a change of layout, $b without"

# A scale that grows: every two good steps.
expect 0 'step 8' "$PLAIT" train recipe.yaml precision=fp16 loss_scale.initial=1024 loss_scale.growth_interval=2 schedule.steps=8 run.dir=grows
[ "$(metric grows 8 loss_scale)" = 16384 ] || fail "the scale is $(metric grows 8 loss_scale) after 8 steps"
# A fixed one stays and is not an excuse.
refuse 1 'step 1: head, .*; run.non_finite is stop' \
  "$PLAIT" train recipe.yaml precision=fp16 loss_scale.initial=268435456 loss_scale.growth_interval=0 schedule.steps=8 run.dir=fixed run.non_finite=stop
[ "$(metric fixed 1 loss_scale)" = 268435456 ] || fail 'a fixed scale moved'

# Decay that is far too strong: one step multiplies matrices by −10^12, and in fp16 none of them can be read in the second step, whatever kernels run and in whatever order they sum up. The loss scale is fixed, so it is not an excuse.
half='precision=fp16 loss_scale.initial=1 loss_scale.growth_interval=0 optimizer.name=sgd optimizer.clip=0'
blow="$half optimizer.lr=1e6 optimizer.weight_decay=1e6 schedule.warmup=0 schedule.steps=12 eval.every=0 eval.batches="
expect 0 'step 2: .*rank 0.*infinite; skipped' "$PLAIT" train recipe.yaml $blow run.dir=skip
[ "$(metric skip 12 skipped)" = 1 ] || fail 'skip: the last step should have been skipped'
cmp skip/checkpoints/step-10/part-00000.safetensors skip/checkpoints/step-12/part-00000.safetensors || fail 'skipped steps changed the state'
[ "$(metric skip 1 skipped)$(metric skip 2 skipped)" = 01 ] || fail 'skip: it should have been step 2 that overflowed first'
# The sentence names the rank of the value; who reports it does not matter.
refuse 1 '^plait train: step 2: .*rank 0.*infinite; run.non_finite is stop' "$PLAIT" train recipe.yaml $blow run.dir=stop run.non_finite=stop
# What does not end by itself is ended: weights that are beyond help cost two steps each time.
refuse 1 'step 21: .*infinite; 20 steps in a row were not finite and had to be skipped' "$PLAIT" train recipe.yaml $blow schedule.steps=40 run.dir=lost
[ "$(grep -c '"skipped": 1' lost/metrics.jsonl)" = 20 ] || fail "lost: $(grep -c '"skipped": 1' lost/metrics.jsonl) skipped steps"
# It does not help here to begin at older weights, so the run ends after three times.
refuse 1 'the run has been rolled back 3 times already' "$PLAIT" train recipe.yaml $blow checkpoint.every=1 run.dir=back run.non_finite=rollback
[ "$(grep -c rolled_back_to back/metrics.jsonl)" = 3 ] || fail 'not three rollbacks in the metrics'
refuse 1 'there is no checkpoint to roll back to yet' "$PLAIT" train recipe.yaml $blow checkpoint.every=11 run.dir=none run.non_finite=rollback
refuse 2 'run.non_finite is rollback, but checkpoint.every is 0' "$PLAIT" train recipe.yaml $blow checkpoint.every=0 run.dir=none run.non_finite=rollback

# Here it does, since the run ends before the weights have grown again. A run without a checkpoint of its own has where it came from.
expect 0 'step 6' "$PLAIT" train recipe.yaml $half schedule.steps=6 run.dir=base
expect 0 'step 6: rolled back to the weights of step 4; training continues with the next batches' "$PLAIT" train recipe.yaml $blow schedule.steps=7 \
  checkpoint.every=0 checkpoint.resume="$work/base/checkpoints/step-4" run.dir=helped run.non_finite=rollback
[ "$(metric helped 7 skipped)" = 0 ] || fail 'the step after the rollback was skipped too'
[ "$(grep -c rolled_back_to helped/metrics.jsonl)" = 1 ] || fail 'not one rollback'

# Updates in backward: nothing can be skipped, so it ends or goes back, and the first gradient that was not finite is named.
# In fp32 it depends on the kernels which of the steps after the second one is the first to overflow.
backward='optimizer.name=sgd optimizer.clip=0 parallel.update=in_backward batch.micro=4 eval.every=0 eval.batches='
blow="$backward optimizer.lr=1e6 optimizer.weight_decay=1e6 schedule.warmup=0 schedule.steps=8"
refuse 1 'step [0-9]+: .*, sum_squares update\..*: (not a number|infinite); run.non_finite is stop' "$PLAIT" train recipe.yaml $blow run.dir=stop_backward run.non_finite=stop
grep -Eq '; backward had applied it already' "$work/output" || fail 'it does not say that backward had applied it'
expect 0 'step 6' "$PLAIT" train recipe.yaml $backward schedule.steps=6 run.dir=base_backward run.non_finite=stop
expect 0 'step [67]: rolled back to the weights of step 4; training continues with the next batches' "$PLAIT" train recipe.yaml $blow \
  checkpoint.every=0 checkpoint.resume="$work/base_backward/checkpoints/step-4" run.dir=helped_backward run.non_finite=rollback
back=$(sed -n 's/.*"step": \([0-9]*\), "rolled_back_to".*/\1/p' helped_backward/metrics.jsonl | head -1)
[ "$(metric helped_backward $((back + 1)) skipped)" = 0 ] || fail 'in backward: the step after the rollback was skipped too'

# Sums in bf16 are not silent, and only where there are sums.
expect 0 'gradients of 2 microbatches are added in bf16' "$PLAIT" train recipe.yaml schedule.steps=6 parallel.grad_dtype=bf16 run.dir=sums
expect 0 'step 6' "$PLAIT" train recipe.yaml schedule.steps=6 parallel.grad_dtype=bf16 batch.micro=4 run.dir=one
grep -q 'added in bf16' "$work/output" && fail 'one microbatch is not a sum'
finish
