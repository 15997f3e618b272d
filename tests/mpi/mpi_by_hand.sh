#!/bin/bash
# tier 3; rooms comm api; numbers
# Half by hand (plait/graph.h) with ranks as processes: one rank's losses and parameters; a mesh of another size is refused.
. "$SOURCE/tests/mpi/environment.sh" || exit 1
failures=0
for mesh in "dp=2" "pp=2" "dp=2 tp=2" "pp=2 tp=2"; do
  n=2
  case $mesh in *" "*) n=4 ;; esac
  output=$(ranks $n "$FOLDER/process_by_hand" "$mesh" 2>&1) && grep -q agree <<<"$output" && continue
  printf 'FAILED: %s\n%s\n' "$mesh" "$output"
  failures=$((failures + 1))
done
output=$(ranks 2 "$FOLDER/process_by_hand" "dp=4" 2>&1)
grep -q 'the mesh has 4 ranks, but comm has 2' <<<"$output" || { printf 'FAILED: a mesh of another size: %s\n' "$output"; failures=$((failures + 1)); }
echo "$failures failures"
[ "$failures" -eq 0 ]
