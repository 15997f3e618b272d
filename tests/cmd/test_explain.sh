#!/bin/bash
# tier 2; rooms schedule program machine compile
# plait explain --timeline and --mesh, and what plait plan says about pipelines.
. "$SOURCE/tests/cmd/llama.sh" || exit 1

# ---- timeline: one row a pipeline rank, one box a segment; the bubble of equal segments is the published one
# segments: of a microbatch on one rank
for pipeline in naive:4:75.0:2 gpipe:4:20.0:2 1f1b:4:20.0:2 interleaved:4:11.1:4 zb-h1:4:7.7:3 zb-v:4:4.0:6; do
  IFS=: read -r name pp bubble segments <<< "$pipeline"
  expect 0 "bubble [0-9.]+ % of the step by FLOPs, $bubble % if all segments took the same time" \
    "$PLAIT" explain recipe.yaml mesh.pp=$pp mesh.dp=4 parallel.pipeline=$name --timeline $name.svg
  [ "$(grep -c '<title>' $name.svg)" -eq $((12 * segments * pp)) ] || fail "$name.svg: $(grep -c '<title>' $name.svg) boxes"
  [ "$(grep -c '>pp [0-9]<' $name.svg)" -eq $pp ] || fail "$name.svg: rows"
  grep -q ">$name on $pp pipeline ranks.*, 12 microbatches<" $name.svg || fail "$name.svg: title"
  grep -q ">bubble .* $bubble % if all segments took the same time; the head's " $name.svg || fail "$name.svg: bubble"
  grep -q 'viewBox="0 0 [0-9]* [0-9]*"' $name.svg || fail "$name.svg: cannot be scaled"
done
for name in 1f1b zb-h1 zb-v; do # W has a colour of its own
  case $name in zb*) green=1 ;; *) green=0 ;; esac
  [ "$(grep -c '>weight[,<]' $name.svg)" -eq $green ] || fail "$name.svg: legend of W"
  [ "$(grep '<title>weight' $name.svg | grep -o 'height="28" fill="#[0-9a-f]*"' | sort -u | wc -l)" -eq $((green * (1 + $([ $name = zb-v ] && echo 1 || echo 0)))) ] || fail "$name.svg: colours of W"
done
if command -v xmllint > /dev/null; then xmllint --noout ./*.svg || fail "not XML"; fi
expect 0 'bubble' "$PLAIT" explain recipe.yaml --timeline one.svg
expect 0 'bubble' "$PLAIT" explain recipe.yaml mesh.pp=2 parallel.pipeline=interleaved --timeline trace.json
[ "$(grep -o '"ph": *"X"' trace.json | wc -l)" -eq $((48 * 2 * 4)) ] || fail "trace.json: $(grep -o '"ph": *"X"' trace.json | wc -l) boxes"
if command -v python3 > /dev/null; then python3 - <<'P' || fail "trace.json"
import json
trace = json.load(open("trace.json"))
boxes = [e for e in trace["traceEvents"] if e["ph"] == "X"]
assert len(boxes) == 48 * 2 * 4, len(boxes)
for rank in (1, 2):
    mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in boxes if e["tid"] == rank)
    assert len(mine) == 48 * 4 and all(a[1] <= b[0] + 0.01 for a, b in zip(mine, mine[1:])), rank
assert "bubble" in trace["otherData"]["title"]
P
fi
expect 2 'must end in .svg \(a picture\) or .json' "$PLAIT" explain recipe.yaml --timeline schedule.png
expect 2 'give one of them' "$PLAIT" explain recipe.yaml --timeline a.svg --mesh
expect 1 'nowhere' "$PLAIT" explain recipe.yaml --timeline nowhere/a.svg

# ---- who holds what of a parameter, as a picture: four ranks of eight have a half (tp) of its copy and a quarter of its master (ZeRO 1)
expect 0 'what each of 8 ranks holds of layer.0.ffn.up.weight' "$PLAIT" explain recipe.yaml mesh.pp=2 mesh.dp=2 mesh.tp=2 \
  parallel.zero=1 precision=bf16 --tensor layer.0.ffn.up.weight --picture up.svg
[ "$(grep -c '>rank [0-9]<' up.svg)" -eq 8 ] || fail "up.svg: $(grep -c '>rank [0-9]<' up.svg) ranks"
[ "$(grep -o 'stroke-dasharray' up.svg | wc -l)" -eq 20 ] || fail "up.svg: forms that a rank does not hold"
# drawn 38 high: a quarter is 9.5, a half 19
[ "$(grep -o 'height="9.5" fill="#[0-9a-f]*"/' up.svg | wc -l)" -eq 12 ] || fail "up.svg: quarters"
[ "$(grep -o 'height="19.0" fill="#[0-9a-f]*"/' up.svg | wc -l)" -eq 8 ] || fail "up.svg: halves"
grep -q 'gradient.W(24,32) = matmul' up.svg && grep -q 'over dp' up.svg || fail "up.svg: the Program's lines"
if command -v xmllint > /dev/null; then xmllint --noout up.svg || fail "up.svg is not XML"; fi
expect 0 'picture.svg' "$SOURCE/scripts/picture" "$work/picture.svg"
cmp -s picture.svg "$SOURCE/docs/picture.svg" || fail "docs/picture.svg is not what plait draws now; write it with scripts/picture"
expect 2 'no parameter named layer.0.ffn.upweight; the nearest name is layer.0.ffn.up.weight' \
  "$PLAIT" explain recipe.yaml --tensor layer.0.ffn.upweight --picture up.svg
expect 2 'go together' "$PLAIT" explain recipe.yaml --picture up.svg

# ---- what actions wait for and which buffers they take is printed between them
"$PLAIT" explain recipe.yaml mesh.pp=2 mesh.dp=16 --rank-coordinate 0 > walk.txt || fail "explain mesh.pp=2"
[ "$(grep -c '^    microbatch [0-9]* enters slot' walk.txt)" -eq 3 ] || fail "walk.txt: slots entered"
[ "$(grep -c '^    microbatch [0-9]* leaves slot' walk.txt)" -eq 3 ] || fail "walk.txt: slots left"
grep -q '^    wait until %[0-9]* of microbatch 0, sent from F staging buffer 0 of stage 0, has been received$' walk.txt || fail "walk.txt: no wait"
"$PLAIT" explain recipe.yaml > walk.txt || fail "explain"
grep -qE 'staging|wait until' walk.txt && fail "one rank has nothing to stage or wait for"

# ---- collectives in flight: none without overlap, whatever the size of buckets; and bucket_mb 0 says that it turns this off
sharded=(mesh.dp=2 batch.micro=1 parallel.zero=3)
"$PLAIT" explain recipe.yaml "${sharded[@]}" > flight.txt 2> notes.txt || fail "explain of zero 3"
grep -qE ' until [0-9]+' flight.txt || fail "zero 3: no collective is in flight"
[ -s notes.txt ] && fail "zero 3: $(cat notes.txt)"
"$PLAIT" explain recipe.yaml "${sharded[@]}" parallel.overlap=false > still.txt 2> notes.txt || fail "explain without overlap"
grep -qE ' until [0-9]+|^ *reduce ' still.txt && fail "parallel.overlap=false: a collective is in flight"
grep -q 'bucket of' still.txt || fail "parallel.overlap=false: no collectives are joined"
[ -s notes.txt ] && fail "parallel.overlap=false: $(cat notes.txt)"
"$PLAIT" explain recipe.yaml "${sharded[@]}" parallel.bucket_mb=0 > still.txt 2> notes.txt || fail "explain of bucket_mb 0"
grep -qE ' until [0-9]+|^ *reduce |bucket of' still.txt && fail "parallel.bucket_mb=0: a collective is in flight, or joined"
"$PLAIT" plan recipe.yaml "${sharded[@]}" parallel.bucket_mb=0 2>&1 | grep -q 'note: parallel.bucket_mb is 0, which turns parallel.overlap off' || fail "bucket_mb 0: no note"

# ---- algorithms
cp=("$PLAIT" explain recipe.yaml mesh.cp=2 --algorithms)
expect 0 'attention … layer.7.attention.attention \(8 of them\): ulysses, over 2 ranks, because it moves the fewest elements$' "${cp[@]}"
expect 0 '^  ulysses .* taken$' "${cp[@]}"
expect 0 'gather, over 2 ranks, because the recipe says so' "${cp[@]}" parallel.context=gather
expect 0 '^  gather .* taken$' "${cp[@]}" parallel.context=gather
expect 0 'ulysses  cannot: .* ranks do not divide .* heads' "$PLAIT" explain recipe.yaml data.seq_len=48 mesh.cp=3 --algorithms
expect 0 '^of one operation on one microbatch: elements' "${cp[@]}"
# a ring of 3 moves as much as a gather and holds more; a ring of 4 holds as much
expect 0 'gather, over 3 ranks, because it moves the fewest elements, as ring does, and holds fewer bytes$' \
  "$PLAIT" explain recipe.yaml data.seq_len=48 mesh.cp=3 --algorithms
expect 0 'gather, over 4 ranks, because it is the first of those that move the fewest elements and hold the fewest bytes$' \
  "$PLAIT" explain recipe.yaml mesh.cp=4 mesh.tp=2 --algorithms
expect 0 'nothing to choose: parallel.context has no effect on this mesh' "$PLAIT" explain recipe.yaml mesh.dp=2 --algorithms
expect 0 'by ulysses' "$PLAIT" explain recipe.yaml mesh.cp=2 --after place
expect 0 'mesh.cp \(4\) is cp · ulysses: parallel.context' "$PLAIT" explain recipe.yaml mesh.cp=4 parallel.context=ring parallel.ulysses=2 --mesh
expect 2 'show different things' "${cp[@]}" --mesh

# ---- mesh
"$PLAIT" explain recipe.yaml mesh.pp=2 mesh.dp=3 mesh.tp=2 parallel.pipeline=interleaved --mesh > mesh.txt || fail "--mesh"
diff - mesh.txt <<'T' || fail "--mesh of 12 ranks"
mesh  pp=2 dp=3 cp=1 tp=2 · 12 ranks, those of the last axis side by side

              tp  0    1
  pp 0  dp 0      0    1   stages 0, 2: embedding, layers 0–1, 4–5
        dp 1      2    3
        dp 2      4    5
  pp 1  dp 0      6    7   stages 1, 3: layers 2–3, 6–7, head
        dp 1      8    9
        dp 2     10   11

groups
  pp          6 groups of 2: pass activations from stage to stage
              0 6 | 1 7 | 2 8 | 3 9 | 4 10 | 5 11
  dp          4 groups of 3: share the batch; each has the whole state
              0 2 4 | 1 3 5 | 6 8 10 | 7 9 11
  tp          6 groups of 2: share heads, feed-forward and vocabulary
              0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10 11
T
for mesh in "mesh.dp=48" "mesh.pp=8 mesh.tp=4 mesh.dp=2" "mesh.pp=4 mesh.tp=4 mesh.dp=48" "mesh.dp=48 mesh.tp=4" "mesh.pp=8"; do
  "$PLAIT" explain recipe.yaml $mesh --mesh > mesh.txt || fail "--mesh $mesh"
  [ "$(wc -l < mesh.txt)" -le 60 ] || fail "$mesh: $(wc -l < mesh.txt) lines"
  [ "$(LC_ALL=C.UTF-8 wc -L < mesh.txt)" -le 130 ] || fail "$mesh: a line of $(wc -L < mesh.txt)"
done
expect 0 '^  replica dp  16 groups of 6' "$PLAIT" explain recipe.yaml mesh.dp=6 mesh.pp=4 mesh.tp=4 parallel.zero=2 parallel.shard_group=3 --mesh
cat >few.json <<'END'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
 "vocab_size": 300, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
END
expect 0 '^  tp_group .*have the same key and value heads' "$PLAIT" explain recipe.yaml model.config=few.json mesh.tp=4 --mesh
expect 0 '^mesh  pp=1 dp=1 cp=1 tp=1 · 1 rank$' "$PLAIT" explain recipe.yaml --mesh
expect 0 '^  rank 0   stage 0: embedding, layers 0–7, head$' "$PLAIT" explain recipe.yaml --mesh
expect 0 'mesh.dp \(4\) is replica · dp' "$PLAIT" explain recipe.yaml mesh.dp=4 parallel.zero=1 parallel.shard_group=2 --mesh
expect 0 "share what the recipe's Layout cuts" "$PLAIT" explain recipe.yaml mesh.tp=2 'layout.ffn=[]' --mesh
expect 0 'tensor .1-D tensor parallelism' "$PLAIT" explain --help

# ---- plan
sed 's/"num_hidden_layers": 8/"num_hidden_layers": 6/; s/"hidden_size": 32/"hidden_size": 128/' config.json > six.json
sed 's/config.json/six.json/' recipe.yaml > six.yaml
# What recomputation saves where backward is split, beside the two ways without: what their own plans say.
busiest() { "$PLAIT" plan recipe.yaml mesh.pp=2 "$@" | awk '$1 == "activations" { for (i = 2; i < NF; i += 2) print $i, $(i + 1) }' | sort -g | tail -1; }
for way in this:zb-h1:full without:zb-h1:none with:1f1b:full; do
  IFS=: read -r word pipeline recompute <<< "$way"
  figure=$(busiest parallel.pipeline=$pipeline parallel.recompute=$recompute)
  [ -n "$figure" ] || fail "$way: no activations"
  expect 0 "^  $word .* $figure( |\$)" "$PLAIT" plan recipe.yaml mesh.pp=2 \
    parallel.pipeline=zb-h1 parallel.recompute=full
done
"$PLAIT" plan recipe.yaml mesh.pp=2 parallel.pipeline=zb-h1 | grep '^recomputation' && fail "recomputation that was not asked for"
expect 0 'stages .*2 2 2 2' "$PLAIT" plan recipe.yaml mesh.pp=4
expect 0 'stages .*5 1 1 1' "$PLAIT" plan recipe.yaml mesh.pp=4 'parallel.layers=[5,1,1,1]'
expect 0 'the busiest pipeline rank has 2\.[0-9]+ times the mean' "$PLAIT" plan recipe.yaml mesh.pp=4 'parallel.layers=[5,1,1,1]'
# Several stages a rank: the busiest rank counts, not the busiest stage.
expect 0 'stages .*( 1 1 2 2| 2 1 2 1) layers, .* the busiest pipeline rank has 1\.0[0-9] times the mean' "$PLAIT" plan six.yaml mesh.pp=2 \
  parallel.pipeline=zb-v
expect 0 'stages .* 1 2 2 1 layers, .* the busiest pipeline rank has 1\.0[0-9] times the mean' "$PLAIT" plan six.yaml mesh.pp=2 \
  parallel.pipeline=interleaved
expect 0 'ZeRO 1 would move' "$PLAIT" plan recipe.yaml mesh.pp=2 mesh.dp=2 parallel.zero=2
expect 0 'ZeRO 1 would move' "$PLAIT" plan recipe.yaml mesh.pp=2 mesh.dp=2 parallel.zero=3
expect 0 'ZeRO 1 would move' "$PLAIT" plan recipe.yaml mesh.pp=2 mesh.dp=2 parallel.zero=3 parallel.reshard=false
expect 0 'ZeRO 1 would move' "$PLAIT" plan recipe.yaml mesh.pp=2 mesh.dp=2 parallel.zero=3 parallel.gather=layer
expect 0 'ZeRO 1 would move .* over the ranks of cp; with' "$PLAIT" plan recipe.yaml mesh.pp=2 mesh.cp=2 parallel.zero=2
# What ZeRO moves is that of parameters and gradients, over its own axes: the same on four data ranks and on four of cp, where
# activations cross as well; and on dp beside 2-D tensors, which gather weights over others, what crosses dp.
moves() { "$PLAIT" plan recipe.yaml parallel.zero=3 "$@" | sed -n 's/^  block .*moves \(.*\) a step over .*/\1/p'; }
data=$(moves mesh.dp=4 batch.global=4) context=$(moves mesh.cp=4 batch.global=1)
[ -n "$data" ] && [ "$data" = "$context" ] || fail "ZeRO 3 moves '$data' over dp, '$context' over cp"
grid=(mesh.dp=2 mesh.tp=4 parallel.tensor=2d batch.global=4)
over=$("$PLAIT" plan recipe.yaml parallel.zero=3 "${grid[@]}" | sed -n 's/^  over dp  *\([0-9]\)/\1/p') data=$(moves "${grid[@]}")
[ -n "$data" ] && [ "$data" = "$over" ] || fail "ZeRO 3 beside 2-D tensors moves '$data', over dp '$over'"
# which algorithm the sequence is cut by, and that it was chosen
expect 0 '^parallel .*, context ulysses \(auto\)$' "$PLAIT" plan recipe.yaml mesh.cp=2
expect 0 '^parallel .*, context gather$' "$PLAIT" plan recipe.yaml mesh.cp=2 parallel.context=gather
expect 0 '^parallel .*, context ring over groups of 2 by ulysses$' "$PLAIT" plan recipe.yaml mesh.cp=4 parallel.context=ring parallel.ulysses=2
"$PLAIT" plan recipe.yaml mesh.dp=2 | grep -q '^parallel .*context' && fail "context without cp"
# kinds of tensor parallelism: why one cannot be, and with a pipeline the mean of its ranks
tensor=(mesh.tp=4 parallel.zero=0)
expect 0 '^  3d +- +mesh.tp is 4, but .*cube of ranks' "$PLAIT" plan recipe.yaml "${tensor[@]}"
expect 0 '^tensor parallelism on 4 .*, per step$' "$PLAIT" plan recipe.yaml "${tensor[@]}"
expect 0 '^tensor parallelism on 4 .*, per step .without the pipeline, the mean of its ranks.$' "$PLAIT" plan recipe.yaml "${tensor[@]}" mesh.pp=2
of_kind() { "$PLAIT" plan recipe.yaml "$@" | sed -n 's/^  1d *\([0-9.]* [a-zA-Z]*\).*/\1/p'; }
whole=$(of_kind "${tensor[@]}") half=$(of_kind "${tensor[@]}" mesh.pp=2)
awk "BEGIN { exit !(${whole%% *} > 1.98 * ${half%% *} && ${whole%% *} < 2.02 * ${half%% *}) }" || fail "1d: $whole on one stage, $half on two"
expect 0 '^  layer .* of memory at the peak; moves .* \(parallel.gather\)$' "$PLAIT" plan recipe.yaml mesh.dp=2 \
  parallel.zero=3 parallel.gather=layer
expect 0 'zero 2 by whole tensors' "$PLAIT" plan recipe.yaml mesh.dp=3 parallel.zero=2 parallel.unsplit_tensors=true
expect 0 'whole tensors: data ranks store .* to .* of this' "$PLAIT" plan recipe.yaml mesh.dp=3 parallel.zero=2 parallel.unsplit_tensors=true
expect 0 'dp .*gradients by whole tensors' "$PLAIT" explain recipe.yaml mesh.dp=3 parallel.zero=2 parallel.unsplit_tensors=true --mesh
# ---- what padding takes is said where it is more than 2 %: blocks of 8-bit states keep 5 heads of 50 × 250 whole ----
printf '{"model_type": "gpt2", "vocab_size": 400, "n_embd": 250, "n_head": 5, "n_layer": 2, "n_positions": 64}' >heads.json
heads='recipe.yaml model.config=heads.json mesh.dp=4 parallel.zero=1'
# shellcheck disable=SC2086
expect 0 'note: [0-9]+% of what a rank stores, .*, is padding.*attention.*kv_heads:dp' "$PLAIT" plan $heads optimizer.states=8bit
# shellcheck disable=SC2086
"$PLAIT" plan $heads >plan.txt || fail 'plan of five heads'
grep padding plan.txt && fail 'storage in rows is padded'
expect 0 'reduce_to over dp root 2' "$PLAIT" explain recipe.yaml mesh.dp=3 parallel.zero=2 parallel.unsplit_tensors=true
expect 0 '@wte.owner:dp=[0-2]' "$PLAIT" explain recipe.yaml mesh.dp=3 parallel.zero=1 parallel.unsplit_tensors=true --after zero
# The rows of every column add up, what is rounded is less than a page and nothing else, and the rows that have a reason stand there
# only where there is one. (The microbatches are large: the stages differ by more than a page.)
adds_up() {
  "$PLAIT" plan --bytes recipe.yaml "$@" > plan.txt || fail "plan $*"
  awk '/^memory of a rank/ { table = 1; next }
    /^= / { for (c = columns; c > 0; c--) { if (sum[c] != $(NF - columns + c)) { print "column " c ": " $0 " is " sum[c]; bad = 1 } }; if (/^= total/) exit; next }
    table { for (n = 0; $(NF - n) ~ /^[0-9]+$/; n++) {} columns = n; for (c = 1; c <= n; c++) sum[c] += $(NF - n + c) }
    /^  rounding/ { for (c = 2; c <= NF; c++) if ($c < 0 || $c >= 2097152 + 4096) { print "rounding: " $c; bad = 1 }; rounding = 1 }
    END { exit bad || !columns || !rounding }' plan.txt || fail "plan $*: $(cat plan.txt)"
}
adds_up mesh.pp=4 data.valid=corpus batch.global=128 batch.micro=32
awk '/^= arena/ { exit !($6 - $9 > 2097152) }' plan.txt || fail "stages that differ have the same arena: $(cat plan.txt)"
expect 0 '^  working memory: pp 0 needs the most: activations of 4 microbatches .*, workspace .*, communication ' "$PLAIT" plan recipe.yaml mesh.pp=4
expect 0 '^  working memory: pp 0 needs the most: activations [0-9]' "$PLAIT" plan recipe.yaml mesh.pp=2 parallel.pipeline=interleaved
adds_up mesh.dp=2 data.valid=corpus
grep -E '^  (evaluation|working)' plan.txt && fail "one stage: rows without a reason: $(cat plan.txt)"

# The batch may be cut over other axes than dp: two ranks that share a microbatch's samples hold the same, whichever axis it is.
row() { awk -v row="$1" '$1 == row { print $2 }' plan.txt; }
adds_up mesh.dp=2
loader=$(row loader)
adds_up mesh.dp=1 mesh.tp=2 'layout.batch=[tp]'
[ "$(row loader)" = "$loader" ] || fail "a batch cut over tp: the loader has $(row loader) bytes, over dp $loader"
expect 0 '24 microbatches of 1 on each data rank' "$PLAIT" plan recipe.yaml mesh.tp=2 batch.micro=1 'layout.batch=[tp]'
expect 0 '16 microbatches of at most 1 on each data rank' "$PLAIT" plan recipe.yaml mesh.dp=3 batch.micro=1 batch.global=46
expect 0 '4.2% of the data ranks. time is idle: 46 sequences cannot be divided evenly over 3 ranks' "$PLAIT" plan recipe.yaml mesh.dp=3 batch.micro=1 batch.global=46

# ---- --only: what a pattern selects, one operand a line; what place decided beside what the node wants and computes
tp=("$PLAIT" explain recipe.yaml mesh.dp=2 mesh.tp=2 parallel.zero=1 batch.global=8)
down='layer.3.ffn.down.weight'
expect 0 "gives .* \{batch:dp\}   computed as \{batch:dp partial:tp\}" "${tp[@]}" --after place --only "$down"
expect 0 "^  $down:fp32\(embed=32 ffn=48\) storage\{embed:dp ffn:tp\} copy:fp32\{ffn:tp\}" "${tp[@]}" --after zero --only "$down"
expect 0 "^    reads .* @$down#copy \{ffn:tp\}$" "${tp[@]}" --after zero --only "$down"
others=$("${tp[@]}" --after zero --only "$down" | grep '^    .*@' | grep -vc "@$down\|@moment[12].$down\|@skip\|@optimizer_step\|@gradient.$down")
[ "$others" -eq 0 ] || fail "--only $down shows $others operands of other Variables"
"${tp[@]}" --after zero --only "layer.3.ffn.down,layer.3.ffn.up" | grep -c '^  layer.3.ffn' | grep -qx 2 || fail "--only with two names"
expect 0 '… and [0-9]+ more operands' "${tp[@]}" --after bucket --only "gradient.$down"
expect 0 'reduce_scatter over dp .*=gradient.layer.3.ffn.down.weight.* … [0-9]+ more' "${tp[@]}" --only "gradient.$down"
expect 2 'no node and no Variable has a name that matches; .plait explain RECIPE --after zero. lists them all' "${tp[@]}" --after place --only nothing
expect 2 'no instruction .* has a name that matches' "${tp[@]}" --only nothing
expect 2 'it does not go with --timeline, --play, --mesh, --algorithms, --shards or --picture' "${tp[@]}" --mesh --only "$down"

# ---- --shards: which rank holds which part
cat > expected <<'T'
layer.3.ffn.down.weight(embed=32 ffn=48): which ranks hold which part
  storage {embed:dp ffn:tp}
                   ffn 0–23   ffn 24–47
    embed 0–15            0           1
    embed 16–31           2           3
  Copy {ffn:tp}
                  ffn 0–23   ffn 24–47
    embed 0–31         0 2         1 3
T
"${tp[@]}" --shards "$down" > shards.txt
diff expected shards.txt || fail "--shards"
# a dim that two axes cut: the rows are in the order of the tensor, not of the ranks, and each element has one owner
"${tp[@]}" mesh.dp=3 mesh.tp=2 parallel.zero=3 --shards head > shards.txt
awk '/storage/ { on = 1; next } /Copy/ { on = 0 } on && $1 == "vocab" { split($2, r, "–"); if (r[1] != next_row) exit 1; next_row = r[2] + 1 } END { exit next_row != 40 }' shards.txt ||
  fail "--shards with two axes on one dim: $(cat shards.txt)"
expect 0 'partial:dp\}: ranks of one cell hold terms of a sum' "${tp[@]}" --shards "gradient.$down"
"$PLAIT" explain recipe.yaml mesh.pp=4 --shards "$down" | grep -q '^    embed 0–31 *1$' || fail "--shards with a pipeline"
expect 2 'no Variable has a name that matches' "${tp[@]}" --shards nothing
expect 2 'give one of them' "${tp[@]}" --mesh --shards wte
finish
