#!/bin/bash
# Lines of C have at most 120 columns, no tabs, and no spaces at their ends. scripts/format breaks those that are too long.
cd "$SOURCE" || exit 1
export LC_ALL=C.UTF-8
files=$(find src include tests bench examples -name '*.[ch]' -o -name '*.def')
[ "$(wc -w <<<"$files")" -gt 300 ] || { echo "the test looks in the wrong place"; exit 1; }
# shellcheck disable=SC2086 # words on purpose
found=$(grep -nE "^.{121,}|$(printf '\t')| +\$" $files) || exit 0
echo "$found" | cut -c1-150 | head -40
echo "$(wc -l <<<"$found") lines are longer than 120 columns, or have tabs or spaces at their ends; scripts/format breaks long ones"
exit 1
