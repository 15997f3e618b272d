#!/bin/bash
# tier 1; rooms checkpoint infer recipe train
# docs/fine-tune.md and README's six commands: each command of theirs is run as it stands there (train with fewer steps), on a folder made
# here. The weights that training starts from are the folder's, and text of the kind that it is trained on becomes more likely.
. "$SOURCE/tests/script.sh" || exit 1
PATH=$(dirname "$PLAIT"):$PATH
HOME=$work

# The folder: a small Llama that has learnt one kind of text.
mkdir -p models/SmolLM2-135M text apart old
seq 200 | sed 's/.*/the cat & sat on the mat in the hat/' > old/a.txt
for i in $(seq 60); do seq "$i" $((i + 9)) | sed "s/.*/a hot hen & ate that hat at ten/" > "text/$i.txt"; done
for i in $(seq 5); do seq $((100 + i)) $((119 + i)) | sed "s/.*/a hot hen & ate that hat at ten/" > "apart/$i.txt"; done
cat > old/config.json <<'J'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false}
J
cat > old/r.yaml <<'J'
model: {config: config.json, init: random}
data: {train: d, seq_len: 64, tokenizer: t.json}
batch: {global: 4, micro: 4}
optimizer: {lr: 1e-2}
schedule: {steps: 40, warmup: 5}
checkpoint: {every: 0}
run: {dir: run, log_every: 40, tensorboard: false}
J
{ plait tokenize --train --vocab-size 300 --out old/t.json old/a.txt && plait tokenize --tokenizer old/t.json --out old/d old/a.txt &&
  plait train old/r.yaml && rmdir models/SmolLM2-135M && plait export old/run --out models/SmolLM2-135M; } > made 2>&1 || { cat made; die "no folder to tune"; }
mkdir recipes && cp "$SOURCE/recipes/fine-tune.yaml" recipes

# Command lines of a page's blocks, without comments; of README those of the section on fine-tuning.
commands() { awk '/^```/ { inside = !inside; next } inside && /^(plait|ln|mkdir) / { sub(/ +#.*/, ""); gsub(/  +/, " "); print }' "$@"; }
commands "$SOURCE/docs/fine-tune.md" > of_page
awk '/^## / { on = /^## Fine-tuning/ } on' "$SOURCE/README.md" | commands > of_readme
[ "$(wc -l < of_readme)" -eq 6 ] || fail "README has $(wc -l < of_readme) commands for fine-tuning, not six"
while IFS= read -r line; do
  grep -qxF -- "$line" of_page || fail "README's \`$line\` is not on docs/fine-tune.md"
done < of_readme

few='schedule.steps=20 schedule.warmup=4 eval.every=20 batch.global=4 optimizer.lr=1e-2 precision=fp32'
for line in $(seq "$(wc -l < of_page)"); do
  command=$(sed -n "${line}p" of_page)
  case $command in 'plait train '*) command+=" $few" ;; esac
  bash -c "$command" > "out.$line" 2>&1 || { fail "docs/fine-tune.md: $command"; tail -5 "out.$line"; }
  cat "out.$line" >> out
done
# one KEY of what a command of the page printed
said() { sed -nE "s/$2/\1/p" "out.$(grep -nE -- "$1" of_page | head -1 | cut -d: -f1)" | head -1; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }
first=$(said '^plait train' '^step +1\/20 +loss ([0-9.]+).*')
base=$(said '^plait eval base' '^loss ([0-9.]+).*')
tuned=$(said '^plait eval runs\/tuned --data' '^loss ([0-9.]+).*')
less "$tuned" "$(awk -v b="$base" 'BEGIN { print 0.8 * b }')" || fail "the loss of text kept apart was $base and is $tuned: nothing was learnt"
less "$(awk -v a="$first" -v b="$base" 'BEGIN { print (a > b ? a - b : b - a) }')" 0.3 || fail "training starts at $first, the folder has $base: its weights are not those that are trained"
held=$(said '^plait eval runs\/tuned$' '^loss ([0-9.]+).*')
less "$held" "$base" || fail "held-out documents: $held, the base $base"
grep -q '^data.split 0.05 holds out [0-9]* of 60 documents' out || fail "no documents are held out"

# The new folder scores as the run does, and has the base's config and tokenizer.
plait eval tuned-model --data data/apart > scored 2>&1
[ "$(sed -nE 's/^loss ([0-9.]+).*/\1/p' scored)" = "$tuned" ] || fail "the exported folder: $(cat scored), the run: $tuned"
cmp -s tuned-model/tokenizer.json base/tokenizer.json || fail "another tokenizer"
cmp -s tuned-model/config.json base/config.json || fail "another config.json: $(diff tuned-model/config.json base/config.json | head -3)"
cmp -s tuned-model/model.safetensors base/model.safetensors && fail "the weights are the base's"

# What the page says about mistakes: each sentence of its table is printed.
# seen STATUS SENTENCE COMMAND…: … stands for anything
seen() {
  local status=$1 sentence=$2
  shift 2
  grep -qF -- "$sentence" "$SOURCE/docs/fine-tune.md" || fail "docs/fine-tune.md has no \"$sentence\""
  expect "$status" "$(sed 's/[][().*?+{}|^$]/\\&/g; s/ *\xe2\x80\xa6 */.*/g' <<<"$sentence")" "$@"
}
train() { seen "$1" "$2" plait "$3" recipes/fine-tune.yaml run.dir=no precision=fp32 "${@:4}"; }
cp -r models/SmolLM2-135M whole && for name in lfs index shard bin adapter spm family rows; do cp -r whole $name; done
for file in model.safetensors tokenizer.json; do printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 59700\n' > lfs/$file; done
train 2 'model.safetensors is a Git LFS pointer and not the file itself' train model.init=lfs
expect 2 'tokenizer.json is a Git LFS pointer' plait tokenize --tokenizer lfs --out no text/1.txt
mv index/model.safetensors index/model-00001-of-00002.safetensors
train 2 'holds shards … without model.safetensors.index.json' train model.init=index
mv shard/model.safetensors shard/model-00001-of-00002.safetensors
echo '{"metadata": {}, "weight_map": {"model.embed_tokens.weight": "model-00002-of-00002.safetensors"}}' > shard/model.safetensors.index.json
train 2 'does not exist, but model.safetensors.index.json names it' train model.init=shard
mv bin/model.safetensors bin/pytorch_model.bin
train 2 'holds its weights as pytorch_model.bin' train model.init=bin
rm adapter/model.safetensors && echo '{"base_model_name_or_path": "org/base"}' > adapter/adapter_config.json
train 2 'holds an adapter of … and not a whole model' train model.init=adapter
mv spm/tokenizer.json spm/tokenizer.model
seen 2 'has tokenizer.model and no tokenizer.json' plait tokenize --tokenizer spm --out no text/1.txt
train 2 'has tokenizer.model and no tokenizer.json' train data.tokenizer=spm
train 2 'does not exist; give … on this machine (plait downloads nothing' train model.init=HuggingFaceTB/SmolLM2-135M
seen 2 'does not exist; give … on this machine (plait downloads nothing' plait tokenize --tokenizer gpt2 --out no text/1.txt
train 2 'says gpt2, but the folder of model.init, whose weights it should fit, says llama' train model.config="$SOURCE/models/my-text.json"
sed -i 's/"llama"/"mamba"/' family/config.json
train 2 'config.json: model_type is … allowed:' train model.init=family
awk 'BEGIN { for (i = 300; i < 340; i++) printf "%s<extra%d>", i == 300 ? "" : " ", i }' > extra.txt # 20 of which have no row
sed 's/"added_tokens": *\[/&@/' rows/tokenizer.json | tr '\n' ' ' | sed "s/@/$(awk 'BEGIN { for (i = 300; i < 340; i++)
  printf "{\"id\": %d, \"content\": \"<extra%d>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true},", i, i }')/" > rows/t && mv rows/t rows/tokenizer.json
plait tokenize --tokenizer rows --out data/none text/* > made 2>&1 || fail "$(cat made)"
train 0 'data.tokenizer: … tokens, … for which the model has no row' plan data.tokenizer=rows data.train=data/none
seen 0 'control tokens stood in the texts themselves' plait tokenize --tokenizer rows --out data/some text/* extra.txt
train 2 'the token at position … has id … allowed are 0 to … tokenize the text again with --tokenizer' train data.tokenizer=rows data.train=data/some
train 2 'no token files at … make them with plait tokenize' train data.train=data/nothing
for file in bin idx; do
  cp data/tuning.bin data/lfs.bin && cp data/tuning.idx data/lfs.idx && cp lfs/tokenizer.json data/lfs.$file
  expect 2 "data.train: .*/data/lfs.$file is a Git LFS pointer" plait train recipes/fine-tune.yaml run.dir=no data.train=data/lfs
done
head -c 2000 /dev/zero > zeros
seen 2 'is binary data' plait tokenize --tokenizer base --out no text/1.txt zeros
train 2 'schedule.min_lr is … but must be at most optimizer.lr' train schedule.min_lr=1e-3
train 0 'data.seq_len is … is made for … positions' plan data.seq_len=512
train 2 'holds a run at step … that differs in what makes it this run' train run.dir=old/run
! compgen -G 'no.*' || fail 'a refused command leaves tokens'
finish
