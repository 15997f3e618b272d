#!/bin/bash
# tier 1; rooms recipe; numbers
# How often a run reads its text: plan, train and the summary say it, for one corpus, for several by their weights, and without what
# data.split holds out. And that ranks outnumber cores.
. "$SOURCE/tests/train/harness.sh" || exit 1
count() { echo $(($(stat -c %s "$1.bin") / 2)); } # tokens of a corpus

# passes STEPS CORPUS SHARE: over it, where it is that part of the batches, of 8 sequences of 32 tokens
passes() { awk -v t="$(count "$2")" -v n="$1" -v s="$3" 'BEGIN { p = n * 256 * s / t; printf((p >= 0.95 ? "%.1f" : "%.2g"), p) }'; }

"$PLAIT" tokenize --tokenizer tokenizer.json --out short --force text-00.txt text-01.txt >tokenized 2>&1 || fail "$(cat tokenized)"
size='batch.global=8 data.seq_len=32 eval.every=0 checkpoint.every=0 schedule.warmup=0'
# shellcheck disable=SC2086 # words on purpose
{
  expect 0 "^data       3000 steps of 256 tokens are $(passes 3000 corpus 1) passes over .* tokens$" "$PLAIT" plan recipe.yaml $size schedule.steps=3000
  expect 0 "^data: 4 steps of 256 tokens are $(passes 4 corpus 1) passes over .* tokens$" "$PLAIT" train recipe.yaml $size schedule.steps=4
  grep -q "^data         $(passes 4 corpus 1) passes over " output || fail "the summary: $(grep ^data output)"
  # a resumed run counts all of its steps
  expect 0 "^data: 6 steps of 256 tokens are $(passes 6 corpus 1) passes over " "$PLAIT" train recipe.yaml $size schedule.steps=6
  grep -q "^data         $(passes 6 corpus 1) passes over " output || fail "the summary of a resumed run: $(grep ^data output)"
  # two corpora: the range, by their weights
  both="data.train=[{prefix: corpus, weight: 3}, {prefix: short, weight: 1}]"
  expect 0 "^data       3000 steps of 256 tokens are $(passes 3000 corpus 0.75) to $(passes 3000 short 0.25) passes over 2 corpora of " \
    "$PLAIT" plan recipe.yaml $size schedule.steps=3000 "$both"
  expect 0 "^data       1 step of 256 tokens " "$PLAIT" plan recipe.yaml $size schedule.steps=1
  # text that is held out is not read, and text that is not there is not counted
  expect 0 "^data " "$PLAIT" plan recipe.yaml $size schedule.steps=3000 data.valid= data.split=0.4
  grep -q "are $(passes 3000 corpus 1) passes" output && fail "held-out text counts: $(grep ^data output)"
  expect 0 '^step ' "$PLAIT" plan recipe.yaml $size data.train=nowhere
  grep -q '^data ' output && fail "passes over text that is not there: $(grep ^data output)"
}
# more ranks than cores are said, as many are not
cores=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{ n += NF > 1 ? $2 - $1 + 1 : 1 } END { print n }')
core=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
expect 0 '^note: 2 ranks share 1 core of this machine' taskset -c "$core" "$PLAIT" train recipe.yaml batch.global=8 eval.every=0 checkpoint.every=0 schedule.warmup=0 schedule.steps=1 run.dir=crowded
[ "$cores" -lt 2 ] || expect 0 '^step' "$PLAIT" train recipe.yaml batch.global=8 eval.every=0 checkpoint.every=0 schedule.warmup=0 schedule.steps=1 run.dir=enough
grep -q 'ranks share' output && [ "$cores" -ge 2 ] && fail 'two ranks on two cores are told to share'
finish
