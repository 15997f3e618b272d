#!/bin/bash
# tier 1; rooms machine
# What a run says of itself: the memory that plait plan says, lines as they become true, a summary at its end, and nothing that it
# does not know.
. "$SOURCE/tests/train/harness.sh" || exit 1

# total KEYS…: the largest total of plait plan's columns
total() { "$PLAIT" plan recipe.yaml "$@" 2>plan-notes | sed -n 's/^= total *//p' | sed -E 's/ ([kMG]?B)/\1/g; s/ +/\n/g' | sort -h | tail -1 | sed -E 's/([kMG]?B)/ \1/'; }

# ---- the memory of a rank is the plan's ----

for keys in mesh.dp=2 'mesh.dp=1 mesh.pp=2' 'mesh.dp=1 mesh.tp=2 data.seq_len=16'; do
  rm -rf run
  # shellcheck disable=SC2086 # words on purpose
  expect 0 "; $(total $keys schedule.steps=1 schedule.warmup=0) a rank; " "$PLAIT" train recipe.yaml $keys schedule.steps=1 schedule.warmup=0
done

# ---- the summary, for people and as the last line of the metrics ----

rm -rf run
expect 0 '^this run     40 steps in .*s, 10\.2k tokens, .* tokens/s$' "$PLAIT" train recipe.yaml run.log_every=10
cp output log
grep -qx 'finished at step 40 of 40' log || fail 'it does not say that it is finished'
grep -q $'\033\\|\r' log && fail 'colours or lines that are rewritten, to a file'
# On a busy machine a checkpoint also waits for the one before, and says so.
said=$(grep '^step ' log | grep -cv ': waited ')
[ "$said" -eq $((5 + 20)) ] || fail "not the steps 1, 10, 20, 30 and 40, and 20 checkpoints: $said"
grep -q 'MFU *n/a\|nan' log run/metrics.jsonl && fail 'what is not known is shown'
loss=$(sed -n 's/^step 40\/40  loss \([0-9.]*\).*/\1/p' log)
grep -q "^loss  *$loss in the last step$" log || fail "the summary's loss is not that of the last step, $loss"
held=$(sed -n 's/^held-out at step \([0-9]*\): loss \([0-9.]*\)  ([0-9]* tokens in .* sequences of [0-9]*.*)$/\2 \1/p' log | sort -n | head -1)
grep -qE "^held-out .*${held% *} at step ${held#* }" log || fail "the best held-out loss is not $held"
grep -qx 'checkpoint   run/checkpoints/step-40' log && grep -qx 'metrics      run/metrics.jsonl' log || fail 'where things are'
grep -qx 'next         plait eval run' log && grep -qx "             plait generate run --prompt 'Once'" log || fail 'what comes next'
expect 0 'loss' "$PLAIT" eval run
tail -1 run/metrics.jsonl | grep -q '^{"summary": "finished", "step": 40, "run_steps": 40, "run_tokens": 10240, .*"final_loss": [0-9.]*, "best_eval_loss": ' ||
  fail "the last line of the metrics: $(tail -1 run/metrics.jsonl)"
[ "$(tail -1 run/metrics.jsonl | sed 's/.*"best_eval_step": \([0-9]*\).*/\1/')" = "${held#* }" ] || fail 'the step of the best held-out loss'

# A run that was interrupted: the same, and the best of both runs
expect 0 '^this run     4 steps' "$PLAIT" train recipe.yaml schedule.steps=44 eval.every=0
grep -q "the best was ${held% *} at step ${held#* }\|${held% *} at step ${held#* }, the best" output || { cat output; fail 'the best of the run before is forgotten'; }
: >log
env --default-signal=INT "$PLAIT" train recipe.yaml run.dir=stopped schedule.steps=1000000 checkpoint.every=0 run.log_every=1000000 eval.every=0 >log 2>&1 &
running=$!
wait_for grep -q '^step *1/' "$work/log" || { cat log; die 'the first step is not said at once'; }
head -1 log | grep -q 'a rank; ' || fail 'the header does not come first'
kill -INT "$running"
timeout "$limit" tail --pid="$running" -f /dev/null || die 'SIGINT does not stop it'
wait "$running"
[ $? -eq 130 ] || fail 'SIGINT: not status 130'
running=
grep -q '^stopped by SIGINT after step .*, which is saved; the same command resumes from there$' log || { cat log; fail 'SIGINT'; }
grep -q '^this run     [0-9]* steps' log && grep -q '^checkpoint   stopped/checkpoints/step-' log || { cat log; fail 'no summary'; }
tail -1 stopped/metrics.jsonl | grep -q '^{"summary": "stopped by SIGINT", ' || fail 'no summary in the metrics'
# ---- lists of runs: those in runs/ where no folder is named ----

refuse 2 'runs: there is no such folder; give that of your runs, as in plait runs FOLDER' "$PLAIT" runs
mkdir runs
refuse 2 'runs: there is no run in it' "$PLAIT" runs
cp -r run runs/first
expect 0 '^first .* done$' "$PLAIT" runs
"$PLAIT" runs runs | cmp - output || fail 'plait runs is not plait runs runs'

finish
