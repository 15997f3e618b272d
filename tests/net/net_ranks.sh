#!/bin/bash
# tier 3; rooms comm train; numbers
# Ranks come and go: 4, 3, 1 and 4 of them by mesh.dp auto, stopped or killed and resumed in one folder. The same samples in the same
# order: in fp64 the losses of each round are within 1e-10 those of one rank that starts at the round's checkpoint, and within 1e-8 those
# of the unbroken run; each metrics line is there once. Ranks that no mesh can use are named, wait, and end with the others.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1
limit=300

printed() { cat "$logs"/[0-9] "$logs"/[0-9].err 2>/dev/null; }
process_of() { pgrep -P "${pids[$1]}"; } # the process that is this rank: below timeout

keys=(precision=fp64 batch.global=189 batch.micro=8 schedule.steps=30 schedule.name=constant schedule.warmup=4 eval.every=7 checkpoint.every=3 checkpoint.keep=0 run.threads=2)
"$PLAIT" train recipe.yaml "${keys[@]}" mesh.dp=1 parallel.zero=0 run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }

# round RANKS STEP SIGNAL KEYS…: goes on with so many ranks, until the metrics have the step; then the signal comes to the last rank
from=()
round() {
  local ranks=$1 step=$2 signal=$3 status
  shift 3
  from+=("$(basename "$(ls -d run/checkpoints/step-* 2>/dev/null | grep -v tmp | sort -V | tail -1)" | sed 's/step-//; s/^$/0/')")
  rm -f "$logs"/*
  start_ranks "$ranks" "$PLAIT" train recipe.yaml "${keys[@]}" mesh.dp=auto run.dir=run "$@"
  if [ -n "$signal" ]; then
    wait_for grep -q "\"step\": $step," run/metrics.jsonl || { printed; die "$ranks ranks do not come to step $step"; }
    kill "-$signal" "$(process_of $((ranks - 1)))"
  fi
  wait_ranks
  status=$?
  case $signal in
    TERM) [ $status -eq 143 ] || { printed; fail "$ranks ranks after SIGTERM: status $status"; } ;;
    KILL) [ $status -ne 0 ] || { printed; fail "$ranks ranks after SIGKILL: status 0"; } ;;
    *) [ $status -eq 0 ] || { printed; fail "$ranks ranks: status $status"; } ;;
  esac
  grep -q "mesh.dp: auto is $ranks on $ranks rank" "$logs/0" || { printed; fail "it is not said what mesh.dp: auto is"; }
}
round 4 6 TERM
round 3 12 KILL run.silence=2
round 1 17 TERM run.comm=local
round 4 30 ''

[ "$(grep -c '"eval_loss"' run/metrics.jsonl)" = "$(grep -c '"eval_loss"' whole/metrics.jsonl)" ] || fail "not each evaluation once"
[ ${#from[@]} -eq 4 ] && [ "${from[0]}" = 0 ] || fail "rounds begin at ${from[*]}"
echo "rounds begin after the steps ${from[*]}"
as_one_rank run 30 "${from[@]}"

# ---- ranks that no mesh can use ----

start_ranks 3 "$PLAIT" train recipe.yaml "${keys[@]}" mesh.dp=auto mesh.tp=2 run.dir=idle
wait_for grep -q '"step": 3,' idle/metrics.jsonl || { printed; die "a run with an idle rank does not start"; }
kill -TERM "$(process_of 2)" # it waits for the others
wait_for grep -q '"step": 5,' idle/metrics.jsonl || { printed; fail "a signal to an idle rank ends the run"; }
kill -TERM "$(process_of 0)"
for r in 0 1 2; do
  wait "${pids[$r]}"
  status=$?
  [ $status -eq 143 ] || { printed; fail "rank $r of a run with an idle rank ends with $status"; }
done
grep -q 'mesh.dp: auto is 1 on 3 ranks: .*; rank 2 has no place in the mesh and is idle' "$logs/0" || { printed; fail "idle ranks are not named"; }
ranks 3 "$PLAIT" train recipe.yaml "${keys[@]}" mesh.dp=auto mesh.tp=2 run.dir=idle >log 2>&1 || { cat log; fail "an idle rank does not end well"; }
near whole idle 1e-8 0 30
ranks 3 "$PLAIT" train recipe.yaml "${keys[@]}" mesh.dp=auto mesh.tp=4 run.dir=few >log 2>&1
[ $? -eq 2 ] && grep -q 'mesh.dp is auto, but 3 ranks are fewer than the 4 of pp 1 × cp 1 × tp 4; start at least 4' log || { cat log; fail "too few ranks"; }
finish
