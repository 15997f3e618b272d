#!/bin/bash
# tier 2; rooms data recipe; numbers
# batch.balance: shares of the batch that change between steps. Losses, norms and evaluations are one rank's; metrics have the shares, and
# from them a run repeats to the bit; a run resumes with the shares that it had; what cannot be is refused.
. "$SOURCE/tests/train/harness.sh" || exit 1
limit=$((200 * patience)) far=1e-10
keys=(precision=fp64 schedule.warmup=2 schedule.steps=12 checkpoint.every=4 eval.every=3 batch.global=8 run.threads=1)
measured=(batch.balance=measured batch.most=1.75 batch.replay=log.jsonl)
shares() { sed -n 's/.*\("step": [0-9]*, "shares": .*\)}/\1/p' "$1"; }

cat >log.jsonl <<'END'
{"step": 1, "shares": [4, 4]}
{"step": 1, "loss": 3.5}
{"step": 3, "shares": [7, 1]}
{"step": 4, "shares": [1, 7]}
{"step": 8, "shares": [3, 5]}
{"step": 11, "shares": [5, 3]}
END

# run NAME KEYS…: trains to the end, with the losses, norms and evaluations of the run "one", and with the shares of the log
run() {
  local name=$1
  shift
  expect 0 'step 12' "$PLAIT" train recipe.yaml run.dir="$name" "${keys[@]}" "$@"
  like_one "$name" 16
  diff <(shares log.jsonl) <(shares "$name/metrics.jsonl") || fail "$name: other shares"
}
expect 0 'step 12' "$PLAIT" train recipe.yaml run.dir=one "${keys[@]}" mesh.dp=1 parallel.zero=0
run two "${measured[@]}"
run zero3 "${measured[@]}" parallel.zero=3 batch.micro=1
run pipeline "${measured[@]}" mesh.pp=2 parallel.zero=0 batch.micro=1 run.desync_check=true
run tensor "${measured[@]}" mesh.tp=2 parallel.zero=2
PLAIT_CHAOS=3 run chaos "${measured[@]}" batch.micro=8 parallel.zero=3 data.prefetch=1

# Resumed between two changes without the log: with the shares of its own metrics.
cp -r two alone
rm -r alone/checkpoints/step-12
expect 0 'resuming from' "$PLAIT" train recipe.yaml run.dir=alone "${keys[@]}" batch.balance=measured batch.most=1.75
diff <(shares log.jsonl | head -4) <(shares alone/metrics.jsonl | head -4) || fail "resumed with other shares: $(shares alone/metrics.jsonl)"
like_one alone 16

# What is measured repeats to the bit, whatever it was.
expect 0 'step 32' "$PLAIT" train recipe.yaml run.dir=live "${keys[@]}" schedule.steps=32 batch.balance=measured batch.micro=1
shares live/metrics.jsonl | grep -q '"step": 1, "shares": \[4, 4\]' || fail "no shares in metrics"
expect 0 'step 32' "$PLAIT" train recipe.yaml run.dir=again "${keys[@]}" schedule.steps=32 batch.balance=measured batch.micro=1 batch.replay=live/metrics.jsonl
same_run live again

# Weights that are given.
expect 0 'step 12' "$PLAIT" train recipe.yaml run.dir=weighed "${keys[@]}" 'batch.balance=[5,3]'
like_one weighed 16
expect 0 'batch.balance has no effect' "$PLAIT" train recipe.yaml run.dir=single "${keys[@]}" mesh.dp=1 parallel.zero=0 'batch.balance=[5,3]'

refuse 2 'batch.balance has 3 weights, but there are 2 data ranks' "$PLAIT" plan recipe.yaml 'batch.balance=[1,1,1]'
refuse 2 'batch.balance must be even, measured, or a list' "$PLAIT" plan recipe.yaml batch.balance=odd
refuse 2 'batch.most is 2, but batch.balance is even' "$PLAIT" plan recipe.yaml batch.most=2
refuse 2 'but batch.balance is even' "$PLAIT" plan recipe.yaml batch.replay=log.jsonl
refuse 2 'shares of step 3 in .* are of 7 sequences for a data rank, but batch.most allows 6' "$PLAIT" train recipe.yaml run.dir=no "${keys[@]}" batch.balance=measured batch.replay=log.jsonl
refuse 2 'shares of step 1 in .* are of 2 data ranks, but there are 3' "$PLAIT" train recipe.yaml run.dir=no "${keys[@]}" "${measured[@]}" mesh.dp=3
refuse 2 'has no shares of step 1' "$PLAIT" train recipe.yaml run.dir=no "${keys[@]}" batch.balance=measured batch.replay=one/metrics.jsonl
finish
