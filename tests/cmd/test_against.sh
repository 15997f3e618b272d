#!/bin/bash
# tier 2; rooms machine train
# plait simulate --against: a trace of a run beside its simulation; wrong files and traces of other recipes are refused.
. "$SOURCE/tests/train/harness.sh" || exit 1
# Devices differ in what fuse joins for them, and the traces are of CPUs. What a step takes there does not matter here.
export PLAIT_CLUSTERS=$SOURCE/clusters
sed 's/^device:/&\n  backend: cpu/' "$SOURCE/clusters/h200-node.yaml" >node.yaml
cat >>node.yaml <<'end'
kernels: |
  op,dtype,threads,active,kind,a,b,c,d,flops,bytes,seconds
  matmul,fp32,1,1,13,1024,1024,256,1,536870912,6291456,0.005
  attention,fp32,1,1,30,526336,64,256,0,136847360,4218880,0.003
  attention_grad,fp32,1,1,47,526336,64,256,0,342118400,8413184,0.006
  linear_cross_entropy,fp32,1,1,32,1024,2048,256,1,3229614080,50335744,0.05
  layer_norm,fp32,1,1,16,2099200,2105344,0,0,262144,4204544,0.0001
end
"$PLAIT" simulate recipe.yaml --cluster node.yaml >log 2>&1
this=$(sed -n 's/.* was measured on another machine (.*; this one is \(.*\): measure it with plait probe$/\1/p' log)
[ -n "$this" ] || die "of another machine's measurements: $(cat log)"
sed -i "s/name: H200-SXM5-141GB/name: \"$this\"/" node.yaml
common=(schedule.steps=6 eval.every=0 checkpoint.every=0 batch.micro=2)
trace=(run.trace_first=2 run.trace_steps=2)

expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir=traced run.trace=t.json "${trace[@]}" "${common[@]}"
expect 0 'beside t.json, 2 steps of 2 ranks: a step of one rank' \
  "$PLAIT" simulate recipe.yaml --cluster node.yaml --against t.json "${common[@]}"
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
  "$PLAIT" simulate recipe.yaml --cluster node.yaml --against t.json "${common[@]}" --json >beside.json || fail "--json"
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
against() { refuse 2 "$1" "$PLAIT" simulate recipe.yaml --cluster node.yaml --against "${@:2}"; }
against 't.json: is of a run on 2 ranks, and the recipe has 1$' t.json "${common[@]}" mesh.dp=1
against 't.json: is a trace of another recipe: .* times a step in it, .* times in this recipe$' t.json "${common[@]}" batch.micro=1
against 't.json: is a trace of another recipe: [0-9]+ kernels? ' t.json "${common[@]}" parallel.recompute=full

# no traces
against '--against: nowhere.json: ' nowhere.json "${common[@]}"
echo 'step 1' >text && against 'text:1:[0-9]+: is not JSON: ' text "${common[@]}"
echo '[1]' >list && against 'list is not a trace: it has no list traceEvents' list "${common[@]}"
echo '{"traceEvents":[]}' >empty && against 'empty: holds no instructions of a run' empty "${common[@]}"
sed 's,"cat":"step","cat":"stop",' t.json >headless && against 'headless: holds no step of a run' headless "${common[@]}"
head -c 2000 t.json >cut && against 'cut:[0-9]+:[0-9]+: is not JSON: ' cut "${common[@]}"

# a simulated timeline is a trace of the same format: beside itself all times are equal, of a pipeline's too, and of a schedule that
# never drains
for keys in 'mesh.dp=2' 'mesh.pp=2 mesh.dp=2 parallel.zero=1' 'mesh.pp=2 mesh.dp=1 parallel.pipeline=2bw optimizer.delay=1'; do
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" simulate recipe.yaml --cluster h200-node --timeline s.json "${common[@]}" $keys >log 2>&1 || fail "--timeline $keys: $(cat log)"
  # shellcheck disable=SC2086
  expect 0 "beside s.json" "$PLAIT" simulate recipe.yaml --cluster h200-node --against s.json "${common[@]}" $keys
  awk '/^beside s.json/ { on = 1; next } on && NF > 2 && $(NF - 2) ~ /^[0-9.]+$/ && $(NF - 1) ~ /^[0-9.]+$/ {
    rows++; d = $(NF - 1) - $(NF - 2); if (d * d > 4e-6) { print "unequal: " $0; bad = 1 }
  } END { exit bad || rows < 20 }' output || fail "$keys: a timeline beside itself is not equal"
  command -v python3 >/dev/null && { python3 - <<'PYTHON' || fail "$keys: s.json has not what run.trace writes"; }
import json
measured, simulated = (json.load(open(f)) for f in ("t.json", "s.json"))
def seen(trace): return {(e["cat"], e["ph"]) + tuple(sorted(set(e.get("args", {})) - {"flops", "bytes"})) for e in trace["traceEvents"] if "cat" in e and e["cat"] != "evaluation" and e["cat"] != "checkpoint"}
assert set(measured) == set(simulated), (set(measured), set(simulated))
kinds = {k[0] for k in seen(simulated)}
assert {"kernel", "communication", "action", "step"} <= kinds, kinds
assert ("kernel", "X", "node") in seen(measured) & seen(simulated)
assert {k for k in seen(simulated) if k[0] != "in flight"} <= seen(measured) | {("action", "X", "microbatch", "stage")}, seen(simulated) - seen(measured)
PYTHON
done
finish
