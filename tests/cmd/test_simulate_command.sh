#!/bin/bash
# tier 2; rooms machine; numbers
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
[ "$(seconds)" = "$(seconds --all-ranks)" ] || fail "--all-ranks: $(seconds --all-ranks) s, else $(seconds) s"
simulate '^where the time of rank [01] goes' mesh.dp=2 --all-ranks
plain=$(seconds) slow=$(seconds --what-if nvlink.bandwidth=0.0001x) wide=$(seconds --what-if device.host=1x)
awk -v a="$plain" -v b="$slow" 'BEGIN { exit !(a > 0 && b > 1.1 * a) }' || fail "slow links take $slow s, others $plain s"
[ "$plain" = "$wide" ] || fail "a factor of 1 changes $plain to $wide"
# several changes at once; of one key the later one counts on top of the first
both=$(seconds --what-if nvlink.bandwidth=0.0001x --what-if device.launch=100x) again=$(seconds --what-if nvlink.bandwidth=0.01x --what-if nvlink.bandwidth=0.01x)
awk -v a="$slow" -v b="$both" 'BEGIN { exit !(b > 1.1 * a) }' || fail "slow links and launches take $both s, slow links alone $slow s"
awk -v a="$slow" -v b="$again" 'BEGIN { exit !(b / a - 1 < 1e-9 && 1 - b / a < 1e-9) }' || fail "0.01x twice takes $again s, 0.0001x $slow s"

# two kinds of devices: the slowest is waited for, the smallest must have room
island='{name: small, matrix: {bf16: 100e12, fp32: 10e12}, vector: {fp32: 10e12}, sustained: 1, units: 100, cache: 1e6, memory: 5e5, bandwidth: 1e12, launch: 1e-6, host: 1e-6, source: test}'
{ sed '/^ *islands:/d' "$SOURCE/clusters/h200-node.yaml"; printf 'islands:\n  - {first: 1, count: 1, device: %s}\n' "$island"; } >mixed.yaml
expect 0 '^1 rank of .* and 1 of small ' "$PLAIT" simulate recipe.yaml --cluster mixed.yaml mesh.dp=2
expect 0 '^  memory +[0-9.]+ MB of 500 kB: does not fit' "$PLAIT" simulate recipe.yaml --cluster mixed.yaml mesh.dp=2
expect 0 '^  memory +[0-9.]+ MB of 139 GB$' "$PLAIT" simulate recipe.yaml --cluster mixed.yaml mesh.dp=1
expect 0 '^  products \(device.matrix\)|^  memory bandwidth|^  launches' "$PLAIT" simulate recipe.yaml --cluster mixed.yaml mesh.dp=2 --limits
"$PLAIT" simulate recipe.yaml --cluster h200-node --json --limits mesh.dp=2 >limits.json || fail "--json --limits"
grep -q '"resource": "nvlink latency"' limits.json || fail "--json has no limits: $(cat limits.json)"

# what runs when
simulate 't.svg: what runs when' mesh.pp=2 --timeline t.svg
grep -q '^<svg' t.svg || fail "t.svg is not a picture"
simulate 't.json: what runs when' mesh.pp=2 --timeline t.json
if command -v python3 >/dev/null; then
  python3 -c 'import json; e = json.load(open("t.json"))["traceEvents"]; assert {x["pid"] for x in e if "pid" in x} == {0, 1} and len(e) > 100' ||
    fail "t.json is not a trace of two pipeline ranks"
fi

# sentences
says() { refuse 2 "$1" "$PLAIT" simulate "${@:2}"; }
HOME= XDG_CACHE_HOME= says 'neither XDG_CACHE_HOME nor HOME says where' recipe.yaml
says '"h200-nod" is neither a file nor a cluster .* did you mean h200-node\?' recipe.yaml --cluster h200-nod
says 'the mesh has 16 ranks, but the cluster .*h200-node.yaml has 8 devices' recipe.yaml --cluster h200-node mesh.dp=16 batch.global=16
says 'nvlnk.bandwidth: unknown key; did you mean nvlink.bandwidth\?' recipe.yaml --cluster h200-node --what-if nvlnk.bandwidth=2x
says 'tile.k1: unknown key; .*; or the constant tile.k0, times a factor, as in tile.k0=1.1x' recipe.yaml --cluster h200-node --what-if tile.k1=2x
says 'zzzzzz: unknown key; .*; or a constant of the models, which plait simulate --constants lists' recipe.yaml --cluster h200-node --what-if zzzzzz=2x
says '^plait simulate: nvlink.bandwidth=fast: [^;]*$' recipe.yaml --cluster h200-node --what-if nvlink.bandwidth=fast
for wrong in tile.k0=2 tile.k0=x tile.k0=-1x tile.k0=0x tile.k0=nanx; do
  says "--what-if $wrong: tile.k0 is a constant; give a factor above 0, as in tile.k0=1.1x" recipe.yaml --cluster h200-node --what-if $wrong
done
says '--timeline t.png: the name must end in .svg .* or .json' recipe.yaml --cluster h200-node --timeline t.png
says '--timeline t.svg: a picture has a row for each pipeline rank' recipe.yaml --cluster h200-node --all-ranks --timeline t.svg
says '--against compares pipeline ranks; leave --all-ranks out' recipe.yaml --cluster h200-node --all-ranks --against t.json
says 'dgx-2.yaml: .*V100.* has no rate of products in bf16; it has .*; the nearest is fp16' recipe.yaml --cluster dgx-2 precision=bf16
refuse 1 '^plait simulate: --timeline: nowhere/t.svg' "$PLAIT" simulate recipe.yaml --cluster h200-node --timeline nowhere/t.svg
grep -q 'a step' output && fail "it simulates before it sees that t.svg cannot be written"
mkdir folder.svg && says '--timeline: folder.svg: is a folder' recipe.yaml --cluster h200-node --timeline folder.svg
says 'give a recipe, as in plait simulate'
[ ! -e t.png ] || fail "t.png was written"

# The page has every constant as it is, and the steps of 530B as they are predicted now.
"$PLAIT" simulate --constants >constants || fail "--constants"
while IFS= read -r line; do grep -qF -- "$line" "$page" || fail "docs/foresight.md lacks: $line"; done <constants
for dp in 8 10 12; do
  step=$("$PLAIT" simulate "$SOURCE/recipes/mt-nlg-530b.yaml" mesh.dp=$dp --top 0 2>/dev/null | sed -n 's/^  a step  *//p')
  [ -n "$step" ] && grep -qE "^  a step +$step$" "$page" || fail "docs/foresight.md has another step of 530B than $step with dp $dp"
done
# Gradients over dp and sums over tp have streams of their own, and other links: in flight they make no step longer.
step_of() { "$PLAIT" simulate "$SOURCE/recipes/mt-nlg-530b.yaml" --top 0 --json "$@" 2>/dev/null | sed -n 's/.*"step_seconds": \([^,]*\),*$/\1/p'; }
awk -v on="$(step_of parallel.overlap=true)" -v off="$(step_of)" 'BEGIN { exit !(on > 0 && on <= off) }' || fail "530B takes longer with overlap"
# Published: 60.1, 50.2 and 44.4 s with 8, 10 and 12 replicas (docs/foresight.md). The ratios must be near, and utilisation must fall.
for dp in 8 10 12; do
  "$PLAIT" simulate "$SOURCE/recipes/mt-nlg-530b.yaml" mesh.dp=$dp --top 0 --json 2>/dev/null |
    sed -n 's/.*"\(step_seconds\|mfu\)": \([^,]*\),*$/\1 \2/p' | sort | awk '{ printf "%s ", $2 } END { print "" }'
done >predicted # mfu and seconds
printf '%s\n' 60.1 50.2 44.4 | paste -d ' ' predicted - | awk '
  NR == 1 { first = $2; published = $3 }
  NR > 1 {
    off = ($2 / first) / ($3 / published) - 1
    if (!(off < 0.05 && off > -0.05)) { print "replicas " NR ": the ratio is off by " 100 * off " %"; bad = 1 }
    if (!($1 < mfu)) { print "utilisation does not fall: " $0; bad = 1 }
  }
  { mfu = $1 }
  END { exit bad || NR != 3 || !(mfu > 0.2) }' || fail "530B is not as published: $(cat predicted)"
exit $((failures > 0))
