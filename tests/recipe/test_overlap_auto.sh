#!/bin/bash
# tier 1; rooms compile machine
# parallel.overlap: auto is true or false, whatever takes the shorter simulated step; without a cluster it is true.
. "$SOURCE/tests/script.sh" || exit 1
export PLAIT_CLUSTERS=$SOURCE/clusters XDG_CACHE_HOME=$work/cache

seconds() { "$PLAIT" simulate "$@" --top 0 --json 2>/dev/null | sed -n 's/.*"step_seconds": \([^,]*\),.*/\1/p'; }
# Which of them is: sums over tp do not wait for gradients over dp, on other links; the gradients of a pipeline share slow links with
# the messages that earlier stages wait for.
while read -r least recipe keys; do
  on=$(seconds "$SOURCE/recipes/$recipe" $keys parallel.overlap=true) off=$(seconds "$SOURCE/recipes/$recipe" $keys parallel.overlap=false)
  auto=$(seconds "$SOURCE/recipes/$recipe" $keys parallel.overlap=auto)
  [ "$least" = "$(awk -v a="$on" -v b="$off" 'BEGIN { print (a <= b) ? "true" : "false" }')" ] || fail "$recipe $keys: $least is not shorter: true $on s, false $off s"
  [ -n "$auto" ] && [ "$auto" = "$([ $least = true ] && echo "$on" || echo "$off")" ] || fail "$recipe $keys: auto takes $auto s, true $on s, false $off s"
done <<'ROWS'
true  7b.yaml --cluster dgx-a100-superpod mesh.dp=8 mesh.tp=4 batch.global=16 data.seq_len=1024
false 7b.yaml --cluster pcie-10g mesh.pp=8 mesh.dp=4 batch.global=32 data.seq_len=1024
ROWS

# this machine's runs: the Program of true
cat >recipe.yaml <<EOF
model: {config: $SOURCE/models/gpt-tiny.json, init: random}
data: {train: none, seq_len: 16}
mesh: {dp: 2}
batch: {global: 4, micro: 1}
schedule: {steps: 1}
run: {dir: run, comm: mpi}
EOF
"$PLAIT" explain recipe.yaml parallel.overlap=true >on && "$PLAIT" explain recipe.yaml parallel.overlap=auto >auto || fail 'explain'
cmp -s on auto || fail "without a cluster auto is not true"
refuse 2 'parallel.overlap must be one of true, false, auto, not' "$PLAIT" plan recipe.yaml parallel.overlap=maybe
finish
