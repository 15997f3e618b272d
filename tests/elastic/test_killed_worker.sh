#!/bin/bash
# tier 1; rooms comm train checkpoint; numbers
# A worker of plait launch is killed: all start again from the newest checkpoint, and the run is that of threads which nobody has killed,
# to the bit. test_launch.sh has what else may happen to workers.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
keys=(schedule.steps=60 checkpoint.every=10 eval.every=30)
"$PLAIT" train recipe.yaml "${keys[@]}" run.dir=whole >log 2>&1 || { cat log; die "the run of threads"; }
begins_or_ends() { compgen -G 'killed/checkpoints/step-*0' || ! kill -0 "$running"; }
for try in 1 2 3 4 5; do # a run is over in a second, and may be so before this script is scheduled again
  rm -rf killed
  "$PLAIT" launch --nproc-per-node 2 --max-restarts 1 recipe.yaml "${keys[@]}" run.dir=killed >log 2>&1 &
  running=$!
  wait_for begins_or_ends
  victim=$(pgrep -P "$running" | tail -1) # rank 1, which started last
  [ -n "$victim" ] && halt "$victim" && break
  wait "$running" || { cat log; die "the run of two workers"; }
  victim=''
done
[ -n "$victim" ] || die "five runs were over before their worker could be killed"
at=$(grep -c '"loss"' killed/metrics.jsonl)
kill -KILL "$victim"
wait "$running" || { cat log; fail "the run of which a worker was killed"; }
running=''
grep -qE "^plait launch: rank 1 on .* \(pid $victim\) was killed by SIGKILL .*; starting all 2 workers again" log || { cat log; fail "no word of rank 1"; }
[ "$(tail -1 killed/launch.jsonl)" = '{"rounds": 2, "restarts": 1, "status": 0}' ] || fail "launch.jsonl: $(cat killed/launch.jsonl)"
grep -q '"first_step": 1,' <(tail -2 killed/launch.jsonl) && fail "the second round begins at step 1"
same_run whole killed
[ "$(grep -c '"loss"' killed/metrics.jsonl)" -eq 60 ] || fail "killed has $(grep -c '"loss"' killed/metrics.jsonl) lines of steps"
echo "killed after step $at"
finish
