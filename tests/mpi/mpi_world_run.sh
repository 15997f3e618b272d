#!/bin/bash
# tier 1 3; rooms comm api; numbers
# plait_world_run (plait/comm.h) where mpirun has started processes: they are the ranks; another number of them and a rank that fails are told in a sentence.
. "$SOURCE/tests/mpi/environment.sh" || exit 1
failures=0 log=$(mktemp)
trap 'rm -f "$log"' EXIT

# expect PROCESSES STATUS WORDS ARGUMENTS…
expect() {
  local n=$1 status=$2 words=$3 got
  shift 3
  ranks "$n" "$FOLDER/process_world_run" "$@" >"$log" 2>&1
  got=$?
  [ "$got" -eq "$status" ] && grep -q -- "$words" "$log" && return
  printf 'FAILED: %s processes, %s: status %s, without "%s"\n' "$n" "$*" "$got" "$words"
  cat "$log"
  failures=$((failures + 1))
}

expect 3 0 '^3 ranks: 6$' 3
[ "${PLAIT_TIER:-2}" -gt 1 ] || exit $failures
expect 3 0 '^3 ranks: 6$' 0
expect 2 0 'again: \(works\|.*this process has left MPI, which it cannot enter again\)' 2
expect 2 2 'plait_world_run: 3 ranks are asked for, but the launcher started 2 processes; start 3 (as in mpirun -n 3)' 3
expect 2 2 'plait_world_run: 1 rank is asked for, but the launcher started 2 processes; start 1 ' 1
expect 1 0 '^4 ranks: 10$' 4
expect 3 1 'plait: rank 2 on .*: rank 2: the disk is full' 3 fail

# the examples by hand, as processes
for way in ddp zero3 tensor_parallel gpipe; do
  losses=$(ranks 4 "$FOLDER/examples/by_hand_$way" 4 2>"$log") && [ "$losses" = "$("$FOLDER/examples/by_hand_one")" ] && continue
  printf 'FAILED: by_hand_%s with 4 processes: %s\n' "$way" "$losses"
  cat "$log"
  failures=$((failures + 1))
done
echo "$failures failures"
[ "$failures" -eq 0 ]
