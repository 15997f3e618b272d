#!/bin/bash
# tier 1; rooms train
# A corpus that is cut short while plait reads it: one sentence that names the file, status 1, checkpoints stay.
. "$SOURCE/tests/train/harness.sh" || exit 1

saved() { compgen -G 'run/checkpoints/step-*[0-9]'; } # any: those before the last three are removed again
# cut FILE: during a run with the corpus of that name
cut() {
  local file=$1 status
  rm -rf run
  cp corpus.bin cut.bin
  cp corpus.idx cut.idx
  start recipe.yaml data.train=cut schedule.steps=100000 schedule.warmup=5 eval.every=0 checkpoint.every=2
  wait_for saved || { cat log; die "the run does not start"; }
  : >"$file"
  wait "$running"
  status=$?
  running=
  [ "$status" -eq 1 ] || fail "$file: status $status"
  grep -q "^plait: .*$file: cannot be read any more: it has become shorter" log || fail "$file is not named"
  [ "$(grep -c '^plait' log)" -eq 1 ] || fail "$file: not one sentence"
  [ "$failures" -eq 0 ] || cat log
  expect 0 'loss' "$PLAIT" eval run
}
cut cut.bin
finish
