#!/bin/bash
# tier 2; rooms train checkpoint; numbers
# run.dir belongs to the newest round of a job: a process of an earlier one that was stopped and wakes writes nothing more.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
export PLAIT_LAUNCH_JOB=some
long='schedule.steps=120 checkpoint.every=5'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $long run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }
for at in 3 12; do
  # shellcheck disable=SC2086
  PLAIT_LAUNCH_ROUND=4 "$PLAIT" train recipe.yaml $long run.dir=run$at >old.log 2>&1 &
  running=$!
  wait_for grep -q "\"step\": $at," run$at/metrics.jsonl || { cat old.log; die "the first round does not come to step $at"; }
  kill -STOP $running
  refuse 2 "is in use by process $running" env PLAIT_LAUNCH_ROUND=4 "$PLAIT" train recipe.yaml run.dir=run$at
  refuse 2 "is in use by process $running" env PLAIT_LAUNCH_JOB=other PLAIT_LAUNCH_ROUND=5 "$PLAIT" train recipe.yaml run.dir=run$at
  refuse 2 "is in use by process $running" env -u PLAIT_LAUNCH_JOB "$PLAIT" train recipe.yaml run.dir=run$at
  # shellcheck disable=SC2086
  PLAIT_LAUNCH_ROUND=5 "$PLAIT" train recipe.yaml $long run.dir=run$at >new.log 2>&1 || { cat new.log; fail "the next round does not take over"; }
  kill -CONT $running
  wait $running # it was stopped before a check of the round, or in the middle of a save, whose folder the next round has removed
  [ $? -eq 1 ] && grep -q 'belongs to round 5 of this job now, and this process is of round 4; it writes nothing more' old.log ||
    { tail -3 old.log; fail "the earlier round does not end"; }
  running=''
  same_run whole run$at
done
finish
