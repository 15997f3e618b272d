#!/bin/bash
# SIGINT and SIGTERM: the step ends, a checkpoint is saved, the status is 128 + signal, and the next run goes on to the
# bit. A second signal ends at once. A run folder belongs to one process. A rank that fails takes all others along.
. "$SOURCE/tests/train/harness.sh" || exit 1

"$PLAIT" train recipe.yaml run.dir=whole checkpoint.keep=0 eval.every=1 >log 2>&1 || { cat log; die "the unbroken run"; }
expect 0 'second signal' "$PLAIT" train --help

# ---- stopped, and on ----

stops=0
: >log
for attempt in 1 2 3 4 5 6; do
  signal=$([ $((attempt % 2)) -eq 0 ] && echo INT || echo TERM)
  start recipe.yaml run.dir=stopped eval.every=1 # each stop leaves an evaluation out
  wait_for grep -q '^step *[0-9]*/' log
  kill -s $signal "$running"
  wait "$running"
  status=$?
  running=
  [ "$status" -eq 0 ] && break # the last step was done already
  [ "$status" -eq $([ $signal = INT ] && echo 130 || echo 143) ] || { cat log; die "SIG$signal gives status $status"; }
  step=$(sed -n 's/^stopped by signal [0-9]* after step \([0-9]*\), which is saved.*/\1/p' log)
  [ -f "stopped/checkpoints/step-$step/checkpoint.json" ] || die "stopped after step $step, which is not saved"
  [ "$(tail -1 stopped/metrics.jsonl | sed 's/.*"step": \([0-9]*\),.*/\1/')" -eq "$step" ] || die "lines beyond step $step"
  stops=$((stops + 1))
done
[ "$stops" -ge 1 ] || die "no run was stopped"
expect 0 'step|done' "$PLAIT" train recipe.yaml run.dir=stopped eval.every=1
same_run whole stopped
echo "stopped and went on $stops times"

# ---- two signals: at once, in the middle of a step ----

slow='batch.global=16384 batch.micro=64 data.prefetch=1'
sanitized && slow='batch.global=2048 batch.micro=16 data.prefetch=1'
# shellcheck disable=SC2086 # words on purpose
start recipe.yaml run.dir=twice $slow
wait_for grep -q '^gpt2' log
sleep 0.5
kill -TERM "$running"
sleep 0.1
kill -0 "$running" || { cat log; die "the first signal ends it at once"; }
before=$(date +%s%N)
kill -TERM "$running"
wait "$running"
status=$?
running=
[ "$status" -eq 143 ] || fail "two signals give status $status"
[ $(($(date +%s%N) - before)) -lt 2000000000 ] || fail "the second signal takes long"
grep -q 'stopped by' log && fail "the second signal waits for the step"

# ---- one process a folder ----

start recipe.yaml run.dir=mine schedule.steps=1000000 checkpoint.every=0
wait_for grep -q '^step *[0-9]*/' log
refuse 2 "mine is in use by process $running;" "$PLAIT" train recipe.yaml run.dir=mine
refuse 2 "mine is in use by process $running;" "$PLAIT" train mine/recipe.yaml
kill -0 "$running" || die "the run in the folder has ended"
kill -INT "$running"
wait "$running"
[ $? -eq 130 ] || fail "the locked run"
running=

# ---- a rank fails, late ----

# The second rank's share of some step holds an id beyond the vocabulary; the corpus begins well.
cp corpus.idx bad.idx
cp corpus.bin bad.bin
printf '\377\177' | dd of=bad.bin bs=2 seek=$(($(wc -c <bad.bin) / 2 - 3000)) conv=notrunc 2>/dev/null
for layout in 'mesh.dp=2' 'mesh.dp=4 batch.micro=1' 'mesh.dp=2 mesh.pp=2' 'mesh.dp=1 mesh.tp=2 mesh.pp=2'; do
  rm -rf failing
  # shellcheck disable=SC2086
  refuse 2 '^plait train: rank [0-3]: .*bad.bin.*32767.*0 to 299' \
    "$PLAIT" train recipe.yaml run.dir=failing data.train=bad schedule.steps=3000 eval.every=0 checkpoint.every=5 $layout
  [ "$(grep -c '"loss"' failing/metrics.jsonl)" -ge 6 ] || fail "$layout: the metrics of the steps before are gone"
  compgen -G 'failing/checkpoints/*.tmp' && fail "$layout: an unfinished checkpoint is left"
done
# the same corpus, whole again: the run goes on from what it had saved
cp corpus.bin bad.bin
saved=$(ls failing/checkpoints | sed 's/step-//' | sort -n | tail -1)
expect 0 "going on from .*step-$saved" "$PLAIT" train recipe.yaml run.dir=failing data.train=bad schedule.steps=$((saved + 10)) eval.every=0
finish
