#!/bin/bash
# tier 2; rooms recipe
# Nothing changes silently: a run that resumes says what is not as it was, refuses what would make it another run, and a run
# that has nothing to do changes nothing.
. "$SOURCE/tests/train/harness.sh" || exit 1
unset LC_ALL LC_CTYPE
export LANG=C
steps='schedule.warmup=0 mesh.dp=1 parallel.zero=0 eval.every=0'
train() { "$PLAIT" train recipe.yaml $steps "$@"; }
# shellcheck disable=SC2086 # words on purpose

train schedule.steps=4 >log 2>&1 || { cat log; die "the run before"; }
grep -q '^changed' log && fail "a new run says that something has changed"
cp -r run before
untouched() { diff -r -x lock before run >difference || fail "$1: changed the run folder: $(head -3 difference)"; }
again() { rm -rf run && cp -r before run; }

# ---- what is said ----

# shellcheck disable=SC2086
{
  expect 0 '^changed: optimizer.lr 0.003 -> 0.001, schedule.steps 4 -> 8$' "$PLAIT" train recipe.yaml $steps schedule.steps=8 optimizer.lr=1e-3
  grep -qE '^note: the learning rate goes from [0-9.e-]+ to [0-9.e-]+$' output || fail "the learning rate: $(grep ^note output)"
  again
  LANG=C.UTF-8 expect 0 '^changed: schedule.steps 4 → 8$' "$PLAIT" train recipe.yaml $steps schedule.steps=8
  again
  # how it is computed may change, and is said; 3.0e-3 is 3e-3
  expect 0 '^changed: mesh.dp 1 -> 2, batch.micro 2 -> 1, schedule.steps 4 -> 8, run.threads auto -> 2$' \
    "$PLAIT" train recipe.yaml schedule.warmup=0 eval.every=0 parallel.zero=0 schedule.steps=8 batch.micro=1 run.threads=2 optimizer.lr=3.0e-3
}
again

# ---- what is refused: another run ----

"$PLAIT" export run --out folder-of-weights >log 2>&1 || { cat log; die "no folder to start from"; }
for change in run.seed=8 data.seq_len=16 data.document_mask=false data.train=valid data.valid=corpus data.tokenizer= model.init=folder-of-weights; do
  # shellcheck disable=SC2086
  case $change in
  model.init=folder-of-weights) pattern='model.init random -> ' ;;
  data.tokenizer=) pattern='data.tokenizer .*tokenizer.json -> not given' ;;
  *) pattern="${change%%=*} .* -> " ;;
  esac
  # shellcheck disable=SC2086
  refuse 2 "run holds a run at step 4 .*: $pattern.*another run.dir.*--force" "$PLAIT" train recipe.yaml $steps schedule.steps=8 "$change"
done
untouched "a refused change"
# shellcheck disable=SC2086
{
  expect 0 '^changed: schedule.steps 4 -> 8, run.seed 7 -> 8$' "$PLAIT" train --force recipe.yaml $steps schedule.steps=8 run.seed=8
  grep -q '^note: --force: from step 5 on this is another run than before: run.seed 7 -> 8$' output || fail "--force says nothing"
  again
  # a list of the same corpora with other weights is other data
  expect 0 step "$PLAIT" train recipe.yaml $steps schedule.steps=4 run.dir=blend 'data.train=[{prefix: corpus, weight: 1}, {prefix: valid, weight: 1}]'
  refuse 2 'data.train \[\{prefix: .*weight: 1\}\] -> \[\{prefix: .*weight: 2\}\]' "$PLAIT" train recipe.yaml $steps schedule.steps=8 \
    run.dir=blend 'data.train=[{prefix: corpus, weight: 1}, {prefix: valid, weight: 2}]'
}

# ---- contents, not names ----

mkdir moved
cp corpus.bin corpus.idx tokenizer.json model.json moved
# shellcheck disable=SC2086
expect 0 'data.train .*corpus -> .*moved/corpus \(the same contents\)' "$PLAIT" train recipe.yaml $steps schedule.steps=8 data.train=moved/corpus \
  data.tokenizer=moved/tokenizer.json model.config=moved/model.json
[ "$(grep -o '(the same contents)' output | wc -l)" -eq 3 ] || fail "corpus, tokenizer and model have only moved"
again
# a folder stands for the tokenizer.json in it
mkdir folder && cp tokenizer.json folder
# shellcheck disable=SC2086
expect 0 step "$PLAIT" train recipe.yaml $steps schedule.steps=1 run.dir=in-folder data.tokenizer=folder
cmp folder/tokenizer.json in-folder/tokenizer.json || fail "the run has no copy of the tokenizer"
grep -q 'tokenizer: .*/folder/tokenizer.json$' in-folder/recipe.yaml || fail "$(grep tokenizer in-folder/recipe.yaml)"
rm folder/tokenizer.json
# shellcheck disable=SC2086
refuse 2 'data.tokenizer: .*/folder has no tokenizer.json: it is empty' "$PLAIT" train recipe.yaml $steps run.dir=no-tokenizer data.tokenizer=folder
[ ! -e no-tokenizer ] || fail "a run that is refused leaves its folder"
printf ' ' >>moved/tokenizer.json
# shellcheck disable=SC2086
refuse 2 'data.tokenizer .*tokenizer.json' "$PLAIT" train recipe.yaml $steps schedule.steps=8 data.tokenizer=moved/tokenizer.json
cp corpus.bin kept.bin
printf '\1' | dd of=corpus.bin bs=1 seek=40 conv=notrunc 2>/dev/null
# shellcheck disable=SC2086
refuse 2 'data.train \(the contents of .*corpus\)' "$PLAIT" train recipe.yaml $steps schedule.steps=8
mv kept.bin corpus.bin
cp model.json kept.json
sed -i 's/attn_pdrop": 0.1/attn_pdrop": 0.2/' model.json
# shellcheck disable=SC2086
refuse 2 'model.config: attn_pdrop of .*model.json 0.1 -> 0.2' "$PLAIT" train recipe.yaml $steps schedule.steps=8
# what does not change the numbers is said
sed 's/{/{"torch_dtype": "float32",/' kept.json >model.json
# shellcheck disable=SC2086
expect 0 '^changed: model.config: torch_dtype of .*model.json not given -> "float32", schedule.steps 4 -> 8$' "$PLAIT" train recipe.yaml $steps schedule.steps=8
mv kept.json model.json
again

# ---- the way out where tensors are others ----

sed 's/"n_layer": 2/"n_layer": 3/' model.json >deeper.json
# shellcheck disable=SC2086
refuse 2 'layer.2.*to train this model, choose another run.dir; to resume the run, take its own recipe: plait train .*/run/recipe.yaml' \
  "$PLAIT" train recipe.yaml $steps schedule.steps=8 model.config=deeper.json
# shellcheck disable=SC2086
refuse 2 'to resume from it, take the model and optimizer of its run, or else leave out checkpoint.resume' \
  "$PLAIT" train recipe.yaml $steps run.dir=new checkpoint.resume=run/checkpoints/step-4 model.config=deeper.json
untouched "another model"

# ---- a checkpoint as the beginning of another run is what was asked for ----

# shellcheck disable=SC2086
expect 0 '^changed: .*run.seed 7 -> 8' "$PLAIT" train recipe.yaml $steps schedule.steps=6 run.dir=fork checkpoint.resume=run/checkpoints/step-4 run.seed=8

# once it has begun, the same command continues it (test_going_back.sh has the rest)
# shellcheck disable=SC2086
expect 0 '^note: checkpoint.resume is where the run began; .*/fork has later checkpoints of its own' "$PLAIT" train recipe.yaml $steps schedule.steps=8 \
  run.dir=fork checkpoint.resume=run/checkpoints/step-4 run.seed=8
grep -q 'fork/checkpoints/step-6$' output || fail "a run that began at another's checkpoint does not resume from its own"

# ---- another batch changes which samples follow ----

# shellcheck disable=SC2086
{
  expect 0 '^note: batch.global counts the samples of all steps, so with 12 instead of 8 the next step begins at sample 48, not 32: 16 samples are left out$' \
    "$PLAIT" train recipe.yaml $steps schedule.steps=6 batch.global=12
  again
  expect 0 'the next step begins at sample 16, not 32: 16 samples are trained on again$' "$PLAIT" train recipe.yaml $steps schedule.steps=6 batch.global=4
  again
}

# ---- model.init is not read again ----

"$PLAIT" export run/checkpoints/step-4 --out exported >log 2>&1 || { cat log; die "export"; }
# shellcheck disable=SC2086
expect 0 'step 4' "$PLAIT" train recipe.yaml $steps schedule.steps=4 run.dir=tuned model.init=exported
grep -q 'read it again' output && fail "a new run says that model.init is not read again"
# shellcheck disable=SC2086
expect 0 '^note: model.init is .*/exported, but a run that resumes has its weights from its checkpoint and does not read it again$' \
  "$PLAIT" train recipe.yaml $steps schedule.steps=6 run.dir=tuned model.init=exported

# ---- a model that is not what its file seems to say ----

sed 's/"attn_pdrop"/"atn_pdrop"/' model.json >misspelt.json
sed 's/"vocab_size": [0-9]*/"vocab_size": 300/' "$SOURCE/models/llama-tiny.json" >llama.json
for command in 'train run.dir=notes schedule.steps=1' plan recipe; do
  # shellcheck disable=SC2086
  set -- "${command%% *}" recipe.yaml $steps $([ "$command" = "${command#* }" ] || echo "${command#* }")
  rm -rf notes
  expect 0 'note: .*model.config: plait does not read these keys of .*misspelt.json, which change nothing here: atn_pdrop \(did you mean attn_pdrop\?\)$' \
    "$PLAIT" "$@" model.config=misspelt.json
  rm -rf notes
  expect 0 'note: .*data.seq_len is 65, but .*llama.json is made for 64 positions \(max_position_embeddings\)' "$PLAIT" "$@" model.config=llama.json data.seq_len=65
  rm -rf notes
  expect 0 . "$PLAIT" "$@" model.config=llama.json data.seq_len=64
  grep -q 'note: .*\(positions\|does not read\)' output && fail "a note about nothing: $(grep note: output)"
done

# ---- nothing to do ----

# shellcheck disable=SC2086
{
  expect 0 "run: all 4 steps are done; to train longer: plait train .*/run/recipe.yaml schedule.steps=8\$" "$PLAIT" train recipe.yaml $steps schedule.steps=4 optimizer.lr=1
  untouched "a run that is over"
  expect 0 'run: nothing to do: the run has done 4 steps, and schedule.steps is 3; to train longer: plait train .*/run/recipe.yaml schedule.steps=8$' \
    "$PLAIT" train recipe.yaml $steps schedule.steps=3
  untouched "a run asked for fewer steps"
}
expect 0 '^changed: schedule.steps 4 -> 8$' "$PLAIT" train run/recipe.yaml schedule.steps=8
finish
