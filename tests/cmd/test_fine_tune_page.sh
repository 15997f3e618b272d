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

# What the page says about mistakes.
refuse 2 'config.json' plait train recipes/fine-tune.yaml run.dir=no model.config="$SOURCE/models/my-text.json"
refuse 2 'schedule.min_lr .*optimizer.lr' plait train recipes/fine-tune.yaml run.dir=no schedule.min_lr=1e-3
expect 0 'data.seq_len is 512, but .*max_position_embeddings' plait plan recipes/fine-tune.yaml run.dir=no data.seq_len=512
finish
