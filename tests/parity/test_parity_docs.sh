#!/bin/bash
# docs/parity.md is of the table that the validator reads: of its very rows, with every feature and refusal, every pair was run, and
# nothing failed.
failed=0
page=$SOURCE/docs/parity.md table=$SOURCE/src/train/layouts.def
fail() { echo "docs/parity.md $1: make parity writes it anew"; failed=1; }
while IFS= read -r name; do
  grep -qF "| $name |" "$page" || fail "lacks $name"
done < <(sed -n 's/^LAYOUT_FEATURE([A-Z0-9_]*, "\([^"]*\)".*/\1/p' "$table")
while IFS= read -r why; do
  grep -qF "$why" "$page" || fail "lacks a refusal, $why"
done < <(sed -n 's/^LAYOUT_REFUSED(.*"\(.*\)").*/\1/p' "$table")
[ "$(sed -n 's/^LAYOUT_FEATURE(.*/x/p' "$table" | wc -l)" -ge 15 ] || { echo "the table has no features"; failed=1; }
checksum=$(grep '^LAYOUT_' "$table" | cksum)
grep -qF "(checksum ${checksum% *})" "$page" || fail "is of another table"
if grep -q '| ? |' "$page"; then fail "has pairs that were not run"; fi
for leg in fp64 fp32 bf16 'bf16 gradients' fp16 chaos; do grep -q "^| $leg | [1-9]" "$page" || fail "lacks the leg $leg"; done
grep -q '^Mutants: ' "$page" || fail "lacks the mutants"
if grep -q '^## Failed' "$page"; then echo "docs/parity.md: layouts failed"; failed=1; fi
exit $failed
