#!/bin/bash
# tier 2; rooms checkpoint recipe
# A run that is sent back to an earlier checkpoint, or to another run's, loses nothing silently: it is refused, or with --force
# what came later is moved aside; the same command then resumes from what the run has reached.
. "$SOURCE/tests/train/harness.sh" || exit 1
steps=(schedule.warmup=0 mesh.dp=1 parallel.zero=0 eval.every=0)
untouched() { diff -r -x lock before "$1" >difference || fail "a refusal changed $1: $(head -3 difference)"; }
newest() { grep -oE 'checkpoints/step-[0-9]+$' output | head -1; }

"$PLAIT" train recipe.yaml "${steps[@]}" schedule.steps=12 checkpoint.keep=0 eval.every=2 checkpoint.best=true >log 2>&1 || { cat log; die "the run before"; }
[ "$(readlink run/checkpoints/best)" = step-12 ] || die "the best is $(readlink run/checkpoints/best), not the last"

# ---- back to an own checkpoint ----

cp -r run before
refuse 2 'checkpoint.resume names step 4, but .*/run has later checkpoints, up to step 12; .* go back to step 4 with --force' \
  "$PLAIT" train recipe.yaml "${steps[@]}" checkpoint.resume=run/checkpoints/step-4 schedule.steps=8
untouched run
back=(recipe.yaml "${steps[@]}" checkpoint.resume=run/checkpoints/step-4 checkpoint.keep=2)
expect 0 '^note: --force: the checkpoints after step 4 are in .*/run/checkpoints.abandoned-1 now$' "$PLAIT" train --force "${back[@]}" schedule.steps=8
[ "$(echo run/checkpoints/step-*)" = 'run/checkpoints/step-6 run/checkpoints/step-8' ] || fail "kept: $(ls run/checkpoints)"
for step in 6 8 10 12; do
  diff -r before/checkpoints/step-$step run/checkpoints.abandoned-1/step-$step >difference || fail "step $step is not as it was: $(head -3 difference)"
done
[ "$(readlink run/checkpoints.abandoned-1/best)" = step-12 ] && [ ! -L run/checkpoints/best ] || fail "best is not with the checkpoint that it names"
cmp before/metrics.jsonl run/checkpoints.abandoned-1/metrics.jsonl || fail "the metrics that came later are lost"
grep -q '"step": 9,' run/metrics.jsonl && fail "the metrics have steps that the run no longer has"
grep -qE 'resume: auto$' run/recipe.yaml || fail "the run's recipe still goes back: $(grep resume: run/recipe.yaml)"
# the same command continues the run, also where the checkpoint it names has been pruned; so does the run's recipe
for force in '' --force; do
  # shellcheck disable=SC2086 # no word where empty
  expect 0 '^note: checkpoint.resume is where the run began; .*/run has later checkpoints of its own' "$PLAIT" train $force "${back[@]}" schedule.steps=10
  [ "$(newest)" = checkpoints/step-8 ] || fail "the same command resumes from $(newest)"
  rm -r run/checkpoints/step-10
done
expect 0 'checkpoints/step-8$' "$PLAIT" train run/recipe.yaml schedule.steps=10
[ ! -e run/checkpoints.abandoned-2 ] || fail "there was nothing to move"

# ---- another run's checkpoint ----

rm -rf before && cp -r run before
fork=(recipe.yaml "${steps[@]}" run.dir=fork run.seed=8)
expect 0 'step 10' "$PLAIT" train "${fork[@]}" checkpoint.resume=run/checkpoints/step-8 schedule.steps=10
grep -qE 'resume: auto$' fork/recipe.yaml || fail "the fork's recipe begins again"
expect 0 'step 12' "$PLAIT" train "${fork[@]}" schedule.steps=12 # auto, in between
expect 0 'has later checkpoints of its own' "$PLAIT" train "${fork[@]}" checkpoint.resume=run/checkpoints/step-8 schedule.steps=14
[ "$(newest)" = checkpoints/step-12 ] || fail "the command that began the fork resumes from $(newest)"
grep -q '"step": 11,' fork/metrics.jsonl || fail "the fork has lost metrics"
rm -rf before && cp -r fork before
refuse 2 'checkpoint.resume: .*/fork holds checkpoints already, up to step 14, and this run did not begin at .*/step-10; choose another run.dir' \
  "$PLAIT" train "${fork[@]}" checkpoint.resume=run/checkpoints/step-10 schedule.steps=16
untouched fork
expect 0 '^note: --force: the checkpoints of the run that was in .*/fork are in .*/fork/checkpoints.abandoned-1 now$' \
  "$PLAIT" train --force "${fork[@]}" checkpoint.resume=run/checkpoints/step-10 schedule.steps=12
[ "$(echo fork/checkpoints/step-*)" = fork/checkpoints/step-12 ] || fail "in the fork: $(ls fork/checkpoints)"
[ -e fork/checkpoints.abandoned-1/step-14/checkpoint.json ] || fail "the fork's own are lost"
grep -q '"step": 10,' fork/metrics.jsonl && fail "the metrics of another run have stayed"

# ---- its own checkpoints are damaged: no new beginning ----

cp -r fork/metrics.jsonl metrics
printf x >>fork/checkpoints/step-12/part-00000.safetensors
refuse 2 'run.dir: no checkpoint in .*/fork/checkpoints can be read \(.*step-12.*\); move them away to start over' \
  "$PLAIT" train "${fork[@]}" checkpoint.resume=run/checkpoints/step-10 schedule.steps=14
cmp metrics fork/metrics.jsonl || fail "a refusal changed the metrics"

# ---- precision: auto is that of the checkpoint ----

expect 0 'step 4' "$PLAIT" train recipe.yaml "${steps[@]}" run.dir=half schedule.steps=4 precision=fp16 loss_scale.initial=1024
echo 'no: recipe' >half/recipe.yaml
expect 0 'auto is fp16 here, as in the run so far' "$PLAIT" train recipe.yaml "${steps[@]}" run.dir=half schedule.steps=6 precision=auto
expect 0 'auto is fp16 here, as in the run so far' "$PLAIT" train --force recipe.yaml "${steps[@]}" checkpoint.resume=half/checkpoints/step-6 schedule.steps=8 precision=auto
finish
