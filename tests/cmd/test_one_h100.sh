#!/bin/bash
# tier 1; rooms machine
# A step of two models on one H100: every part that plait simulate predicts is within 10 % of what was measured there, the step within
# 5 %; docs/foresight.md shows the same table.
. "$SOURCE/tests/script.sh" || exit 1
"$SOURCE/scripts/one-h100" "$PLAIT" >table || die 'scripts/one-h100 failed'
rows=0
while IFS='|' read -r _ name parts; do
  case $name in *124M* | *'Llama 1B'*) ;; *) continue ;; esac
  rows=$((rows + 1))
  grep -qxF "|$name|$parts" "$SOURCE/docs/foresight.md" || fail "docs/foresight.md has another row than: |$name|$parts"
  mapfile -t errors < <(printf '%s' "$parts" | grep -oE '[-+][0-9.]+ %' | sed 's/[+ %]//g')
  [ ${#errors[@]} -eq 5 ] || die "not five parts: $parts"
  for i in 0 1 2 3 4; do
    awk -v e="${errors[i]}" -v most=$((i < 4 ? 10 : 5)) 'BEGIN { exit !(e <= most && e >= -most) }' || fail "part $((i + 1)) of$name: ${errors[i]} %"
  done
done <table
[ $rows -eq 2 ] || fail "of $rows models"
finish
