#!/bin/bash
# tier 2; rooms train machine
# plait compare: a row a strategy, with numbers that plait simulate prints too; rows that cannot be say why; wrong input.
. "$SOURCE/tests/script.sh" || exit 1
export PLAIT_CLUSTERS=$SOURCE/clusters COLUMNS=120
recipe=$SOURCE/tests/foresight/advice.yaml

"$PLAIT" compare "$recipe" --cluster dgx-a100-superpod --ranks 16 >table 2>message || fail "$(cat message)"
[ ! -s message ] || fail "it complains: $(cat message)"
for name in 'one device' DDP 'ZeRO 1' 'ZeRO 2' 'ZeRO 3' HSDP 'tp in a node' 'tp across nodes' 'pp' 'pp + ZeRO 1' 'pp + ZeRO 2' \
  'CPU offload' 'NVMe offload' 'parameter server'; do
  grep -qF -- "$(printf '%-16s ' "$name")" table || fail "there is no row $name"
done
"$PLAIT" plan "$recipe" --search --cluster dgx-a100-superpod --ranks 16 --top 1 mesh=null >plan || fail "plan --search"
best=$(awk '$1 == 1 {print $2, $3}' plan)
[ -n "$best" ] && grep -q "^search's best .* $best " table || fail "the search finds $best: $(grep "^search's" table)"
grep -q '^3-D  *cannot be: there are too few ranks for three dimensions$' table || fail "3-D: $(grep '^3-D' table)"
grep -q '^tp across nodes  *1·1·16 ' table || fail "tp across nodes is not tp 16"
grep -q '^strategy .* nvlink infiniband$' table || fail "links have no columns"
grep -q '^ZeRO 3  *\(products\|memory\|infiniband\|nvlink\|launches\)' table || fail "nothing limits ZeRO 3"
grep -q '(pp-zero). ' table || fail "no advice on ZeRO 2 in a pipeline"

# The same numbers as of the command that simulates one of them
"$PLAIT" simulate "$recipe" --cluster dgx-a100-superpod mesh.dp=16 parallel.zero=2 >one || fail "simulate"
step=$(sed -n 's/^  a step  *//p' one) bytes=$(sed -n 's/^  memory  *\(.*\) of .*/\1/p' one)
grep -q "^ZeRO 2  *1·16·1  *$step " table || fail "ZeRO 2 takes $step, and in the table: $(grep '^ZeRO 2' table)"
grep -q "^ZeRO 2 .* $bytes  *yes" table || fail "ZeRO 2 needs $bytes, and in the table: $(grep '^ZeRO 2' table)"

# As JSON: the same rows and numbers
"$PLAIT" compare "$recipe" --cluster dgx-a100-superpod --ranks 16 --json >json || fail "--json"
python3 - json one <<'END' || fail "--json has other numbers"
import json, sys
c = json.load(open(sys.argv[1]))
rows = {r["strategy"]: r for r in c["strategies"]}
assert c["ranks"] == 16 and c["ranks_in_node"] == 8 and len(rows) == 18, sorted(rows)
zero = rows["ZeRO 2"]
assert zero["dp"] == 16 and zero["zero"] == 2 and zero["fits"] and zero["sent_bytes"]["infiniband"] > 0
assert abs(sum(zero["memory"].values()) / zero["memory_bytes"] - 1) < 1e-9
assert "limit" in zero and "not_built" in rows["CPU offload"] and "too few ranks" in rows["3-D"]["cannot_be"]
assert any(a["name"] == "pp-zero" and a["verdict"] for a in c["advice"])
END

# One rank, one node: what needs more says so. Heads that do not divide: the judge's sentence, without a place.
"$PLAIT" compare --quick "$recipe" --cluster dgx-a100-superpod >table || fail "one rank"
[ "$(grep -c 'cannot be: there is one rank$' table)" -eq 6 ] || fail "one rank: $(cat table)"
grep -q '^strategy .*limited by' table && fail "--quick looks for limits"
grep -q "^search's best  *cannot be: there is one rank" table || fail "one rank has nothing to search: $(cat table)"
grep -q 'needs no parallelism (plain). confirmed: ' table || fail "one rank: $(tail -3 table)"
"$PLAIT" compare --quick "$recipe" --cluster h200-node --ranks 8 >table || fail "one node"
grep -q "search's best" table && fail "--quick searches"
[ "$(grep -c 'cannot be: all ranks are in one node$' table)" -eq 2 ] || fail "one node: $(cat table)"
sed 's/"num_attention_heads": 16/"num_attention_heads": 4/; s/"num_key_value_heads": 16/"num_key_value_heads": 4/; s/4096/4097/' \
  "$SOURCE/tests/foresight/advice.json" >odd.json
"$PLAIT" compare --quick "$recipe" --cluster h200-node --ranks 8 model.config=odd.json >table || fail "4 heads"
grep -q '^tp in a node  *cannot be: mesh.tp is 8, which does not divide the ' table || fail "4 heads: $(grep '^tp in' table)"

# Three stages that all wait in several sums over the stages, one after the other
"$PLAIT" simulate "$SOURCE/recipes/moe.yaml" --cluster h100-400g mesh.pp=3 mesh.dp=1 >/dev/null 2>message || fail "moe: $(cat message)"

# Memory that is short: by how much, and the change that makes it fit
sed 's/memory: 141e9/memory: 5e9/' "$SOURCE/clusters/h200-node.yaml" >small.yaml
"$PLAIT" compare "$recipe" --cluster small.yaml --ranks 8 batch.micro=8 batch.global=64 >table || fail "small"
grep -q '^DDP .* +[0-9.]* [GM]B' table || fail "DDP fits in 3 GB: $(cat table)"
grep -q '^DDP  *memory (device.memory)  *[a-z].*: \(fits\|.* still\)' table || fail "no change for DDP: $(grep '^DDP' table)"

refused() { # SENTENCE ARGUMENTS…
  local sentence=$1 got
  shift
  got=$("$PLAIT" compare "$@" 2>&1 >/dev/null)
  [ $? -eq 2 ] && [[ $got == "plait compare: $sentence"* ]] || fail "$*: $got"$'\n'"    expected: $sentence"
}
HOME= XDG_CACHE_HOME= refused 'neither XDG_CACHE_HOME nor HOME says where' "$recipe"
refused 'nothing.yaml: ' nothing.yaml --cluster h200-node
refused '"h200" is neither a file nor a cluster' "$recipe" --cluster h200
refused '' "$recipe" --cluster h200-node --ranks 9
"$PLAIT" compare "$recipe" --cluster h200-node --ranks 9 2>&1 | grep -q '9 ranks\|8 devices' || fail "9 ranks on 8 devices"
refused '' "$recipe" --cluster h200-node mesh.dpp=2
finish
