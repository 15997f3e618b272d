#!/bin/bash
# tier 2; rooms checkpoint infer; numbers
# The best checkpoint by held-out loss is kept and usable; a run ends early when the held-out loss does not get better, and says so
# again when it is started again; a blend's sources have a loss each; steps without targets have none.
. "$SOURCE/tests/train/harness.sh" || exit 1
small='mesh.dp=1 parallel.zero=0 schedule.warmup=0 schedule.name=constant eval.every=2 checkpoint.every=0'
best() { readlink "$1/checkpoints/best"; }
# shellcheck disable=SC2086 # words on purpose
{
  # ---- the best stays, however many come after it ----
  expect 0 'step 6: saved' "$PLAIT" train recipe.yaml run.dir=run $small schedule.steps=6 checkpoint.best=true checkpoint.keep=1
  [ "$(best run)" = step-6 ] || fail "the best of a run that gets better is $(best run)"
  [ "$(ls run/checkpoints)" = $'best\nstep-6' ] || fail "kept: $(ls run/checkpoints)"
  expect 0 'step 14: saved' "$PLAIT" train recipe.yaml run.dir=run $small schedule.steps=14 checkpoint.best=true checkpoint.keep=1 checkpoint.every=2 optimizer.lr=30
  [ "$(best run)" = step-6 ] || fail "a run that gets worse has $(best run) as its best"
  [ "$(ls run/checkpoints)" = $'best\nstep-14\nstep-6' ] || fail "kept: $(ls run/checkpoints)"
  grep -q '^best  *run/checkpoints/best$' output || fail "the summary does not name the best"
  loss=$(grep '"step": 6, "eval_loss"' run/metrics.jsonl | grep -oE '"eval_loss": [0-9.]+' | cut -d' ' -f2)
  expect 0 "loss $(printf %.4f "$("$PLAIT" eval run/checkpoints/best 2>&1 | grep -oE '^loss [0-9.]+' | cut -d' ' -f2)")" "$PLAIT" eval run/checkpoints/step-6
  expect 0 . "$PLAIT" generate run/checkpoints/best --prompt ba --max-tokens 3
  expect 0 . "$PLAIT" export run/checkpoints/best --out exported
  [ -n "$loss" ] || fail "no evaluation at step 6"
  # it is known after a resume, and after a kill between the checkpoint and its mark
  rm run/checkpoints/best
  expect 0 'step 16' "$PLAIT" train recipe.yaml run.dir=run $small schedule.steps=16 checkpoint.best=true checkpoint.keep=1 checkpoint.every=2 optimizer.lr=30
  [ "$(best run)" = step-6 ] || fail "after a resume the best is $(best run)"
  refuse 2 'checkpoint.best is true, but eval.every is 0' "$PLAIT" train recipe.yaml run.dir=no $small eval.every=0 checkpoint.best=true

  # ---- the end of patience: with a learning rate of 0 nothing gets better ----
  expect 0 'step 6: the run ends early: the held-out loss was lowest at step 2 \([0-9.]+\), and 2 evaluations since then were not better' \
    "$PLAIT" train recipe.yaml run.dir=patient $small schedule.steps=20 optimizer.lr=0 eval.patience=2
  grep -q '^ended early at step 6 of 20' output || fail "the summary does not say that the run ended early"
  grep -q '{"step": 6, "ended_early": 1, "best_eval_step": 2}' patient/metrics.jsonl || fail "metrics do not say that the run ended early"
  [ -e patient/checkpoints/step-6/checkpoint.json ] || fail "the end of patience is not saved"
  cp -r patient before
  expect 0 'patient: the run ended early at step 6: .* to train on all the same: plait train .*/patient/recipe.yaml eval.patience=0$' \
    "$PLAIT" train recipe.yaml run.dir=patient $small schedule.steps=20 optimizer.lr=0 eval.patience=2
  diff -r -x lock before patient >/dev/null || fail "a run whose patience is over has changed its folder"
  expect 0 'step 8: the run ends early' "$PLAIT" train recipe.yaml run.dir=patient $small schedule.steps=20 optimizer.lr=0 eval.patience=3
  expect 0 'finished at step 10 of 10' "$PLAIT" train recipe.yaml run.dir=patient $small schedule.steps=10 optimizer.lr=0 eval.patience=0
  refuse 2 'eval.patience is 2, but eval.every is 0' "$PLAIT" train recipe.yaml run.dir=no $small eval.every=0 eval.patience=2
  # another run's losses do not count
  rm -rf patient && cp -r before patient
  expect 0 'step 12: the run ends early: the held-out loss was lowest at step 8' \
    "$PLAIT" train --force recipe.yaml run.dir=patient $small schedule.steps=20 optimizer.lr=0 eval.patience=2 run.seed=8
  # an evaluation that is owed ends the run before another step, and is saved: it is neither forgotten nor counted twice
  owed="run.dir=owed $small eval.every=3 optimizer.lr=0 eval.patience=2"
  expect 0 'step 6' "$PLAIT" train recipe.yaml $owed schedule.steps=6
  sed -i '/"step": 6, "eval_loss"/d' owed/metrics.jsonl
  expect 0 '^step 6: the run ends early' "$PLAIT" train recipe.yaml $owed schedule.steps=20
  grep -qE '^step +7' output && fail "a step was trained after the end of patience"
  expect 0 'owed: the run ended early at step 6: .* 2 evaluations since then' "$PLAIT" train recipe.yaml $owed schedule.steps=20
  # several ranks come to the same end; so does a run that was stopped on the way
  expect 0 'step 6: the run ends early' "$PLAIT" train recipe.yaml run.dir=ranks schedule.warmup=0 schedule.name=constant eval.every=2 \
    optimizer.lr=0 schedule.steps=20 eval.patience=2 checkpoint.best=true
  cp -r ranks again
  rm -r again/checkpoints/step-[46]
  expect 0 'step 6: the run ends early' "$PLAIT" train recipe.yaml run.dir=again schedule.warmup=0 schedule.name=constant eval.every=2 \
    optimizer.lr=0 schedule.steps=20 eval.patience=2 checkpoint.best=true

  # ---- sources ----
  "$PLAIT" tokenize --tokenizer tokenizer.json --out few text-3?.txt >log 2>&1 || die "tokenize"
  expect 0 '^  of each source: corpus [0-9.]+, few [0-9.]+$' "$PLAIT" train recipe.yaml run.dir=sources $small eval.batches=1000 schedule.steps=2 'data.valid=[corpus, few]'
}
line=$(grep '"eval_loss"' sources/metrics.jsonl)
grep -qE '"eval_loss/corpus": [0-9.]+, "eval_loss/few": [0-9.]+' <<<"$line" || fail "metrics have no loss of each source: $line"
for part in corpus few; do
  loss=$(grep -oE "\"eval_loss/$part\": [0-9.]+" <<<"$line" | cut -d' ' -f2)
  expect 0 "^loss $(printf %.4f "$loss") " "$PLAIT" eval sources --data $part
done

# ---- nothing to predict ----
mkdir ones
for ((i = 0; i < 300; i++)); do printf a >"ones/$i.txt"; done
"$PLAIT" tokenize --tokenizer tokenizer.json --eot none --out ones/corpus ones/*.txt >log 2>&1 || { cat log; die "tokenize"; }
# shellcheck disable=SC2086
{
  refuse 2 'data.valid: no token to predict in the held-out text' "$PLAIT" train recipe.yaml run.dir=nothing $small data.valid=ones/corpus
  expect 0 '^step +1/2  loss n/a' "$PLAIT" train recipe.yaml run.dir=nothing $small schedule.steps=2 data.train=ones/corpus data.valid= eval.every=0
}
grep -q '^step 1: no token to predict, so there is no loss' output || fail "nothing is said about a step without targets"
grep -qE '"loss": null' nothing/metrics.jsonl || fail "the metrics have a loss of a step without targets"
grep -qE 'loss +0\.0000' output && fail "a loss of 0 is shown"
finish
