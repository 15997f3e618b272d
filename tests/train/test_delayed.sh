#!/bin/bash
# tier 2; rooms compile recipe runtime infer; numbers
# Delayed gradients: on another layout the same run to rounding. What is evaluated and exported are the newest weights. Measuring the
# noise scale changes nothing. plan shows the memory. (A run that stops: test_stop_and_resume.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
keys=(optimizer.delay=2 schedule.steps=12 schedule.warmup=0 eval.every=4 checkpoint.every=3 checkpoint.keep=0)

expect 0 'step 12' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=whole
expect 0 'step 12' "$PLAIT" train recipe.yaml "${keys[@]}" optimizer.delay=0 run.dir=newest
[ "$(metric whole 1 loss)" = "$(metric newest 1 loss)" ] || fail 'the first step is at the initial weights in any case'
[ "$(metric whole 2 loss)" = "$(metric newest 2 loss)" ] && fail 'delay 2 changes nothing of step 2'
[ "$(metric whole 1 loss)" ] || fail 'no loss'

# on another layout, in fp64
wide=(precision=fp64 "${keys[@]}")
expect 0 'step 12' "$PLAIT" train recipe.yaml "${wide[@]}" run.dir=wide
for mesh in 'mesh.dp=1 mesh.tp=2 parallel.zero=0' 'mesh.dp=2 parallel.zero=3' 'mesh.dp=1 mesh.pp=2 parallel.zero=0'; do
  rm -rf other
  # shellcheck disable=SC2086 # words on purpose
  expect 0 'step 12' "$PLAIT" train recipe.yaml "${wide[@]}" run.dir=other checkpoint.resume="$work/wide/checkpoints/step-3" $mesh
  near wide other 1e-10 3 12
  close_to "$(metric wide 12 eval_loss)" "$(metric other 12 eval_loss)" 1e-10 || fail "$mesh: the evaluation"
done

# an evaluation and an export see the newest weights: those of the checkpoint's parameters
expect 0 '' "$PLAIT" export whole/checkpoints/step-12 --out exported
expect 0 'step 1' "$PLAIT" train recipe.yaml run.dir=still model.init=exported optimizer.lr=0 schedule.steps=1 schedule.warmup=0 schedule.min_lr=0 eval.every=1
[ "$(metric still 1 eval_loss)" = "$(metric whole 12 eval_loss)" ] || fail "the exported model's loss is $(metric still 1 eval_loss), not $(metric whole 12 eval_loss)"

# a step that is tried first, to measure the noise scale, moves no version
expect 0 'step 12' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=measured run.noise_scale=1
diff <(steady whole | sed 's/, "part_.*//; s/, "noise.*//') <(steady measured | sed 's/, "part_.*//; s/, "noise.*//') >difference || { fail 'measuring changes the run'; head -5 difference; }

# another delay is another run; plan shows what versions take; wrong values
refuse 2 'optimizer.delay' "$PLAIT" train recipe.yaml "${keys[@]}" optimizer.delay=1 run.dir=whole schedule.steps=16
expect 0 'older weights' "$PLAIT" plan recipe.yaml "${keys[@]}"
"$PLAIT" plan recipe.yaml >output 2>&1
grep -q 'older weights' output && fail 'plan shows versions where there are none'
refuse 2 'optimizer.delay is \[1, 2, 3\]|optimizer.delay has 3 numbers' "$PLAIT" plan recipe.yaml optimizer.delay='[1,2,3]'
refuse 2 'parallel.update is in_backward' "$PLAIT" plan recipe.yaml optimizer.delay=1 parallel.update=in_backward batch.micro=4 optimizer.clip=0 run.non_finite=stop
finish
