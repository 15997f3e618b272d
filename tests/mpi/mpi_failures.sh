#!/bin/bash
# tier 3; rooms comm
# Calls that do not match, a rank that gives up or leaves early, a bad argument: every rank is told why, one sentence names the rank and
# its host, and the job ends with a status that is not 0.
. "$SOURCE/tests/mpi/environment.sh" || exit 1
failures=0 work=$(mktemp -d) || exit 1
log=$work/log
trap 'rm -rf "$work"' EXIT

# fails CASE STATUS WORDS…: each of the words must be in what is printed
fails() {
  local name=$1 status=$2 got
  shift 2
  mkdir "$work/$name" # where the ranks meet when they have printed what they were told
  ranks 3 "$FOLDER/process_failures" "$name" "$work/$name" >"$log" 2>&1
  got=$?
  if [ "$got" -ne "$status" ]; then
    echo "FAILED: $name ends with $got, not $status"
    failures=1
    cat "$log"
  fi
  for words in "$@" "plait: rank [0-2] on $(hostname | cut -c1-62): "; do
    grep -q -- "$words" "$log" && continue
    echo "FAILED: $name does not say: $words"
    failures=1
    cat "$log"
  done
}

fails kind 1 'rank [02] calls all_reduce sum of 5 fp32\|rank 1 calls all_gather of 5 fp32' 'call 2 of the communicator'
fails count 1 'buffer 1 has 2000[01] and 2000[01] elements'
fails ragged 1 '2 elements from rank 1 for rank 0, which expects 3'
fails distance 1 'rank [012] calls shift of 5 fp32 by [12] while rank [012] calls shift of 5 fp32 by [12]'
fails message 1 'rank 1 calls recv of 7 fp32 from 0 while rank 0 calls send of 8 fp32 to 1'
fails lists 1 'ranks \[0 1\] while rank 1 creates one of ranks \[1 0\]'
fails aborted 1 'plait: rank 2 on .*: the disk is full'
fails argument 2 'plait: rank 0 on .*: rank 0: recv names a rank that is not in the communicator'
left='rank 1 has left a communicator of 3 ranks (its handle was destroyed), in which rank'
fails left-collective 1 "$left [02] still calls all_reduce sum of 5 fp32 (call 2 of the communicator)" 'rank 1 returns -.*: rank 1 has left'
fails left-recv 1 "$left 0 still calls recv of 5 fp32 from 1 (message 1 between them)" 'rank 2 returns -.*: rank 1 has left'
fails left-send 1 "$left 0 still calls send of 5 fp32 to 1 (message 1 between them)" 'rank 2 returns -.*: rank 1 has left'
fails world-barrier 1 "$left [02] still calls barrier (call 1 of the communicator)"
fails world-create 1 'rank 0 creates a communicator with rank 1, which has destroyed all its handles and cannot join'
fails thread 1 'plait: rank 1 on .*: a communication thread cannot be started: ' 'rank [02] returns -1: rank 1 on .*: a communication thread cannot be started'
exit $failures
