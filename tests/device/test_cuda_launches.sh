#!/bin/bash
# tier 2; rooms device op; numbers
# needs emulated_cuda
# Neighbouring updates, sums of squares and casts are one launch, with the same numbers: of a model of twelve layers, which has more
# gradients than a sum takes terms at once.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CUDA_DRIVER=${PLAIT%/*}/libemulated_cuda.so
unset PLAIT_CUDA_LIBRARIES
sed 's/"vocab_size": [0-9]*/"vocab_size": 300/; s/"n_embd": [0-9]*/"n_embd": 96/; s/"n_positions": [0-9]*/"n_positions": 32/; s/"n_head": 12/"n_head": 2/' \
  "$SOURCE/models/gpt-small.json" >deep.json
keys=(model.config=deep.json mesh.dp=1 parallel.zero=0 batch.global=2 batch.micro=2 schedule.steps=3 schedule.warmup=1 optimizer.lr=1e-4 checkpoint.every=0 eval.every=0)
launches() { awk -v kernel="^$1(_many)?_" '$2 ~ kernel { n += $1 } END { print n + 0 }' "$2"; }
for precision in fp32 bf16; do
  "$PLAIT" train recipe.yaml "${keys[@]}" precision=$precision run.backend=cpu run.dir=cpu.$precision >log 2>&1 || { tail -5 log; fail "$precision on the CPU"; }
  for waits in 0 1; do # PLAIT_CUDA_SYNC=1: each by itself
    PLAIT_CUDA_SYNC=$waits PLAIT_EMULATED_COUNTS=counts.$precision.$waits expect 0 'step +3/3' \
      "$PLAIT" train recipe.yaml "${keys[@]}" precision=$precision run.backend=cuda run.dir=$precision.$waits
    grep 'run on the host' output && fail "$precision: ops run on the host"
  done
  diff <(numbers $precision.0) <(numbers $precision.1) || fail "$precision: launches that became one have other bits"
  most=1e-5
  [ $precision = fp32 ] || most=3e-2
  paste <(numbers cpu.$precision) <(numbers $precision.0) | awk -v most=$most 'function off(a, b) { d = a - b; return !((d < 0 ? -d : d) <= most * a) }
    off($1, $3) || off($2, $4) { bad = 1 } END { exit bad || NR != 3 }' || fail "$precision: $(paste <(numbers cpu.$precision) <(numbers $precision.0))"
  for kernel in adamw sum_squares sum; do
    by_one=$(launches $kernel counts.$precision.1) together=$(launches $kernel counts.$precision.0)
    [ "$by_one" -gt 0 ] && [ "$by_one" -ge $((6 * together)) ] || fail "$precision: $together launches of $kernel, and $by_one where each is by itself"
  done
done
finish
