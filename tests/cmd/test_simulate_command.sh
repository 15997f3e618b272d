#!/bin/bash
# plait simulate: what it prints, its files and its sentences; docs/foresight.md has its constants and its figures of MT-NLG 530B.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CLUSTERS=$SOURCE/clusters
simulate() { expect 0 "$1" "$PLAIT" simulate recipe.yaml --cluster h200-node "${@:2}"; }
page=$SOURCE/docs/foresight.md

simulate 'a step +[0-9.]+ [mu]s' mesh.dp=2
simulate '^  compute ' mesh.dp=2
simulate '^  dp +nvlink ' mesh.dp=2
simulate '^what a tenth more of each resource would save$' mesh.dp=2 --limits
seconds() { "$PLAIT" simulate recipe.yaml --cluster h200-node --json mesh.dp=2 "$@" 2>/dev/null | sed -n 's/.*"step_seconds": \([^,]*\),.*/\1/p'; }
plain=$(seconds) slow=$(seconds --what-if nvlink.bandwidth=0.001x) wide=$(seconds --what-if device.host=1x)
awk -v a="$plain" -v b="$slow" 'BEGIN { exit !(a > 0 && b > 1.1 * a) }' || fail "slow links take $slow s, others $plain s"
[ "$plain" = "$wide" ] || fail "a factor of 1 changes $plain to $wide"

# what runs when
simulate 't.svg: what runs when' mesh.pp=2 --timeline t.svg
grep -q '^<svg' t.svg || fail "t.svg is no picture"
simulate 't.json: what runs when' mesh.pp=2 --timeline t.json
if command -v python3 >/dev/null; then
  python3 -c 'import json; e = json.load(open("t.json"))["traceEvents"]; assert {x["pid"] for x in e if "pid" in x} == {0, 1} and len(e) > 100' ||
    fail "t.json is no trace of two pipeline ranks"
fi

# sentences
says() { refuse 2 "$1" "$PLAIT" simulate "${@:2}"; }
says '--cluster is missing, and so is run.cluster in the recipe: a file, or one of aws-p4d, ' recipe.yaml
says '"h200-nod" is neither a file nor a cluster .* did you mean h200-node\?' recipe.yaml --cluster h200-nod
says 'the mesh has 16 ranks, but the cluster .*h200-node.yaml has 8 devices' recipe.yaml --cluster h200-node mesh.dp=16 batch.global=16
says 'nvlnk.bandwidth: unknown key; did you mean nvlink.bandwidth\?' recipe.yaml --cluster h200-node --what-if nvlnk.bandwidth=2x
for wrong in tile.k0=2 tile.k0=x tile.k0=-1x tile.k0=0x tile.k0=nanx; do
  says "--what-if $wrong: tile.k0 is a constant; give a factor above 0, as in tile.k0=1.1x" recipe.yaml --cluster h200-node --what-if $wrong
done
says '--timeline t.png: the name must end in .svg .* or .json' recipe.yaml --cluster h200-node --timeline t.png
says 'device.matrix has no rate for bf16, in which this run computes' recipe.yaml --cluster dgx-2 precision=bf16
says 'give a recipe, as in plait simulate'
[ ! -e t.png ] || fail "t.png was written"

# The page has every constant as it is, and the steps of 530B as they are predicted now.
"$PLAIT" simulate --constants >constants || fail "--constants"
while IFS= read -r line; do grep -qF -- "$line" "$page" || fail "docs/foresight.md lacks: $line"; done <constants
for dp in 8 10 12; do
  step=$("$PLAIT" simulate "$SOURCE/recipes/mt-nlg-530b.yaml" mesh.dp=$dp --top 0 2>/dev/null | sed -n 's/^  a step  *//p')
  [ -n "$step" ] && grep -qE "^  a step +$step$" "$page" || fail "docs/foresight.md has another step of 530B than $step with dp $dp"
done
exit $((failures > 0))
