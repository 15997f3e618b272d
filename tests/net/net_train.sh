#!/bin/bash
# tier 3; rooms comm train; numbers
# plait train as processes without MPI, as two shells or torchrun start them: the run of threads to the bit; signals to one process stop
# all; one that is killed or stopped ends the others in time, with a sentence that names it, and the same command resumes.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1

printed() { cat "$logs"/[0-9] "$logs"/[0-9].err 2>/dev/null; }

# ---- torchrun's variables; its store has MASTER_PORT ----

"$PLAIT" train recipe.yaml schedule.steps=6 run.dir=threads run.comm=local >log 2>&1 || { cat log; die "threads"; }
export TORCHELASTIC_RUN_ID=none LOCAL_WORLD_SIZE=2 MASTER_ADDR=name.that.nobody.knows
ranks 2 "$PLAIT" train recipe.yaml schedule.steps=6 run.dir=torchrun >log 2>&1 || { cat log; fail "torchrun's variables"; }
unset TORCHELASTIC_RUN_ID LOCAL_WORLD_SIZE MASTER_ADDR
same_run threads torchrun

# ---- what cannot be ----

ranks 3 "$PLAIT" train recipe.yaml run.comm=net >log 2>&1
[ $? -eq 2 ] && grep -q 'is 2 ranks, but 3 processes were started; start 2' log || { cat log; fail "3 processes of 2 ranks"; }
ranks 2 "$PLAIT" train recipe.yaml run.comm=local >log 2>&1
[ $? -eq 2 ] && grep -q 'run.comm: local makes ranks threads of one process, but 2 processes were started' log || { cat log; fail "run.comm=local"; }
expect 2 'is 2 ranks, but 1 process was started' "$PLAIT" train recipe.yaml run.comm=net
expect 0 'saved' "$PLAIT" train recipe.yaml run.comm=net mesh.dp=1 schedule.steps=5 run.dir=single

# ---- signals, and on under another layout ----

slow='batch.global=64 schedule.steps=40 eval.every=0 precision=fp64 run.threads=2'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $slow run.dir=whole checkpoint.every=0 >log 2>&1 || { cat log; die "the unbroken run"; }

# The process that is this rank: below timeout
process_of() { pgrep -P "${pids[$1]}"; }

# shellcheck disable=SC2086
start_ranks 2 "$PLAIT" train recipe.yaml $slow run.dir=stopped checkpoint.every=0
wait_for grep -q '"step": 3,' stopped/metrics.jsonl || { printed; die "the run does not start"; }
kill -TERM "$(process_of 1)"
wait_ranks
status=$?
[ "$status" -eq 143 ] && printed | grep -q 'stopped by SIGTERM after step' || { printed; fail "SIGTERM to one process: status $status"; }
# shellcheck disable=SC2086
ranks 2 "$PLAIT" train recipe.yaml $slow mesh.dp=1 mesh.tp=2 parallel.zero=0 run.dir=stopped checkpoint.every=0 >log 2>&1 ||
  { cat log; fail "going on under tp 2"; }
paste <(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' whole/metrics.jsonl) <(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' stopped/metrics.jsonl) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-9 * $1)) bad = 1 } END { exit bad || NR != 40 }' || fail "another run after the stop"

# ---- a process that is killed, one that is stopped ----

# ends SIGNAL VICTIM SILENCE WORDS: the other two end with these in a sentence, within 6 s
ends() {
  local signal=$1 victim=$2 silence=$3 words=$4 run=$1$2 id began took r status
  rm -f "$logs"/*
  # shellcheck disable=SC2086
  start_ranks 3 "$PLAIT" train recipe.yaml $three run.dir="$run" run.silence="$silence"
  wait_for grep -q '"step": 7,' "$run/metrics.jsonl" || { printed; die "$run does not start"; }
  id=$(process_of "$victim")
  kill "-$signal" "$id"
  began=$EPOCHREALTIME
  for r in 0 1 2; do
    [ $r -eq "$victim" ] && continue
    wait "${pids[$r]}"
    status=$?
    [ $status -eq 1 ] || { printed; fail "$run: rank $r ends with $status"; }
    grep -q "^plait train: .*rank $victim on .* $words" "$logs/$r.err" ||
      { printed; fail "$run: rank $r does not say why"; }
  done
  took=$(awk "BEGIN { print $EPOCHREALTIME - $began }")
  sanitized || awk "BEGIN { exit !($took < 6) }" || fail "$run: it took $took s"
  kill -KILL "$id" 2>/dev/null
  wait_ranks
}

three='batch.global=48 mesh.dp=3 eval.every=0 precision=fp64 run.threads=2 schedule.steps=60 checkpoint.every=3'
for victim in 0 1 2; do
  ends KILL $victim 60 'has died: its connection has ended'
  ends STOP $victim 1 'is silent: nothing has come of it for 1 s'
done 2>"$work/noise"
# shellcheck disable=SC2086
"$PLAIT" train recipe.yaml $three run.dir=unbroken >log 2>&1 || { cat log; die "the unbroken run"; }
# shellcheck disable=SC2086
ranks 3 "$PLAIT" train recipe.yaml $three run.dir=KILL1 >log 2>&1 || { cat log; fail "going on after a rank was killed"; }
same_run unbroken KILL1
finish
