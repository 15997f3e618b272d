#!/bin/bash
# tier 1 2; rooms compile recipe model; numbers
# A Hugging Face folder whose weights are bf16 keeps them so in memory for fp32, where products widen them: losses and log-probabilities have
# the bits that a folder with the same numbers in fp32 gives, on any mesh. In tier 1 two families and three meshes.
. "$SOURCE/tests/train/harness.sh" || exit 1
golden=$SOURCE/tests/model/golden

families='llama-tied mixtral-untied' meshes=('mesh.dp=1' 'mesh.tp=2' 'mesh.pp=2 mesh.dp=2')
if [ "$tier" -gt 1 ]; then
  families=$(ls "$golden")
  meshes+=('mesh.dp=2 parallel.zero=3' 'mesh.tp=2 mesh.pp=2' 'mesh.tp=2 layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.vocab=[]'
    'mesh.tp=2 parallel.sequence=true' 'mesh.dp=2 mesh.ep=2' 'mesh.tp=4 parallel.tensor=2d')
fi
printf '{"prompt": "ba do ki %s", "max_tokens": 9, "seed": 1}\n' 1 'ba ba ba ba ba ba ba do' >prompts.jsonl

evaluation() { "$PLAIT" eval "$1" --data valid --tokenizer tokenizer.json --seq-len 24 --limit 6 --json $2 2>log | sed 's/, "seconds.*//'; }
answers() { # FOLDER OUT KEYS
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" generate "$1" --tokenizer tokenizer.json --prompts prompts.jsonl --out "$2" --logprobs 2 $3 2>log
}
weights() { "$PLAIT" plan "$1" infer.context=24 --json "${@:2}" 2>log | grep -o '"weights": [0-9.]*' | head -1 | sed 's/.*: //'; }

for family in $families; do
  sed 's/"vocab_size": 97/"vocab_size": 301/' "$golden/$family/config.json" >config.json
  "$PLAIT" train recipe.yaml model.config=config.json run.dir="$family" data.seq_len=24 schedule.steps=2 schedule.warmup=1 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no $family"; }
  expect 0 verified "$PLAIT" export "$family" --out "$family.bf16" --dtype bf16
  expect 0 verified "$PLAIT" export "$family.bf16" --out "$family.fp32" --dtype fp32
  compared=0
  for keys in "${meshes[@]}"; do
    wide=$(evaluation "$family.fp32" "$keys")
    if [ -z "$wide" ]; then # a layout that this family does not have
      grep -q '^plait eval: .' log || fail "$family, $keys: no loss and no sentence: $(cat log)"
      continue
    fi
    [ "$(evaluation "$family.bf16" "$keys")" = "$wide" ] || fail "$family, $keys: another loss: $(evaluation "$family.bf16" "$keys") and $wide"
    compared=$((compared + 1))
    rm -f wide.jsonl narrow.jsonl
    if ! answers "$family.fp32" wide.jsonl "$keys"; then
      grep -q 'generation computes one token at a time' log || fail "$family, $keys: $(cat log)"
      continue
    fi
    answers "$family.bf16" narrow.jsonl "$keys" || fail "$family, $keys: $(cat log)"
    cmp wide.jsonl narrow.jsonl || fail "$family, $keys: other answers"
    # shellcheck disable=SC2086
    awk "BEGIN { exit !($(weights "$family.bf16" $keys) < 0.65 * $(weights "$family.fp32" $keys)) }" ||
      fail "$family, $keys: bytes of weights: $(weights "$family.bf16" $keys), in fp32 $(weights "$family.fp32" $keys)"
  done
  [ $compared -ge 3 ] || fail "$family: only $compared meshes were compared"
done

# Other precisions have weights of their own.
for precision in bf16 fp64; do
  [ "$(weights llama-tied.bf16 precision=$precision)" = "$(weights llama-tied.fp32 precision=$precision)" ] || fail "other weights in $precision"
done
finish
