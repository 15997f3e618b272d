#!/bin/bash
# docs/parity.md is of the table that the validator reads: of its very rows, with every feature and refusal, every pair was run, and
# nothing failed.
failed=0
page=$SOURCE/docs/parity.md
table=$(PARITY_TABLE=1 "$(dirname "$PLAIT")/test_parity_matrix") || { echo "test_parity_matrix prints no table"; exit 1; }
fail() { echo "docs/parity.md $1: make parity writes it anew"; failed=1; }
while IFS=$'\t' read -r what name other why; do
  if [ "$what" = feature ]; then
    grep -qF "| $name |" "$page" || fail "lacks $name"
  else
    grep -qxF -e "- $name with $other: $why." "$page" || fail "lacks a refusal, $name with $other: $why"
  fi
done <<<"$table"
[ "$(grep -c '^feature' <<<"$table")" -ge 15 ] || { echo "the table has no features"; failed=1; }
checksum=$(cksum <<<"$table")
grep -qF "(checksum ${checksum% *})" "$page" || fail "is of another table"
if grep -q '| ? |' "$page"; then fail "has pairs that were not run"; fi
for leg in fp64 fp32 bf16 'bf16 gradients' fp16 chaos; do grep -q "^| $leg | [1-9]" "$page" || fail "lacks the leg $leg"; done
grep -q '^Mutants: ' "$page" || fail "lacks the mutants"
if grep -q '^## Failed' "$page"; then echo "docs/parity.md: layouts failed"; failed=1; fi
exit $failed
