# Parity with processes for ranks: plait train as 2 and 4 processes gives one rank's losses, norms and gradients in fp64 to 1e-10,
# and the very bits, checkpoints included, of the same layout with threads. Sourced with $comm, as run.comm calls it, and the
# function `ranks`.

. "$SOURCE/tests/process/parity_compare.sh"

sed -i 's/"n_layer": 2/"n_layer": 4/' model.json # two ranks with two stages each
cat >experts.json <<'CONFIG'
{"model_type": "mixtral", "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": 4, "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": 32, "vocab_size": 300, "num_local_experts": 12,
 "num_experts_per_tok": 3, "attention_dropout": 0.1, "tie_word_embeddings": false}
CONFIG
run_one model
like_one 'one rank' 1 mesh.dp=1 parallel.zero=0
like_one 'dp 2' 2 mesh.dp=2 parallel.zero=0
like_one 'dp 2, zero 1' 2 mesh.dp=2 parallel.zero=1
like_one 'tp 2' 2 mesh.dp=1 mesh.tp=2 parallel.zero=0
like_one 'pp 2' 2 mesh.dp=1 mesh.pp=2 parallel.zero=0 parallel.pipeline=1f1b
like_one 'dp 2 × tp 2, zero 1' 4 mesh.dp=2 mesh.tp=2 parallel.zero=1
like_one 'pp 2, two stages each' 2 mesh.dp=1 mesh.pp=2 parallel.zero=0 parallel.pipeline=gpipe parallel.stages_per_rank=2
like_one 'pp 2 interleaved' 2 mesh.dp=1 mesh.pp=2 parallel.zero=0 parallel.pipeline=interleaved
like_one 'pp 2 interleaved × dp 2, zero 2' 4 mesh.dp=2 mesh.pp=2 parallel.zero=2 parallel.pipeline=interleaved
like_one 'ring 2' 2 mesh.dp=1 mesh.cp=2 parallel.zero=0 parallel.context=ring
like_one 'ring 2 × tp 2' 4 mesh.dp=1 mesh.cp=2 mesh.tp=2 parallel.zero=0 parallel.context=ring
like_one 'pp 2 zb-h1 × dp 2, zero 2' 4 mesh.dp=2 mesh.pp=2 parallel.zero=2 parallel.pipeline=zb-h1
like_one 'pp 2 zb-v' 2 mesh.dp=1 mesh.pp=2 parallel.zero=0 parallel.pipeline=zb-v
like_one 'pp 2 × dp 2' 4 mesh.dp=2 mesh.pp=2 parallel.zero=0
like_one 'cp 2, gather' 2 mesh.dp=1 mesh.cp=2 parallel.zero=0 parallel.context=gather
like_one 'cp 2, ring × dp 2, zero 3' 4 mesh.dp=2 mesh.cp=2 parallel.zero=3 parallel.context=ring
like_one 'cp 2, ulysses × tp 2' 4 mesh.dp=1 mesh.cp=2 mesh.tp=2 parallel.zero=0 parallel.context=ulysses
like_one 'cp 4, ring of groups of 2' 4 mesh.dp=1 mesh.cp=4 parallel.zero=0 parallel.context=ring parallel.ulysses=2
like_one 'pp 2 zb-v × cp 2, ring' 4 mesh.dp=1 mesh.cp=2 mesh.pp=2 parallel.zero=0 parallel.pipeline=zb-v parallel.context=ring
like_one 'tp 4 as 2 × 2' 4 mesh.dp=1 mesh.tp=4 parallel.zero=0 parallel.tensor=2d

run_one experts
like_one 'experts over dp 2' 2 mesh.dp=2 parallel.zero=0 parallel.ep=2
like_one 'experts over tp 2' 2 mesh.dp=1 mesh.tp=2 parallel.zero=0 parallel.ep=2
like_one 'experts over dp 2 × tp 2, zero 1' 4 mesh.dp=2 mesh.tp=2 parallel.zero=1 parallel.ep=4
like_one 'experts over dp 2 × cp 2, zero 2' 4 mesh.dp=2 mesh.cp=2 parallel.zero=2 parallel.ep=4

# Can the model of this test be trained so? Not with more stages than it has layers, or what else plan refuses for the sizes of model
# and sequences;
# any other failure of plan is one of this test.
fits() {
  local status
  # shellcheck disable=SC2086
  "$PLAIT" plan recipe.yaml $settings $model $1 >log 2>&1
  status=$?
  [ $status = 0 ] && return
  if [ $status = 2 ] && grep -q -E '^plait plan: .*(the model of |data\.seq_len is )' log; then echo "left out, $2: $(head -1 log)"; else fail "plan, $2"; cat log; fi
  return 1
}

# A sample of the parity matrix; PARITY_SEED chooses another one.
PARITY_LIST=4 "$FOLDER/test_parity_matrix" >layouts || die "no list of layouts"
head -1 layouts # the seed
sampled=0
while IFS=$'\t' read -r -u 3 n keys name; do
  of=model
  [[ $keys != *layout.expert=* && $keys != *parallel.ep=* ]] || of=experts
  one=one.$of model=model.config=$of.json
  fits "$keys" "$name" || continue
  # shellcheck disable=SC2086
  like_one "$name" "$n" $keys
  sampled=$((sampled + 1))
  [ "$sampled" -lt "${PARITY_SAMPLE:-4}" ] || break
done 3< <(sed 1d layouts)
[ "$sampled" -ge 4 ] || fail "only $sampled layouts of the matrix were run"
finish
