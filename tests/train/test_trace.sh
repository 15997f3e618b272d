#!/bin/bash
# tier 1; rooms runtime; threads numbers
# A trace holds what each rank did in the chosen steps and nothing else, as JSON that viewers take; tracing changes no
# number; the four parts of a step add up to it; event files appear, one per start, and can be switched off.
. "$SOURCE/tests/train/harness.sh" || exit 1
common=(schedule.steps=6 checkpoint.every=4 eval.every=0 batch.micro=2)

expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir=plain "${common[@]}"
expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir=traced run.trace=t.json run.trace_first=3 run.trace_steps=2 "${common[@]}"
same_run plain traced

# count PATTERN: lines of the trace (an event is one line)
count() { grep -cE -e "$1" t.json; }
# events NUMBER PATTERN
events() { [ "$(count "$2")" -eq "$1" ] || fail "$(count "$2") events match $2, not $1"; }

grep -qE '^\{"displayTimeUnit":"ms","otherData":\{"ranks":[0-9]+\},"traceEvents":\[' t.json || fail "the trace begins with $(head -c 70 t.json)"
[ "$(tail -n 1 t.json)" = ']}' ] || fail "the trace does not end"
events 2 '"process_name".*"rank [01]: pp 0 dp [01] cp 0 tp 0"'
events 4 '"cat":"step"'                     # 2 ranks × 2 steps
events 4 '"cat":"data"'
events 2 '"cat":"checkpoint"'               # after step 4
events 4 '"cat":"action","name":"begin"'
events 8 '"cat":"action","name":"F".*"microbatch":[01]}' # 2 microbatches
[ "$(count '"cat":"kernel","name":"matmul"')" -ge 40 ] || fail "few kernels"
[ "$(count '"cat":"kernel","name":"matmul".*"flops":[1-9][0-9]*,"bytes":[1-9]')" -eq "$(count '"cat":"kernel","name":"matmul"')" ] || fail "kernels without FLOPs and bytes"
[ "$(count '"cat":"communication","name":"(all_gather|reduce_scatter|all_reduce)"')" -ge 4 ] || fail "no collectives"
[ "$(count '"ph":"b"')" -eq "$(count '"ph":"e"')" ] || fail "spans in flight begin and do not end"
[ "$(count '"ph":"b"')" -gt 0 ] || fail "nothing was in flight beside backward"
[ "$(count '"ph":"b".*"stream":"dp"')" -eq "$(count '"ph":"b"')" ] || fail "spans in flight do not name the stream of dp"
events 0 'did not fit'
if command -v python3 >/dev/null; then
  python3 - <<'PYTHON' || fail "spans are wrong"
import json
events = json.load(open("t.json"))["traceEvents"]
for rank in (0, 1):
    stack = []  # spans of one thread nest
    for e in sorted((e for e in events if e["ph"] == "X" and e["pid"] == rank), key=lambda e: (e["ts"], -e["dur"])):
        while stack and stack[-1] <= e["ts"] + 1e-2: stack.pop()
        assert not stack or e["ts"] + e["dur"] <= stack[-1] + 1e-2, e
        stack.append(e["ts"] + e["dur"])
        assert e["ts"] > 0 and e["dur"] >= 0, e
    steps = [e for e in events if e["pid"] == rank and e.get("cat") == "step"]
    kernels = sum(e["dur"] for e in events if e["pid"] == rank and e.get("cat") == "kernel")
    assert 0 < kernels <= sum(e["dur"] for e in steps), (kernels, steps)
PYTHON
fi

# a run that ends before the last chosen step writes what there is; pipeline stages have receives
expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir=pipe run.trace=p.json run.trace_first=6 run.trace_steps=9 "${common[@]}" mesh.pp=2 mesh.dp=1 parallel.zero=0
[ "$(grep -c '"cat":"step"' p.json)" -eq 2 ] || fail "the last step is not in the trace"
grep -q '"name":"recv"' p.json || fail "no receives in the trace"
expect 1 'cannot be written' "$PLAIT" train recipe.yaml run.dir=nowhere run.trace=/nowhere/t.json "${common[@]}"
refuse 2 'run.trace_steps must be an integer from 1 to 1000' "$PLAIT" train recipe.yaml run.trace_steps=0

# the parts of a step
for run in plain pipe; do
  sed -n 's/.*"step_seconds": \([^,]*\), "compute_seconds": \([^,]*\), "comm_seconds": \([^,]*\), "data_wait_seconds": \([^,]*\), "idle_seconds": \([^,]*\),.*/\1 \2 \3 \4 \5/p' \
    $run/metrics.jsonl >parts
  [ "$(wc -l <parts)" -eq 6 ] || fail "$run: the parts of a step are missing"
  awk '{ d = $1 - $2 - $3 - $4 - $5; if (d > 1e-9 || d < -1e-9 || $2 <= 0 || $3 < 0 || $4 < 0 || $5 < 0) exit 1 }' parts ||
    fail "$run: the parts of a step do not add up: $(cat parts)"
done
awk '{ idle += $5 } END { exit !(idle > 0) }' parts || fail "a pipeline's stage never waits"

# event files
files() { find "$1" -maxdepth 1 -name 'events.out.tfevents.*' | wc -l; }
[ "$(files plain)" -eq 1 ] || fail "$(files plain) event files after one start"
expect 0 'all 6 steps are done' "$PLAIT" train recipe.yaml run.dir=plain "${common[@]}"
[ "$(files plain)" -eq 1 ] || fail "a run without a step has written an event file"
expect 0 'step 8' "$PLAIT" train recipe.yaml run.dir=plain "${common[@]}" schedule.steps=8
[ "$(files plain)" -eq 2 ] || fail "$(files plain) event files after two starts"
grep -qa 'brain.Event:2' plain/events.out.tfevents.* || fail "an event file has no version"
[ "$(grep -ao compute_seconds plain/events.out.tfevents.* | wc -l)" -eq 8 ] || fail "not one event a step"
expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir=without run.tensorboard=false "${common[@]}"
[ "$(files without)" -eq 0 ] || fail "run.tensorboard: false writes event files"
finish
