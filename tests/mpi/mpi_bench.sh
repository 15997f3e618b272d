#!/bin/bash
# tier 3; rooms comm cmd
# plait bench comm as processes: every collective beside the plain MPI call; what MPI cannot add has no figure.
. "$SOURCE/tests/mpi/environment.sh" || exit 1
failures=0 log=$(mktemp)
trap 'rm -f "$log"' EXIT
fail() {
  printf 'FAILED: %s\n' "$*"
  cat "$log"
  failures=1
}
for n in 2 3; do
  ranks $n "$PLAIT" bench comm --sizes 24,48K --repeat 2 >"$log" 2>&1 || fail "$n processes"
  [ "$(awk 'NF == 7 && $1 != "collective" && $4 > 0 && $6 > 0' "$log" | wc -l)" -eq 24 ] || fail "$n processes: 12 collectives of 2 sizes"
  [ "$(grep -c '^barrier ' "$log")" -eq 1 ] || fail "$n processes: barrier"
done
ranks 2 "$PLAIT" bench comm --dtype bf16 --sizes 48K --repeat 2 >"$log" 2>&1 || fail "bf16"
[ "$(awk '$1 ~ /reduce/ && $6 == "-"' "$log" | wc -l)" -eq 3 ] || fail "bf16: MPI does not add it"
for try in 1 2 3 4 5; do # rank 0 says it before the other rank's exit makes mpirun kill it
  ranks 2 "$PLAIT" bench comm --ranks 3 --repeat 1 >"$log" 2>&1
  [ $? -eq 2 ] && [ "$(grep -c '^plait' "$log")" -eq 1 ] || fail "--ranks 3 of 2 processes, try $try"
done
exit $failures
