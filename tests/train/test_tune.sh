#!/bin/bash
# tier 2; rooms machine cmd
# plait tune: real runs of a few plans, one that is killed, an interrupt, and one sentence where something is wrong.
. "$SOURCE/tests/train/harness.sh" || exit 1
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
clean() { [ -z "$(ls "$TMPDIR")" ] && [ ! -e run ] || fail "$1: left $(ls "$TMPDIR"; ls run 2>/dev/null)"; }
tune=("$PLAIT" tune recipe.yaml --cluster h200-node)
open='mesh=null parallel=null'
# start_tune OPTIONS…: in the background, as a user on a terminal would: its interrupts are not ignored
start_tune() {
  : >log
  env --default-signal=INT,TERM "${tune[@]}" "$@" >log 2>&1 &
  running=$!
}
# the process of the plan that is being run
run_of() { pgrep -P "$running"; }

# ---- two plans, in whole ----

# shellcheck disable=SC2086 # words on purpose
expect 0 'what differs from the recipe' "${tune[@]}" --top 2 --steps 4 --ranks 2 --write best.yaml $open
[ "$(grep -cE '^ +[12] +[0-9.]+ [um]?s +[0-9.]+ [um]?s +[-+][0-9.]+ % +3 ' output)" = 2 ] || fail "not two plans: $(cat output)"
grep -q '^2 ranks, threads of one process' output || fail "no head: $(cat output)"
clean "two plans"
expect 0 'step +2/2' "$PLAIT" train best.yaml schedule.steps=2 schedule.warmup=1 run.dir=best eval.every=0
grep -q 'dir: .*/run$' best.yaml || fail "best.yaml has another run.dir: $(grep dir: best.yaml)"
"${tune[@]}" --top 1 --steps 2 --json >json 2>err || fail "--json: $(cat err)"
python3 - <<'END' || fail "--json: $(cat json)"
import json
found = json.load(open("json"))
plan, = found["plans"]
assert found["ranks"] == 2 and not found["interrupted"] and plan["failed"] is None and plan["measured_steps"] == 1
assert plan["measured_seconds"] > 0 and abs(plan["error"] - (plan["predicted_seconds"] / plan["measured_seconds"] - 1)) < 1e-9
END

# ---- a run that is killed: noted, and the other plan is measured ----

start_tune --top 2 --steps 3000 mesh=null --write other.yaml
wait_for run_of || die "no run: $(cat log)"
kill -9 "$(run_of)"
wait_for grep -q 'cannot be run: killed by SIGKILL' log || fail "a killed run: $(cat log)"
wait_for grep -q '^plan 2' log || fail "the others do not continue: $(cat log)"

# ---- Ctrl-C in that second run: what is known is printed, nothing is written ----

wait_for run_of || die "no second run: $(cat log)"
child=$(run_of)
kill -INT "$running"
wait "$running"
[ $? = 130 ] || fail "status after SIGINT: $(cat log)"
running=''
kill -0 "$child" 2>/dev/null && fail "the plan's run outlives its parent"
grep -q '^interrupted; what was measured' log || fail "SIGINT: $(cat log)"
[ ! -e other.yaml ] || fail "--write after an interrupt"
clean "an interrupt"

# ---- what is wrong is said before anything is measured ----

refuse 2 'neither XDG_CACHE_HOME nor HOME says' env HOME= XDG_CACHE_HOME= "$PLAIT" tune recipe.yaml
refuse 2 'h200-node' "$PLAIT" tune recipe.yaml --cluster h200-nod
refuse 2 'corpora' "${tune[@]}" data.train=corpora
refuse 2 'run.comm is mpi.*run.comm=local' "${tune[@]}" run.comm=mpi
refuse 2 'one of 2 tasks' env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "${tune[@]}"
refuse 2 'the axes that are given' "${tune[@]}" --ranks 3
refuse 2 'steps' "${tune[@]}" --steps 1
refuse 1 'none of the 1 plans can be run; the first: ' "${tune[@]}" --top 1 --steps 8 optimizer.lr=1e6 optimizer.clip=0 schedule.warmup=0 run.non_finite=stop --write none.yaml
[ ! -e none.yaml ] || fail "--write without a plan that can be run"
clean "bad input"
finish
