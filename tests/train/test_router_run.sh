#!/bin/bash
# tier 2; rooms model recipe infer; numbers
# A model with experts in a run: keys moe.*, what metrics, log, plan and summary say of routers, an evaluation that has the bias of
# its routers, and an export that cannot have it. (A run that stops: test_stop_and_resume.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
cp "$SOURCE/tests/train/moe.json" .
moe=(recipe.yaml model.config=moe.json mesh.dp=1 parallel.zero=0)
all=(moe.balance_loss=0.05 moe.z_loss=0.001 moe.bias_rate=0.01 moe.capacity=0.75)

# ---- keys ----
refuse 2 'moe.capacity is 1.25, but the gpt2 model of .*model.json has no experts; leave it out' "$PLAIT" train recipe.yaml moe.capacity=1.25
refuse 2 'moe.bias_rate is 0.001, but the gpt2 model of .* has no experts' "$PLAIT" plan recipe.yaml moe.bias_rate=1e-3
refuse 2 'moe.capacity must be a number above 0, at most 1000000, or none, not "0"' "$PLAIT" plan "${moe[@]}" moe.capacity=0
refuse 2 'run.noise_scale is 2, but it compares the gradients of parts of a batch' "$PLAIT" plan "${moe[@]}" run.noise_scale=2
expect 0 'capacity: none' "$PLAIT" recipe "${moe[@]}"
expect 0 'balance_loss: auto' "$PLAIT" recipe "${moe[@]}"
expect 0 '^experts +5 a layer, 2 a token; balance loss × 0.02, z loss × 0; no capacity: all choices are kept$' "$PLAIT" plan "${moe[@]}"
expect 0 'bias rate 0.01; capacity 0.75: an expert keeps 10 of a sequence.s choices$' "$PLAIT" plan "${moe[@]}" "${all[@]}"

# ---- a run ----
"$PLAIT" train "${moe[@]}" "${all[@]}" run.dir=run >log 2>&1 || { cat log; die "no run"; }
grep -qE '^experts: 5 a layer, 2 a token; balance loss × 0.05, z loss × 0.001, bias rate 0.01; capacity 0.75' log || fail "the header: $(head -5 log)"
grep -qE 'step +1/40 .*load [1-5]\.[0-9]+ .*dropped [0-9.]+%' log || fail "a loss line: $(grep '^step' log | head -2)"
grep -qE '^load +of each expert in the last step, over the mean of its layer; [0-9.]+% of the choices were dropped$' log || fail "summary: $(tail -15 log)"
[ "$(grep -cE '^  layer [0-2]    [0-9.]+ [0-9.]+ [0-9.]+ [0-9.]+ [0-9.]+$' log)" = 3 ] || fail "loads of layers: $(tail -15 log)"
for key in balance_loss z_loss dropped_share load_peak load_peak/0 load_peak/1 load_peak/2; do
  [ "$(grep -c "\"$key\": [0-9]" run/metrics.jsonl)" = 40 ] || fail "metrics lack $key: $(head -1 run/metrics.jsonl)"
done
grep -q '"eval_loss".*balance' run/metrics.jsonl && fail "an evaluation has a balance loss"

# ---- the same run, of several ranks ----
"$PLAIT" train "${moe[@]}" "${all[@]}" run.dir=wide mesh.dp=2 mesh.tp=2 parallel.sequence=true precision=fp64 schedule.steps=6 >log 2>&1 || { cat log; die "no wide run"; }
"$PLAIT" train "${moe[@]}" "${all[@]}" run.dir=narrow precision=fp64 schedule.steps=6 >log 2>&1 || { cat log; die "no narrow run"; }
python3 - <<'PY' || fail "two ranks measure other losses of routers than one"
import json
def rows(name): return [json.loads(l) for l in open(name + "/metrics.jsonl") if '"balance_loss"' in l]
for a, b in zip(rows("wide"), rows("narrow")):
    for key in ("loss", "balance_loss", "z_loss", "dropped_share", "load_peak", "load_peak/2"):
        assert abs(a[key] - b[key]) <= 1e-10 * abs(b[key]), (key, a[key], b[key])
PY

# ---- the bias: in evaluations, and not in a Hugging Face folder ----
"$PLAIT" eval run >log 2>&1 || { cat log; fail "no evaluation"; }
refuse 2 'was trained with moe.bias_rate 0.01, and a Hugging Face folder cannot hold the bias of its routers.*--force' "$PLAIT" export run --out made
[ -e made ] && fail "a refused export has left a folder"
expect 0 'opened again and verified' "$PLAIT" export run --out made --force
refuse 2 'unexpected tensor.*router_bias' "$PLAIT" train "${moe[@]}" "${all[@]}" run.dir=run moe.bias_rate=0 schedule.steps=50
finish
