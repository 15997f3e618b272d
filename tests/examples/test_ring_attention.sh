#!/bin/bash
# tier 1; rooms op; numbers
# examples/ring_attention.c: any number of ranks gets what one gets, and in zigzag order none has more to do than the mean
# and a twentieth. PLAIT: the binary, beside which the examples are.
set -u
example=$(dirname "$PLAIT")/examples/ring_attention
failures=0
[ -x "$example" ] || { echo "no $example"; exit 77; }
for ranks in 1 2 3 4 6 8; do
  output=$("$example" $ranks 2>&1) || { echo "FAILED: $ranks: $output"; failures=$((failures + 1)); continue; }
  # "4 ranks: at most 1170 of 4656 pairs a rank, largest difference from one rank below 1e-13"
  awk -v n=$ranks '$1 == n && $5 * n <= 1.05 * $7 && $5 * n >= $7 && /below 1e-13$/ {fine++} END {exit fine != 1 || NR != 1}' <<<"$output" ||
    { echo "FAILED: $ranks: $output"; failures=$((failures + 1)); }
done
output=$("$example" 5 2>&1)
[ $? -eq 2 ] && grep -q '^usage: ring_attention \[RANKS\], of which twice as many divide 96$' <<<"$output" || { echo "FAILED: 5: $output"; failures=$((failures + 1)); }
exit $((failures > 0))
