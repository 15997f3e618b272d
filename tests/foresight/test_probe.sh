#!/bin/bash
# tier 3; rooms machine train
# plait probe: measures this machine, and predictions take what it found. How near these are is for bench/foresight, not for a test.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CLUSTERS=$SOURCE/clusters XDG_CACHE_HOME=$PWD/cache

limit=$((600 * patience)) # on a busy machine a probe of some seconds takes minutes
if sanitized; then exit 77; fi # it would take minutes; make probes under sanitizers by hand
refuse 1 'nowhere/here.yaml' "$PLAIT" probe --quick --out nowhere/here.yaml
HOME= XDG_CACHE_HOME= refuse 2 'neither XDG_CACHE_HOME nor HOME says where measurements can be kept; say where, as in --out here.yaml' "$PLAIT" probe --quick
refuse 2 'run.cluster.*this machine has not been measured yet; run plait probe|measured' "$PLAIT" train recipe.yaml run.cluster=probe mesh.pp=2 # train never measures by itself

refuse 2 'batch.micro=1: the only words beside options are keys of a recipe, as in --for my.yaml batch.micro=2' "$PLAIT" probe --quick batch.micro=1
expect 0 'products +fp32 [0-9.]+ [GT]FLOP/s' "$PLAIT" probe --quick --for recipe.yaml
kept=$(echo cache/plait/machine-*.yaml)
[ -s "$kept" ] || fail "nothing is kept in cache/plait: $(ls -R cache)"
for word in 'backend: cpu' 'kernels: |' '  matmul,fp32,1,1,' '  adamw,fp32,1,1,' '  attention,fp32,' '  linear_cross_entropy,fp32,'; do
  grep -qF -- "$word" "$kept" || fail "$kept lacks: $word"
done
if [ "$(nproc)" -gt 1 ]; then grep -q '^  all_reduce,2,1,' "$kept" || fail "$kept has no collectives"; fi
expect 0 'measured' "$PLAIT" cluster "$kept"

# a file that is damaged: refused by name, and measured again where it is the one that is kept
sed '/^  matmul,/d' "$kept" >damaged.yaml
refuse 2 'damaged.yaml: kernel_rows says that [0-9]+ kernels were measured, but kernels has [0-9]+; measure again with plait probe --out damaged.yaml' \
  "$PLAIT" simulate recipe.yaml --cluster damaged.yaml
awk -F, '!/^kernel_rows:/ && !(NF == 12 && $9 + 0 > 0)' "$kept" >damaged.yaml
refuse 2 'kernels has no products.*; measure again with plait probe --out damaged.yaml' "$PLAIT" simulate recipe.yaml --cluster damaged.yaml
cp "$kept" whole.yaml
head -c $(($(stat -c %s "$kept") / 2)) whole.yaml >"$kept"
refuse 2 'run.cluster.*; measure again with plait probe$' "$PLAIT" train recipe.yaml run.cluster=probe mesh.dp=1 mesh.pp=2
"$PLAIT" simulate recipe.yaml >log 2>&1 &
running=$!
wait_for grep -q 'measuring this machine' log || fail "what is kept and damaged is not measured again: $(cat log)"
grep -q 'note: .*measure again with plait probe$' log || fail "nothing says why: $(cat log)"
kill -TERM "$running"
wait "$running"
[ $? -eq 143 ] || fail "stopped: $(cat log)"
running=''
cmp -s "$kept" whole.yaml && fail "$kept has changed"
cp whole.yaml "$kept"

# predictions without --cluster are for this machine, and do not measure it again
expect 0 'a step +[0-9.]+ [mu]s' "$PLAIT" simulate recipe.yaml
grep -q 'measuring' output && fail "measured again"
expect 0 'a step +[0-9.]+ [mu]s' "$PLAIT" simulate recipe.yaml --cluster probe
seconds() { "$PLAIT" simulate recipe.yaml --json "$@" 2>/dev/null | sed -n 's/.*"step_seconds": \([^,]*\),.*/\1/p'; }
# what a run is expected to take is simulated too, and plan and train need not measure a product for it
expect 0 '^  the run +.*; simulated by what plait probe measured of this machine$' "$PLAIT" plan recipe.yaml schedule.steps=1000000
grep -q 'plait probe measures' output && fail "plan says how to measure what is measured"
planned=$(sed -n 's/^  the run  *about \(.*\)   1000000 steps.*/\1/p' output)
simulated=$("$PLAIT" simulate recipe.yaml schedule.steps=1000000 eval.every=0 2>/dev/null | sed -n 's/^  the run  *\(.*\), 1000000 steps/\1/p')
[ -n "$planned" ] && [ "$("$PLAIT" plan recipe.yaml schedule.steps=1000000 eval.every=0 | sed -n 's/^  the run  *about \(.*\)   1000000 steps.*/\1/p')" = "$simulated" ] ||
  fail "plan: $planned, simulate: $simulated"
expect 0 '^expected: about .* for 4 steps, .* tokens/s \(simulated by what plait probe measured of this machine\)$' "$PLAIT" train recipe.yaml run.dir=short schedule.steps=4 schedule.warmup=0
faster=$(seconds --what-if device.matrix=10x) slower=$(seconds --what-if device.matrix=0.1x)
awk -v a="$faster" -v b="$slower" 'BEGIN { exit !(a > 0 && b > 1.5 * a) }' || fail "products at ten times the rate take $faster s, at a tenth $slower s"
expect 0 'DDP' "$PLAIT" compare recipe.yaml
refuse 2 "64 ranks of 1 thread need 64 cores, but this machine has $(nproc)" "$PLAIT" simulate recipe.yaml mesh.dp=64 batch.global=64

# the search finds what trying everything finds: its bounds know that ranks share cores and help each other
best() { "$PLAIT" plan recipe.yaml --search --json --top 1 --ranks 2 mesh=null parallel=null batch.micro=null "$@" 2>/dev/null | sed -n 's/.*"step_seconds": \([^,]*\),*.*/\1/p' | head -1; }
found=$(best) all=$(best --exhaustive)
awk -v a="$found" -v b="$all" 'BEGIN { exit !(a > 0 && b > 0 && a <= 1.005 * b) }' || fail "the search finds $found s a step, trying everything $all s"

# another machine's
sed 's/^  name: .*/  name: "Z80, portable, 1 core"/' "$kept" >other.yaml
refuse 2 'other.yaml was measured on another machine \(Z80, portable, 1 core\); this one is .*: measure it with plait probe' \
  "$PLAIT" simulate recipe.yaml --cluster other.yaml
exit $((failures > 0))
