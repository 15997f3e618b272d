#!/bin/bash
# plait simulate --against: a trace of a run beside its simulation; wrong files and traces of other recipes are refused.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CLUSTERS=$SOURCE/clusters
common=(schedule.steps=6 eval.every=0 checkpoint.every=0 batch.micro=2)
trace=(run.trace_first=2 run.trace_steps=2)

expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir=traced run.trace=t.json "${trace[@]}" "${common[@]}"
expect 0 'beside t.json, 2 steps of 2 ranks: a step of one rank' \
  "$PLAIT" simulate recipe.yaml --cluster h200-node --against t.json "${common[@]}"
grep -qE '^  layer\.\*\.[a-z.]+ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' output || fail "no op has both times"
grep -qE '^  the step +[0-9.]+ +[0-9.]+ +[0-9.]+$' output || fail "the step is missing"
cp output beside
if command -v python3 >/dev/null; then # the measured sums are those of the trace
  python3 - <<'PYTHON' || fail "measured sums are wrong"
import json, re
events = json.load(open("t.json"))["traceEvents"]
kernels = sum(e["dur"] for e in events if e.get("cat") == "kernel") / 2 / 2 / 1e3  # of 2 ranks, 2 steps
lines = open("beside").read().split("\n")
kernel = next(i for i, line in enumerate(lines) if line.startswith("  kernels"))
together = next(line for line in lines[kernel:] if line.startswith("  together"))
assert abs(float(together.split()[1]) - kernels) < 0.02 + 1e-3 * kernels, (together, kernels)
step = sum(e["dur"] for e in events if e.get("cat") == "step") / 2 / 2 / 1e3
assert abs(float(next(line for line in lines if line.startswith("  the step")).split()[2]) - step) < 0.01, step
PYTHON
fi

if command -v python3 >/dev/null; then # as JSON: the same steps
  "$PLAIT" simulate recipe.yaml --cluster h200-node --against t.json "${common[@]}" --json >beside.json || fail "--json"
  python3 - <<'PYTHON' || fail "--json has other times: $(tail -20 beside.json)"
import json
found = json.load(open("beside.json"))
step = next(line for line in open("beside") if line.startswith("  the step")).split()
assert abs(1e3 * found["against"]["step"]["measured_seconds"] - float(step[2])) < 0.001
assert abs(1e3 * found["step_seconds"] - float(step[3])) < 0.001
assert "kernel" in {op["group"] for op in found["against"]["ops"]}
assert sum(op["measured_seconds"] for op in found["against"]["ops"]) > 0
PYTHON
fi

# another recipe: ranks, layers, kernels
against() { refuse 2 "$1" "$PLAIT" simulate recipe.yaml --cluster h200-node --against "${@:2}"; }
against 't.json: is of a run on 2 ranks, and the recipe has 1$' t.json "${common[@]}" mesh.dp=1
against 't.json: is a trace of another recipe: .* times a step in it, .* times in this recipe$' t.json "${common[@]}" batch.micro=1
against 't.json: is a trace of another recipe: [0-9]+ kernels? ' t.json "${common[@]}" parallel.recompute=full

# no traces
against '--against: nowhere.json: ' nowhere.json "${common[@]}"
echo 'step 1' >text && against 'text:1:[0-9]+: is not JSON: ' text "${common[@]}"
echo '[1]' >list && against 'list: is no trace: it has no list traceEvents' list "${common[@]}"
echo '{"traceEvents":[]}' >empty && against 'empty: holds no instructions of a run' empty "${common[@]}"
sed 's,"cat":"step","cat":"stop",' t.json >headless && against 'headless: holds no step of a run' headless "${common[@]}"
head -c 2000 t.json >cut && against 'cut:[0-9]+:[0-9]+: is not JSON: ' cut "${common[@]}"
"$PLAIT" simulate recipe.yaml --cluster h200-node --timeline s.json "${common[@]}" >/dev/null || fail "--timeline"
against 's.json: holds no instructions of a run' s.json "${common[@]}"
finish
