#!/bin/bash
# tier 3; rooms comm runtime; numbers
# The comm matrix, streams, messages, communicators, large calls, reserved memory and heartbeats over MPI, with 1, 2 and 4
# processes; and that training steps allocate nothing.
. "$SOURCE/tests/mpi/environment.sh" || exit 1
failures=0
for n in 1 2 4; do
  for program in process_comm process_comm_calls process_departure process_large process_memory process_heartbeats process_chains test_steady_memory; do
    if ranks "$n" "$FOLDER/$program" >"$program.$n.log" 2>&1; then
      echo "$program with $n: passed"
    else
      echo "$program with $n: FAILED"
      tail -40 "$program.$n.log"
      failures=1
    fi
    rm -f "$program.$n.log"
  done
done
for n in 3 5; do
  ranks "$n" "$FOLDER/process_chains" || failures=1
done
exit $failures
