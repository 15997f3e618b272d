#!/bin/bash
# tier 2; rooms runtime; numbers
# run.noise_scale: the gradient norm of a part of the batch is that of a batch which is that part, under every mesh, and measuring
# changes nothing of the run.
. "$SOURCE/tests/train/harness.sh" || exit 1
keys=(precision=fp64 mesh.dp=1 parallel.zero=0 batch.global=16 batch.micro=8 schedule.steps=6 eval.every=0 checkpoint.every=0)
values() { sed -n "s/^{\"step\": .*\"$2\": \([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }

# The first step's first two sequences are the same as in a run with batches of two.
expect 0 'step 6' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=plain
expect 0 'step 1' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=small batch.global=2 batch.micro=2 schedule.steps=1 schedule.warmup=0
expect 0 '^noise scale  .*measured only 6 times$' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=one run.noise_scale=1
[ "$(values one part_grad_norm | wc -l)" -eq 6 ] || die 'not 6 measurements'
close_to "$(values small grad_norm)" "$(values one part_grad_norm | head -1)" 1e-9 ||
  fail "the part's norm is $(values one part_grad_norm | head -1), that of a batch of it $(values small grad_norm)"
close_to "$(values small target_tokens)" "$(values one part_target_tokens | head -1)" 1e-9 || fail 'the target tokens of the part'
same_run plain one
grep -q '^{"summary": .*"final_noise_scale": ' one/metrics.jsonl || fail 'the summary in the metrics'

# every fourth step, and no other
expect 0 'step 6' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=some run.noise_scale=4
[ "$(sed -n 's/^{"step": \([0-9]*\), .*part_grad_norm.*/\1/p' some/metrics.jsonl)" = 4 ] || fail 'not at step 4 alone'
same_run plain some

# any mesh, uneven batches too
for mesh in 'mesh.dp=2 parallel.zero=3' 'mesh.dp=3 batch.micro=2' 'mesh.tp=2 parallel.sequence=true' 'mesh.pp=2 batch.micro=2' \
  'mesh.dp=2 mesh.pp=2 mesh.tp=2 parallel.zero=2 batch.micro=2 run.desync_check=true' 'parallel.recompute=full batch.micro=3'; do
  rm -rf other
  # shellcheck disable=SC2086 # words on purpose
  expect 0 '^noise scale ' "$PLAIT" train recipe.yaml "${keys[@]}" run.dir=other run.noise_scale=1 $mesh
  paste <(values one part_grad_norm) <(values other part_grad_norm) <(values one noise_scale) <(values other noise_scale) |
    awk '{ for (i = 1; i < 4; i += 2) { if ($i == "null" && $(i + 1) == "null") continue
        d = $i - $(i + 1); if (d < 0) d = -d; if (!(d <= 1e-6 * $i)) bad = 1 } } END { exit bad || NR != 6 }' ||
    fail "$mesh: not what one rank measures"
done

# with a loss scale, which a trial leaves alone
half=(precision=fp16 loss_scale.initial=1024 loss_scale.growth_interval=3)
expect 0 'step 6' "$PLAIT" train recipe.yaml "${keys[@]}" "${half[@]}" run.dir=half
expect 0 'step 6' "$PLAIT" train recipe.yaml "${keys[@]}" "${half[@]}" run.dir=half-measured run.noise_scale=1
same_run half half-measured
[ "$(values half loss_scale)" = "$(values half-measured loss_scale)" ] || fail 'the loss scale moves'
expect 0 'step 6' "$PLAIT" train recipe.yaml "${keys[@]}" precision=bf16 optimizer.name=lion run.dir=lion
expect 0 'step 6' "$PLAIT" train recipe.yaml "${keys[@]}" precision=bf16 optimizer.name=lion run.dir=lion-measured run.noise_scale=2
same_run lion lion-measured

refuse 2 'run.noise_scale is 5, but parallel.update is in_backward' "$PLAIT" recipe recipe.yaml run.noise_scale=5 parallel.update=in_backward \
  optimizer.clip=0 run.non_finite=stop batch.global=4 batch.micro=2
refuse 2 'run.noise_scale is 5, but batch.global is 1' "$PLAIT" recipe recipe.yaml mesh.dp=1 run.noise_scale=5 batch.global=1
finish
