#!/bin/bash
# docs/parity.md is of the table that the validator reads: every feature and every refusal stands there, and nothing failed.
failed=0
page=$SOURCE/docs/parity.md
while IFS= read -r name; do
  grep -qF "| $name |" "$page" || { echo "docs/parity.md lacks $name: make parity writes it anew"; failed=1; }
done < <(sed -n 's/^LAYOUT_FEATURE([A-Z0-9_]*, "\([^"]*\)".*/\1/p' "$SOURCE/src/train/layouts.def")
while IFS= read -r why; do
  grep -qF "$why" "$page" || { echo "docs/parity.md lacks a refusal: $why"; failed=1; }
done < <(sed -n 's/^LAYOUT_REFUSED(.*"\(.*\)").*/\1/p' "$SOURCE/src/train/layouts.def")
[ "$(sed -n 's/^LAYOUT_FEATURE(.*/x/p' "$SOURCE/src/train/layouts.def" | wc -l)" -ge 15 ] || { echo "the table has no features"; failed=1; }
if grep -q '^## Failed' "$page"; then echo "docs/parity.md: layouts failed"; failed=1; fi
exit $failed
