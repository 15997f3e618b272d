#!/bin/bash
# tier 2; rooms data infer recipe; numbers
# data.split: a part of the documents is held out and evaluated on, the same under every mesh and seed, and by plait eval.
. "$SOURCE/tests/train/harness.sh" || exit 1
split='data.valid= data.split=0.1 precision=fp64 schedule.steps=8 eval.every=4 eval.batches=1000 checkpoint.every=4 checkpoint.keep=0'
number() { grep -oE "\"$1\": [0-9.]+" "$2/metrics.jsonl" | tail -1 | cut -d' ' -f2; }

# shellcheck disable=SC2086 # words on purpose
{
  expect 0 '^data.split 0.1 holds out [1-9] of 40 documents, [0-9.]+% of the tokens, for evaluation$' "$PLAIT" train recipe.yaml run.dir=whole mesh.dp=1 parallel.zero=0 $split
  expect 0 'step 8' "$PLAIT" train recipe.yaml run.dir=other mesh.dp=2 mesh.pp=2 parallel.zero=1 run.seed=7 $split
}
[ "$(number eval_tokens whole)" = "$(number eval_tokens other)" ] || fail "another mesh evaluates other tokens"
awk -v a="$(number eval_loss whole)" -v b="$(number eval_loss other)" 'BEGIN { d = a - b; exit (d < 0 ? -d : d) > 1e-9 * a }' ||
  fail "another mesh has another held-out loss: $(number eval_loss whole), $(number eval_loss other)"

# plait eval takes the same documents, all of them
expect 0 "loss $(printf %.4f "$(number eval_loss whole)").*\\($(number eval_tokens whole) tokens" "$PLAIT" eval whole precision=fp64
# other data when asked for
expect 0 '^loss' "$PLAIT" eval whole --data valid
grep -q "($(number eval_tokens whole) tokens" output && fail "--data evaluates what is held out"

refuse 2 'data.split is 0.1, but data.valid is given as well' "$PLAIT" train recipe.yaml data.split=0.1
# shellcheck disable=SC2086
{
  refuse 2 'data.split 0.1 -> 0.2|data.split 0.1 → 0.2' "$PLAIT" train recipe.yaml run.dir=whole mesh.dp=1 parallel.zero=0 $split schedule.steps=9 data.split=0.2
  refuse 2 'data.split holds out whole documents, but .*valid has only 1' "$PLAIT" train recipe.yaml run.dir=one $split data.train=valid
}

# a blend: the loss of each source, all of which are evaluated even where there are only a few batches
"$PLAIT" tokenize --tokenizer tokenizer.json --out few text-0[0-4].txt >log 2>&1 || die "tokenize"
# shellcheck disable=SC2086
expect 0 'step 8' "$PLAIT" train recipe.yaml run.dir=blend $split eval.batches=2 'data.train=[{prefix: corpus, weight: 3}, {prefix: few, weight: 1}]'

# nothing to predict: documents of one token
mkdir ones
for ((i = 0; i < 300; i++)); do printf a >"ones/$i.txt"; done
"$PLAIT" tokenize --tokenizer tokenizer.json --eot none --out ones/corpus ones/*.txt >log 2>&1 || { cat log; die "tokenize"; }
refuse 2 'data.train: no token to predict in the held-out text' "$PLAIT" train recipe.yaml run.dir=ones-run data.train=ones/corpus data.valid= data.split=0.1
finish
