#!/bin/bash
# tier 2; rooms machine cmd train
# plait plan --search: a table, JSON, a recipe that is written, and one sentence where something is wrong.
. "$SOURCE/tests/script.sh" || exit 1
cat >r.yaml <<END
model: {config: $SOURCE/models/gpt-tiny.json, init: random}
data: {train: none, seq_len: 64}
batch: {global: 8, micro: 2}
parallel: {recompute: none, pipeline: 1f1b, zero: 1, tensor: 1d, shard_group: 0}
run: {dir: run, cluster: h200-node}
END
search=("$PLAIT" plan r.yaml --search --ranks 4 --top 2)
refused() { # WORDS… sentence: exit status 2 and this in one line
  local sentence=${*: -1}
  "${@:1:$#-1}" >out 2>err
  [ $? = 2 ] || fail "${*:1:$#-1}: no exit status 2"
  grep -qF -- "$sentence" err || fail "${*:1:$#-1}: $(cat err)"
  [ "$(wc -l <err)" -le 2 ] || fail "${*:1:$#-1}: more than a sentence: $(cat err)"
}

"${search[@]}" --write best.yaml >table 2>err || fail "search: $(cat err)"
grep -q '^4 ranks of H200' table || fail "no head: $(cat table)"
[ "$(grep -cE '^ +[12] ' table)" = 2 ] || fail "not two plans: $(cat table)"
grep -qE 'parallel.(zero|recompute|pipeline)=|batch.micro=' table && fail "a given key was changed: $(cat table)"
[ "$(awk '/^mesh:/ {m = 1; n = 1; next} /^[a-z]/ {m = 0} m {n *= $2} END {print n}' best.yaml)" = 4 ] || fail "best.yaml has no mesh of 4 ranks"
"$PLAIT" simulate best.yaml >simulated 2>err || fail "simulate best.yaml: $(cat err)"
"${search[@]}" --json >json 2>err || fail "--json: $(cat err)"
python3 - <<'END' || fail "--json: $(head -c 500 json)"
import json
found = json.load(open("json"))
plans = found["plans"]
assert found["ranks"] == 4 and len(plans) == 2 and plans[0]["step_seconds"] <= plans[1]["step_seconds"]
assert found["search"]["plans"] >= found["search"]["compiled"] >= 2
END
# The cluster is what the plan's stages are cut for: it is written, and as a file by its absolute path.
grep -q '^  cluster: "*h200-node"*$' best.yaml || fail "best.yaml names no cluster"
cp "$SOURCE/clusters/h100-400g.yaml" own.yaml
"${search[@]}" --cluster own.yaml --write other.yaml >table 2>err || fail "a cluster's file: $(cat err)"
grep -q "^  cluster: $(realpath own.yaml)\$" other.yaml || fail "other.yaml: $(grep cluster: other.yaml)"
grep -q 'run.cluster=' table && fail "a plan differs in its cluster: $(cat table)"
"$PLAIT" plan r.yaml --search --ranks 1:4 >front 2>err || fail "a range: $(cat err)"
grep -q 'device-hours' front || fail "no front: $(cat front)"

# The search has a most of its own; neighbours of the best plan, as with other buckets, are looked at even so.
"$PLAIT" plan "$SOURCE/recipes/7b.yaml" --search --cluster dgx-a100-superpod --ranks 64 --top 1 --json mesh=null parallel.zero=null >json 2>err ||
  fail "7b: $(cat err)"
python3 - <<'END' || fail "7b: $(cat json)"
import json
found = json.load(open("json"))
assert found["search"]["not_looked_at"] > 0 and "parallel.bucket_mb" in found["plans"][0]["settings"]
END

# A file that cannot be written is refused before the search
timeout "$limit" "$PLAIT" plan r.yaml --search --write nowhere/best.yaml >table 2>err && fail "nowhere/best.yaml was written"
grep -q '^plait plan: --write: nowhere/best.yaml' err || fail "nowhere/best.yaml: $(cat err)"
[ ! -s table ] || fail "it searches before it sees that best.yaml cannot be written"

refused "${search[@]}" --cluster h200-nod 'h200-node'
refused env HOME= XDG_CACHE_HOME= "${search[@]}" run.cluster=null 'neither XDG_CACHE_HOME nor HOME says'
refused "${search[@]}" --memory lots '76GB'
refused "$PLAIT" plan r.yaml --search --ranks 4: '64:512'
refused "${search[@]}" mesh.tp=3 'do not divide 4'
refused "$PLAIT" plan r.yaml --search --ranks 16 'devices'
refused "${search[@]}" --memory 100kB --write kept.yaml 'too much'
[ ! -e kept.yaml ] || fail "--write wrote a plan that does not fit"
refused env HOME= XDG_CACHE_HOME= "$PLAIT" train r.yaml plan=auto run.cluster=null 'neither XDG_CACHE_HOME nor HOME says'
finish
