#!/bin/bash
# tier 1 2; rooms recipe runtime model; numbers
# plait eval and plait generate on any mesh, Layout and precision: one rank's loss and text, from a run, a checkpoint or an unmodified
# Hugging Face folder; keys that have no meaning there are refused. In tier 1 three meshes.
. "$SOURCE/tests/train/harness.sh" || exit 1
golden=$SOURCE/tests/model/golden

sed -i 's/"n_layer": 2/"n_layer": 4/' model.json
"$PLAIT" train recipe.yaml run.dir=run schedule.steps=12 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no run"; }
"$PLAIT" export run --out exported >log 2>&1 || { cat log; die "no export"; }
cat >llama.json <<'JSON'
{"model_type": "llama", "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
 "head_dim": 8, "max_position_embeddings": 64, "vocab_size": 301, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false}
JSON
"$PLAIT" train recipe.yaml model.config=llama.json run.dir=llama schedule.steps=12 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no llama"; }
"$PLAIT" export llama --out folder >log 2>&1 || { cat log; die "no export of llama"; }
cp -r folder untouched

# loss OUTPUT: the loss that plait eval printed
loss() { sed -nE 's/^loss ([0-9.]+) .*/\1/p' <<<"$1"; }
counts() { sed -nE "s/.*\(([0-9]+ tokens) in .*(, [0-9]+ bytes),.*/\1\2/p" <<<"$1"; }

# ---- eval ------------------------------------------------------------------------------------------------------------
one=$("$PLAIT" eval exported --data valid --seq-len 32) || die "eval as one rank"
[ -n "$(loss "$one")" ] && [ -n "$(counts "$one")" ] || die "eval prints $one"

few='^(mesh.dp=2 mesh.tp=2 mesh.pp=2|mesh.dp=2 parallel.zero=3|mesh.pp=2 parallel.pipeline=zb-v)$' # what tier 1 takes
# like_one WITHIN KEYS…: the loss to WITHIN units of its fourth digit, the very counts
like_one() {
  local within=$1 other
  shift
  [ "$tier" -gt 1 ] || [[ "$*" =~ $few ]] || return 0
  other=$("$PLAIT" eval exported --data valid --seq-len 32 "$@" 2>log) || { fail "eval $*: $(cat log)"; return; }
  [ "$(counts "$other")" = "$(counts "$one")" ] || fail "eval $*: $(counts "$other"), one rank has $(counts "$one")"
  awk -v a="$(loss "$one")" -v b="$(loss "$other")" -v within="$within" 'BEGIN { d = (a - b) * 10000; if (d < 0) d = -d; exit !(b > 0 && d <= within + 0.5) }' ||
    fail "eval $*: loss $(loss "$other"), one rank has $(loss "$one")"
}
like_one 0 mesh.dp=1
like_one 1 mesh.dp=2
like_one 1 mesh.dp=3
like_one 1 mesh.tp=2
like_one 1 mesh.tp=4 parallel.sequence=true
like_one 1 mesh.pp=2
like_one 1 mesh.pp=4
like_one 1 mesh.pp=2 parallel.pipeline=interleaved
like_one 1 mesh.pp=2 parallel.pipeline=zb-v
like_one 1 mesh.pp=2 'parallel.layers=[1,3]'
like_one 1 mesh.dp=2 mesh.tp=2 mesh.pp=2
like_one 1 mesh.dp=2 parallel.zero=3
like_one 1 mesh.dp=4 parallel.zero=3 parallel.shard_group=2
like_one 1 mesh.dp=2 parallel.zero=3 parallel.unsplit_tensors=true
like_one 1 mesh.dp=2 mesh.tp=2 'layout.batch=[dp,tp]'
like_one 1 mesh.tp=2 'layout.embed=[tp]' 'layout.heads=[]' 'layout.ffn=[]' 'layout.vocab=[]'
like_one 1 mesh.tp=4 parallel.tensor=2d mesh.dp=2 parallel.zero=3
like_one 1 mesh.tp=8 parallel.tensor=3d
like_one 1 batch.micro=3
like_one 1 precision=fp64
like_one 60 precision=bf16 # 8 bits: the loss of every token is off by about 2^-8 of a logit, at random
like_one 60 mesh.dp=2 mesh.tp=2 precision=bf16
like_one 20 precision=fp16
like_one 1 run.threads=1
like_one 1 mesh.dp=2 run.threads=4

# A run by its name, with its own data and sequence length.
expect 0 "^loss $(loss "$("$PLAIT" eval run)" | cut -c 1-5)" "$PLAIT" eval run mesh.dp=2 precision=bf16

# ---- generate ----------------------------------------------------------------------------------------------------------
text() { "$PLAIT" generate "$@" --tokenizer tokenizer.json --prompt 'ba do ' --max-tokens 40 2>log; }
folders='exported run folder'
[ "$tier" = 1 ] && folders=folder
for folder in $folders; do
  greedy=$(text "$folder" --temperature 0) || die "generate from $folder"
  sampled=$(text "$folder" --seed 3)
  [ ${#greedy} -gt 40 ] || die "generate prints $greedy"
  for keys in mesh.tp=2 'mesh.tp=2 mesh.pp=2' 'mesh.pp=4' 'mesh.dp=2 parallel.zero=3' 'mesh.dp=2 mesh.tp=2 mesh.pp=2' 'mesh.pp=2 parallel.pipeline=interleaved' 'mesh.pp=2 parallel.pipeline=zb-v' \
    'mesh.tp=2 layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.vocab=[]' 'mesh.dp=2 mesh.tp=2 layout.batch=[dp,tp]' 'mesh.tp=3 layout.heads=[] layout.ffn=[]' \
    'mesh.tp=4 parallel.tensor=2d' 'mesh.tp=8 parallel.tensor=2.5d mesh.pp=2' 'mesh.tp=8 parallel.tensor=3d'; do
    [ "$tier" -gt 1 ] || [[ $keys =~ $few ]] || continue
    # shellcheck disable=SC2086 # words on purpose
    [ "$(text "$folder" --temperature 0 $keys)" = "$greedy" ] || fail "generate from $folder with $keys gives another text"
    # shellcheck disable=SC2086
    [ "$(text "$folder" --seed 3 $keys)" = "$sampled" ] || fail "generate from $folder with $keys draws another text"
  done
done
# ---- wrong keys ----------------------------------------------------------------------------------------------------------
refuse 2 '^plait eval: optimizer.lr does nothing here; plait eval takes keys that say how it computes, of .*mesh, .*parallel, .*and the options of plait eval --help$' "$PLAIT" eval exported --data valid optimizer.lr=1
refuse 2 'parallel.recompute does nothing here; ' "$PLAIT" generate run --prompt x parallel.recompute=full
refuse 2 'mesh.tb: unknown key; did you mean mesh' "$PLAIT" eval exported --data valid mesh.tb=2
refuse 2 'is not of the form key=value' "$PLAIT" eval exported --data valid --seq-len 32 valid
refuse 2 'mesh.tp is 3, which does not divide the heads' "$PLAIT" eval exported --data valid --seq-len 32 mesh.tp=3
refuse 2 'mesh.pp is 5, but .* has only 4 layers' "$PLAIT" generate exported --prompt x mesh.pp=5
refuse 2 'precision must be one of' "$PLAIT" eval exported --data valid precision=int4
expect 0 '^note: layout.seq names tp, but mesh.tp is 1' "$PLAIT" eval exported --data valid --seq-len 32 'layout.seq=[tp]'
# a corpus that belongs to another tokenizer is noticed by one rank and ends all
"$PLAIT" tokenize --train --vocab-size 280 --out few.json text-00.txt >log 2>&1
expect 2 'the data contains token [0-9]*, which the tokenizer does not have' "$PLAIT" eval exported --data valid --seq-len 32 --tokenizer few.json mesh.dp=2
diff -r folder untouched || fail "a Hugging Face folder was changed"
finish
