#!/bin/bash
# tier 1; rooms infer model recipe
# plan, explain, eval, generate and export as a user meets them: on the golden Hugging Face folders, and on a tiny run.
. "$SOURCE/tests/script.sh" || exit 1
golden=$SOURCE/tests/model/golden

# the same, and the message is one line
refuse() {
  expect "$@"
  shift 2
  [ "$("$@" 2>&1 | wc -l)" -eq 1 ] || fail "$* prints more than one line"
}
same() { [ "$2" = "$3" ] || fail "$1:"$'\n'"$2"$'\n'"differs from"$'\n'"$3"; }

# a tiny corpus, tokenizer, model and recipe; the corpus comes after plan and explain, which do not need it
printf '{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 48, "vocab_size": 300,
  "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}' >config.json
cat >recipe.yaml <<'END'
model: {config: config.json}
data: {train: train, valid: valid, tokenizer: tokenizer.json, seq_len: 32, document_mask: true}
mesh: {dp: 2}
parallel: {zero: 1}
batch: {global: 8, micro: 2}
optimizer: {lr: 1e-2}
schedule: {steps: 30, warmup: 3}
eval: {every: 30, batches: 1000}
run: {dir: run, threads: 2}
END

# ---- plan
expect 0 '^= total ' "$PLAIT" plan recipe.yaml
expect 0 'pp=1 dp=2 cp=1 tp=1: 2 ranks, 1 thread each' "$PLAIT" plan recipe.yaml
expect 0 '2 microbatches of 2 on each data rank' "$PLAIT" plan recipe.yaml
expect 0 'memory of a rank +pp 0 +pp 1' "$PLAIT" plan recipe.yaml mesh.pp=2 mesh.dp=1
for key in parameters gradients optimizer activations workspace communication loader 'per token' 'per step'; do
  expect 0 "^  $key " "$PLAIT" plan recipe.yaml
done
"$PLAIT" plan --bytes recipe.yaml >plan.txt
# the rows above the arena add up to it, it is whole pages, and all rows add up to the total
awk '/^= arena/ {if (sum != $NF || $NF % 2097152) exit 1}
     /^= total/ {exit $NF == sum ? 0 : 1}
     /^  / {sum += $NF}' plan.txt || fail "plan's rows do not add up"$'\n'"$(cat plan.txt)"
rows=0
while IFS= read -r row; do # docs/run.md explains every row of memory
  rows=$((rows + 1))
  grep -qF "| $row |" "$SOURCE/docs/run.md" || fail "docs/run.md does not explain plan's row \"$row\""
done < <(sed -n '/^memory of a rank/,/^= total/s/^  *\([^0-9= ].*[a-z]\)  *[0-9]*$/\1/p; s/^\(= .*[a-z)]\)  *[0-9]*$/\1/p' plan.txt)
[ "$rows" -ge 12 ] || fail "only $rows rows of memory in plan's output"
# fp32 without ZeRO: parameters, gradients and twice as much optimizer state, for 2 layers of 32 by hand
parameters=$((300 * 32 + 48 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32))
"$PLAIT" plan --bytes recipe.yaml parallel.zero=0 >plan.txt
same "bytes of parameters" "$(awk '/^  parameters/ {print $2}' plan.txt)" $((4 * parameters))
same "bytes of gradients" "$(awk '/^  gradients/ {print $2}' plan.txt)" $((4 * parameters))
same "bytes of the optimizer" "$(awk '/^  optimizer/ {print $2}' plan.txt)" $((8 * parameters))
# 6·N without wpe, and 6·L·d·(T + 1)
same "FLOPs per token" "$(awk '/per token/ {print $3}' plan.txt)" \
  "$(awk -v f=$((6 * (parameters - 48 * 32) + 6 * 2 * 32 * 33)) 'BEGIN {printf "%.0fk", f / 1000}')"
refuse 2 'mesh.tp is 4, which does not divide the heads .2, with 2 key and value heads. .*; the nearest is 2' "$PLAIT" plan recipe.yaml mesh.tp=4
refuse 2 'mesh.pp is 3, but .* has only 2 layers to divide; the nearest mesh.pp is 2' "$PLAIT" plan recipe.yaml mesh.pp=3 mesh.dp=1
refuse 2 'n_positions is 48, but data.seq_len is 49; take at most 48' "$PLAIT" plan recipe.yaml data.seq_len=49
refuse 2 'nothere.json' "$PLAIT" plan recipe.yaml model.config=nothere.json
refuse 2 'no.yaml' "$PLAIT" plan no.yaml
refuse 2 'backend' "$PLAIT" plan recipe.yaml run.backend=abacus
PLAIT_SPACE=moon refuse 2 '^plait: PLAIT_SPACE is "moon"; allowed: host, and far or mirror for tests' "$PLAIT" plan recipe.yaml

sed 's/"n_layer": 2/"n_layer": 1200/' config.json >deep.json
refuse 2 '^plait plan: mesh.pp is 1100, but at most 1024 stages are built; the nearest mesh.pp is 1024' "$PLAIT" plan recipe.yaml mesh.pp=1100 model.config=deep.json
# whether waiting ranks lend their threads, and why not where that was asked for
[ "$(nproc)" -lt 2 ] || expect 0 '2 ranks, 1 thread each, with work stealing$' "$PLAIT" plan recipe.yaml run.work_stealing=true
"$PLAIT" plan recipe.yaml run.work_stealing=false 2>&1 | grep -E 'lent|run.work_stealing' && fail "run.work_stealing: false, but something is said of it"
expect 0 '^note: run.work_stealing is true, but 2 ranks of 2048 threads share [0-9]+ cores?, so there is no idle core to use$' "$PLAIT" plan recipe.yaml run.work_stealing=true run.threads=4096
expect 0 '^note: run.work_stealing is true, but it works between threads only, and ranks are processes here' "$PLAIT" plan recipe.yaml run.work_stealing=true run.comm=mpi
"$PLAIT" plan recipe.yaml run.threads=4096 2>&1 | grep 'run.work_stealing' && fail "run.work_stealing was not given, but a note says that it does nothing"

# ---- explain
expect 0 '^BEGIN' "$PLAIT" explain recipe.yaml --after autodiff
expect 0 'adamw' "$PLAIT" explain recipe.yaml --after autodiff
for pass in autodiff stage precision place zero partition fuse bucket; do
  expect 0 "^# after $pass, " "$PLAIT" explain recipe.yaml --after $pass
done
"$PLAIT" explain recipe.yaml --after zero | grep -qE '= (all_reduce|reduce_scatter)' && fail "collectives before partition"
expect 0 '= reduce_scatter' "$PLAIT" explain recipe.yaml --after partition
expect 0 '= all_reduce' "$PLAIT" explain recipe.yaml parallel.zero=0 --after bucket
expect 0 'stage 1' "$PLAIT" explain recipe.yaml mesh.pp=2 mesh.dp=1 --after stage
expect 0 '^Program of pipeline rank 1 of 2' "$PLAIT" explain recipe.yaml mesh.pp=2 mesh.dp=1
expect 0 'reduce_scatter over dp' "$PLAIT" explain recipe.yaml
same "Programs of one coordinate" "$("$PLAIT" explain recipe.yaml mesh.pp=2 --rank-coordinate 1 | grep -c '^Program')" 1
refuse 2 '--after must be autodiff, stage, .* not "partion"; did you mean partition\?' "$PLAIT" explain recipe.yaml --after partion
refuse 2 'rank-coordinate is 2' "$PLAIT" explain recipe.yaml mesh.pp=2 --rank-coordinate 2

# ---- Hugging Face folders
for model in gpt2-tied gpt2-untied llama-tied llama-untied; do
  expect 0 'verified' "$PLAIT" export "$golden/$model" --out "$model"
  expect 0 'verified' "$PLAIT" export "$model" --out "$model-again"
  cmp -s "$model/model.safetensors" "$model-again/model.safetensors" || fail "$model does not export to the same bytes"
  cmp -s "$model/config.json" "$model-again/config.json" || fail "$model does not export to the same config"
done
refuse 2 'exists already' "$PLAIT" export "$golden/gpt2-tied" --out gpt2-tied
refuse 2 'dtype' "$PLAIT" export "$golden/gpt2-tied" --out new --dtype int8
[ -e new ] && fail "a refused export left a folder"
refuse 2 'has no tokenizer.json; give --tokenizer' "$PLAIT" generate "$golden/gpt2-tied" --prompt x
refuse 2 'does not say what to evaluate on; name a corpus: plait eval .*gpt2-tied --data PREFIX' "$PLAIT" eval "$golden/gpt2-tied"
refuse 2 'does not exist' "$PLAIT" eval nowhere --data valid
mkdir nothing && echo text >nothing/notes.txt
refuse 2 'nothing is neither a checkpoint \(checkpoint.json\), nor a run' "$PLAIT" eval nothing --data valid
refuse 2 '\. has no model.safetensors, but its folder gpt2-tied has one: give that folder$' "$PLAIT" eval . --data valid
# what people have in the place of weights
cp -r gpt2-tied pointer && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 59700\n' >pointer/model.safetensors
for command in "eval pointer --data valid" "generate pointer --prompt x" "export pointer --out new"; do
  # shellcheck disable=SC2086
  refuse 2 'pointer/model.safetensors is a Git LFS pointer and not the file itself: git lfs pull' "$PLAIT" $command
done
cp -r gpt2-tied shards && mv shards/model.safetensors shards/model-00001-of-00001.safetensors
refuse 2 'shards holds shards .* without model.safetensors.index.json' "$PLAIT" eval shards --data valid
printf '{"weight_map": {"wte.weight": "model-00001-of-00001.safetensors"}}' >shards/model.safetensors.index.json
cp pointer/model.safetensors shards/model-00001-of-00001.safetensors
refuse 2 'shards/model-00001-of-00001.safetensors is a Git LFS pointer' "$PLAIT" eval shards --data valid
refuse 2 'pointer/model.safetensors is a Git LFS pointer.*; give the folder of a run' "$PLAIT" eval pointer/model.safetensors --data valid
refuse 2 'Qwen/Qwen2-7B does not exist; .*hf download Qwen/Qwen2-7B' "$PLAIT" eval Qwen/Qwen2-7B --data valid
refuse 2 'config.json is a file; give the folder of a run' "$PLAIT" generate gpt2-tied/config.json --prompt x
expect 2 'no-corpus' "$PLAIT" eval "$golden/gpt2-tied" --data no-corpus

# ---- a run
for i in $(seq 200); do echo "int add$i(int a, int b) { return a + $i * b; } /* number $i */"; done >text.txt
head -c 3000 text.txt >held.txt
"$PLAIT" tokenize --train --vocab-size 300 --out tokenizer.json text.txt >/dev/null || fail tokenizer
"$PLAIT" tokenize --tokenizer tokenizer.json --out train text.txt >/dev/null || fail tokenize
"$PLAIT" tokenize --tokenizer tokenizer.json --out valid held.txt >/dev/null || fail tokenize
"$PLAIT" train recipe.yaml >log.txt 2>&1 || fail "train: $(cat log.txt)"
expect 0 'all 30 steps are done' "$PLAIT" train run/recipe.yaml # continues the run, which is at its end
"$PLAIT" train run/recipe.yaml run.dir=again >again.txt 2>&1 || fail "train again: $(cat again.txt)"
losses() { sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
[ "$(losses run | wc -l)" -eq 30 ] || fail "not 30 losses in run/metrics.jsonl"
same "a run repeated from its recipe.yaml" "$(losses run)" "$(losses again)"
[ "$(nproc)" -lt 2 ] || grep -q '1 thread a rank, with work stealing$' log.txt || fail "train does not say that ranks lend their threads"
# tokens that the model has no row for: data with one is refused by whoever reads it, and plan, which reads none, says so
sed 's/"vocab_size": 300/"vocab_size": 257/' config.json >few.json
for command in recipe train; do
  refuse 2 "^plait $command: recipe.yaml:[0-9:]*: data.train: .*train.bin: the token at position [0-9]* has id [0-9]*, allowed are 0 to 256 .*; set vocab_size in .*few.json to at least 300" "$PLAIT" $command recipe.yaml model.config=few.json
done
expect 0 '^note: recipe.yaml:2:47: data.tokenizer: .*tokenizer.json has 43 tokens, 257 and above, for which the model has no row, .*; a run refuses data that has one of them' "$PLAIT" plan recipe.yaml model.config=few.json
expect 2 'recipe.yaml names files that do not exist: .*no-such.json \(model.config\)$' "$PLAIT" recipe recipe.yaml model.config=no-such.json
expect 0 '^model:' "$PLAIT" recipe recipe.yaml
result='^loss [0-9]+\.[0-9]{4}  perplexity [0-9]+\.[0-9]{2}  bits per byte [0-9]+\.[0-9]{3}  \([0-9]+ tokens in (all )?[0-9]+ sequences? of [0-9]+, [0-9]+ bytes, [0-9]+\.[0-9] s\)$'
expect 0 "$result" "$PLAIT" eval run
numbers() { sed -E 's/, [0-9.]+ s\)//' <<<"$1"; } # without the time
first=$("$PLAIT" eval run)
same "the checkpoint named" "$(numbers "$("$PLAIT" eval run/checkpoints/step-30)")" "$(numbers "$first")"
same "the folder of checkpoints" "$(numbers "$("$PLAIT" eval run/checkpoints)")" "$(numbers "$first")"
# the held-out loss of the training run, over two ranks, is the same number
trained=$(sed -n 's/.*"eval_loss": *\([0-9.]*\).*/\1/p' run/metrics.jsonl | tail -1)
same "eval_loss of the run" "$(printf '%.3f' "${trained:-0}")" "$(printf '%.3f' "$(awk '{print $2}' <<<"$first")")"
# every token but the first is predicted; all bytes but the first token's count
bytes=$(sed -E 's/.* ([0-9]+) bytes.*/\1/' <<<"$first")
{ [ "$bytes" -lt 3000 ] && [ "$bytes" -gt 2980 ]; } || fail "$bytes of 3000 bytes are counted"
awk '{n = $9; sub(/\(/, "", n); for (i = 10; i <= NF; i++) if ($i == "bytes,") b = $(i - 1); r = $2 * n / log(2) / b; exit (r - $8 < 0.002 && $8 - r < 0.002) ? 0 : 1}' <<<"$first" ||
  fail "bits per byte: $first"

expect 0 'verified' "$PLAIT" export run --out exported
cmp -s exported/tokenizer.json tokenizer.json || fail "the tokenizer is not in the export"
same "eval of the export" "$(numbers "$("$PLAIT" eval exported --data valid --seq-len 32)")" "$(numbers "$first")"
mv tokenizer.json away.json
expect 0 "$result" "$PLAIT" eval run # the run has a copy
mv run/tokenizer.json copy.json
expect 0 'bits per byte n/a  \([0-9]+ tokens in all [0-9]+ sequences of [0-9]+, [0-9.]+ s\)$' "$PLAIT" eval run
expect 0 "$result" "$PLAIT" eval run --tokenizer away.json
mv away.json tokenizer.json

# generate: deterministic, the seed and the temperature matter, the prompt comes first
text() { "$PLAIT" generate "$@" --prompt 'int add1' --max-tokens 60; }
same "the same seed" "$(text run --seed 5)" "$(text run --seed 5 --threads 1)"
[ "$(text run --seed 5)" != "$(text run --seed 6)" ] || fail "the seed does not matter"
same "temperature 0" "$(text run --temperature 0 --seed 1)" "$(text exported --temperature 0 --seed 2 infer.context=32)"
same "top-k 1" "$(text run --temperature 0)" "$(text run --top-k 1 --temperature 3)"
case $(text run) in 'int add1'*) ;; *) fail "the prompt does not come first" ;; esac
same "no tokens" "$("$PLAIT" generate run --prompt 'int ' --max-tokens 0)" 'int '
expect 0 '.' "$PLAIT" generate run --prompt '' --max-tokens 3
refuse 2 'top-p must be' "$PLAIT" generate run --prompt x --top-p 2
refuse 2 'give one of --prompt TEXT and --prompts FILE' "$PLAIT" generate run
refuse 2 'n_positions is 48, but infer.context is 49; take at most 48' "$PLAIT" generate run --prompt x --window 49
refuse 2 '^plait generate: --window N is infer.context by its old name; give one of them$' "$PLAIT" generate run --prompt x --window 5 infer.context=7
refuse 2 '^plait generate: --tokenizer needs a value, FILE, and "" is none ' "$PLAIT" generate run --prompt x --tokenizer ''
# SIGINT ends it cleanly (a script's background jobs ignore it, unless told otherwise)
env --default-signal=INT "$PLAIT" generate run --prompt 'int ' --max-tokens 2000000000 >endless.txt 2>&1 &
pid=$!
for i in $(seq $((1200 * patience))); do [ -s endless.txt ] && break; sleep 0.05; done # a minute at most
kill -INT $pid
wait $pid
same "status of generate after SIGINT" $? 130
[ -n "$(tail -c 1 endless.txt | tr -d '\n')" ] && fail "generate after SIGINT does not end its line"

# damage
cp -r run broken
rm broken/checkpoints/step-30/*.safetensors
expect 2 'has no valid checkpoint' "$PLAIT" eval broken
printf 'x' | dd of=exported/model.safetensors bs=1 seek=0 conv=notrunc status=none
refuse 2 'model.safetensors' "$PLAIT" eval exported --data valid
refuse 2 'model.safetensors' "$PLAIT" export exported --out new
[ -e new ] && fail "a failed export left a folder"

finish
