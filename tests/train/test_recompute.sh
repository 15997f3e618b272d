#!/bin/bash
# tier 2; rooms compile recipe machine; numbers
# What runs again is chosen within a budget: the plan says it, a run does it and has the bits of one that keeps
# everything, and no more memory than it may. Lists are read, printed and refused.
. "$SOURCE/tests/train/harness.sh" || exit 1

sed 's/"n_embd": 32/"n_embd": 64/; s/"n_layer": 2/"n_layer": 6/' model.json >deep.json
sed 's/model.json/deep.json/; s/global: 8, micro: 2/global: 16, micro: 16/' recipe.yaml >deep.yaml
common=(schedule.steps=4 schedule.warmup=1 checkpoint.every=4 eval.every=0 eval.batches=1)

# total KEY=VALUE…: bytes of the rank that takes the most
total() {
  "$PLAIT" plan --bytes deep.yaml "${common[@]}" "$@" >plan || die "plait plan $*"
  awk '/^= total/ { for (i = 3; i <= NF; i++) if ($i > most) most = $i } END { printf "%.0f\n", most }' plan
}

kept=$(total) full=$(total parallel.recompute=full)
[ "$full" -lt "$kept" ] || die "recompute full takes $full bytes, none $kept"
for part in 0 1 2 3; do
  budget=$((full + (kept - full) * part / 3))
  used=$(total parallel.recompute=auto parallel.memory=$budget)
  [ "$used" -le "$budget" ] || fail "a budget of $budget bytes is exceeded: $used"
  grep -qE '^  chosen +[0-9]+ +[0-9.]+ ×   \[' plan || fail "the plan does not say what it chose: $(cat plan)"
done
grep -q 'nothing has to be computed again' plan || fail "all fits, and is computed again"

expect 0 'step 4' "$PLAIT" train deep.yaml "${common[@]}" run.dir=kept
expect 0 'recompute auto: \[.*(full|selective|\()' "$PLAIT" train deep.yaml "${common[@]}" run.dir=chosen \
  parallel.recompute=auto parallel.memory=$(((full + kept) / 2))
same_run kept chosen
expect 0 'step 4' "$PLAIT" train deep.yaml "${common[@]}" run.dir=listed 'parallel.recompute=[((keep x 2), selective), full, keep]'
same_run kept listed
grep -q 'recompute: \[((keep x 2), selective), full, keep\]$' listed/recipe.yaml || fail "the list is not as it was: $(grep recompute listed/recipe.yaml)"

refuse 2 'parallel.memory is 1MB, but a rank needs at least [0-9]+ bytes .*, of which .* with nothing recomputed it needs ' \
  "$PLAIT" plan deep.yaml parallel.recompute=auto parallel.memory=1MB
least=$(sed -E 's/.*needs at least ([0-9]+) bytes.*/\1/' output)
expect 0 '^= total' "$PLAIT" plan deep.yaml parallel.recompute=auto "parallel.memory=$least"
refuse 2 'parallel.recompute: the list has 7 blocks, but the model has 6; give 6, or fewer' "$PLAIT" plan deep.yaml \
  'parallel.recompute=[full x 7]'
refuse 2 'parallel.memory is not given' "$PLAIT" train deep.yaml parallel.recompute=auto
expect 0 'again.again.' "$PLAIT" explain deep.yaml --after recompute 'parallel.recompute=[((keep x 2), selective), full, keep]'
finish
