#!/bin/bash
# tier 2; rooms machine recipe train; numbers
# plan: auto: a whole run with it, what its folder keeps, and a run that resumes on another number of ranks and plans anew. The
# losses are those of one rank all the way.
. "$SOURCE/tests/train/harness.sh" || exit 1
for devices in 2 4; do
  sed "s/count: 8/count: $devices/" "$SOURCE/clusters/h200-node.yaml" >"node-$devices.yaml"
done
sed -i '/^mesh:/d; /^parallel:/d' recipe.yaml
keys='plan=auto precision=fp32 batch.micro=null checkpoint.every=4 eval.every=0 schedule.warmup=2'
# ranks RECIPE: those of its mesh
ranks() { awk '/^mesh:/ { m = 1; n = 1; next } /^[a-z]/ { m = 0 } m { n *= $2 } END { print n }' "$1"; }
# the keys that "plan: auto chose …" names, as in "mesh.pp=2 parallel.zero=1"
chosen() { sed -n 's/^plan: auto chose \(.*\), of [0-9]* plans for .*/\1/p' output; }
# kept RECIPE: it has each of them, by its effective value
kept() {
  local key words
  words=$(chosen)
  [ -n "$words" ] || fail "nothing was chosen: $(head -5 output)"
  for key in $words; do
    "$PLAIT" recipe "$1" >with 2>&1
    "$PLAIT" recipe "$1" "$key" >same 2>&1 || fail "$key: $(cat same)"
    diff with same >difference || fail "$1 has not kept $key: $(cat difference)"
  done
}

# shellcheck disable=SC2086 # words on purpose
{
  expect 0 'step +8/8' "$PLAIT" train recipe.yaml $keys plan=fixed schedule.steps=8 batch.micro=2 run.dir=one
  expect 0 '^plan: auto chose .* plans for 2 ranks of .*: .* of ' "$PLAIT" train recipe.yaml $keys schedule.steps=8 run.dir=auto run.cluster=node-2.yaml
  grep -q 'step *8/8' output || fail "not all steps: $(tail -5 output)"
  [ "$(ranks auto/recipe.yaml)" = 2 ] || fail "the run's recipe has $(ranks auto/recipe.yaml) ranks"
  grep -q '^plan: fixed' auto/recipe.yaml || fail "the run's recipe plans again: $(grep '^plan' auto/recipe.yaml)"
  kept auto/recipe.yaml

  # stopped after 4 steps, and on with four ranks
  cp -r auto half
  rm -rf half/checkpoints/step-8
  expect 0 '^plan: auto chose .* plans for 4 ranks of ' "$PLAIT" train recipe.yaml $keys schedule.steps=8 run.dir=half run.cluster=node-4.yaml
}
grep -q '^changed: .*mesh' output || fail "another mesh is not said: $(head -20 output)"
grep -q 'step *5/8' output && ! grep -q 'step *4/8' output || fail "it does not resume at step 5: $(cat output)"
[ "$(ranks half/recipe.yaml)" = 4 ] || fail "the run's recipe has $(ranks half/recipe.yaml) ranks"
kept half/recipe.yaml

python3 - <<'END' || fail "losses are not those of one rank"
import json
def losses(run):
    lines = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    return [line["loss"] for line in lines if "loss" in line and "step" in line]
one = losses("one")
for run in "auto", "half":
    many = losses(run)
    assert len(one) == len(many) == 8, (len(one), len(many))
    for a, b in zip(one, many):
        assert abs(a - b) < 1e-4 * a, (run, one, many)
END

# ---- what does not search says so ----
for command in plan simulate explain; do
  expect 0 '^note: the recipe says plan: auto, so plait train searches for another plan before it starts; .*plait plan RECIPE --search' \
    "$PLAIT" $command recipe.yaml $keys run.cluster=node-2.yaml batch.micro=2
  "$PLAIT" $command recipe.yaml $keys run.cluster=node-2.yaml batch.micro=2 plan=fixed 2>&1 | grep -q 'plan: auto' && fail "$command: a note on a plan that is fixed"
done
"$PLAIT" plan recipe.yaml $keys run.cluster=node-2.yaml --search 2>&1 | grep -q 'plan: auto' && fail "a note where a search follows"

# ---- the run's own recipe keeps its plan, whatever the cluster ----

expect 0 'step +10/10' "$PLAIT" train half/recipe.yaml schedule.steps=10
grep -q '^plan: auto' output && fail "the run's own recipe plans again"
refuse 2 'neither XDG_CACHE_HOME nor HOME says' env HOME= XDG_CACHE_HOME= "$PLAIT" train recipe.yaml plan=auto
finish
