#!/bin/bash
# tier 3; rooms comm
# Failures over net are errors of every rank that is left: calls that do not match, a rank that gives up, leaves early, is killed or
# stopped. Each names who failed first, in time, and a smaller world follows in the same processes. What cannot be joined is refused.
. "$SOURCE/tests/net/environment.sh" || exit 1
failures=0 host=$(hostname | cut -c1-62)
cd "$logs" || exit 1
rank_limit=$((120 * ${PLAIT_PATIENCE:-1}))

fail() {
  printf 'FAILED: %s\n' "$*"
  head -50 log
  failures=1
}
say() { grep -q -- "$1" log || fail "$name does not say: $1"; }

# fails CASE STATUS RANK WORDS…: every rank ends with the status and names the rank; each of the words is in what is printed
fails() {
  name=$1
  local status=$2 rank=$3
  shift 3
  start_ranks 3 "$FOLDER/process_failures" "$name"
  for pid in "${pids[@]}"; do
    wait "$pid"
    got=$?
    [ $got -eq "$status" ] || failures=1 wrong="$wrong $name:$got"
  done
  cat 0 1 2 >log
  [ "$(grep -c "^rank [0-2]: rank $rank failed" log)" -eq 3 ] || fail "$name: not all say that rank $rank failed"
  for words in "$@"; do say "$words"; done
}
wrong=''
fails kind 1 -1 'rank [02] calls all_reduce sum of 5 fp32\|rank 1 calls all_gather of 5 fp32' 'call 2 of the communicator'
fails count 1 -1 'buffer 1 has 2000[01] and 2000[01] elements'
fails message 1 -1 'rank 1 calls recv of 7 fp32 from 0 while rank 0 calls send of 8 fp32 to 1'
fails lists 1 -1 'ranks \[0 1\] while rank 1 creates one of ranks \[1 0\]'
fails aborted 1 2 'rank 0 returns -.*: the disk is full' 'rank 1 returns -.*: the disk is full'
fails argument 2 0 'rank 2 returns -.*: rank 0: recv names a rank that is not in the communicator'
left='rank 1 has left a communicator of 3 ranks (its handle was destroyed), in which rank'
fails left-collective 1 1 "$left [02] still calls all_reduce sum of 5 fp32 (call 2 of the communicator)"
fails left-recv 1 1 "$left 0 still calls recv of 5 fp32 from 1 (message 1 between them)"
fails left-send 1 1 "$left 0 still calls send of 5 fp32 to 1 (message 1 between them)"
[ -z "$wrong" ] || echo "FAILED: other statuses:$wrong"

name='a rank function that fails'
ranks 3 "$FOLDER/process_world_run" 3 fail >log 2>&1
[ $? -eq 1 ] && [ "$(grep -c '^rank 2: the disk is full' log)" -eq 3 ] || fail "$name"
name='a second world'
ranks 3 "$FOLDER/process_world_run" 3 >log 2>&1 && [ "$(grep -c '^again: works' log)" -eq 3 ] || fail "$name"

# ---- ranks that die ----

# survive HOW VICTIM RANKS
survive() {
  name="$1, rank $2 of $3, PLAIT_WIRE=$PLAIT_WIRE"
  start_ranks "$3" "$FOLDER/process_survivors" "$1" "$2"
  wait_ranks 2>/dev/null
  cat [0-9] [0-9].err >log 2>/dev/null
  [ "$(grep -c '^rank [0-9]: done' log)" -eq $(($3 - 1)) ] || fail "$name"
  say "rank $2 on $host has died: its connection has ended; "
}
for PLAIT_WIRE in auto sockets tcp; do
  export PLAIT_WIRE
  for victim in 0 1 2; do
    for how in sum stream chain send create; do survive $how $victim 3; done
  done
  survive computing 1 3
  survive sum 3 4
done 2>/dev/null
unset PLAIT_WIRE

# ---- ranks that are stopped: found by their silence; when they go on they learn that nobody waits for them any more ----

silence=$((2 * ${PLAIT_PATIENCE:-1}))
for victim in 0 1; do
  name="a stopped rank $victim"
  rm -f when
  start_ranks 3 "$FOLDER/process_survivors" sum $victim $silence
  for ((i = 0; i < 600 * ${PLAIT_PATIENCE:-1}; i++)); do
    [ "$(cat [0-9] | grep -c '^rank [0-9]: done')" -eq 2 ] && break
    sleep 0.1
  done
  cat [0-9] [0-9].err >log
  [ "$(grep -c '^rank [0-9]: done' log)" -eq 2 ] || fail "$name"
  say "rank $victim on $host is silent: nothing has come of it for $silence s (run.silence); its last collective, all_reduce"
  pkill -CONT -P "${pids[$victim]}" # timeout's child
  wait_ranks
  cat [0-9] [0-9].err >log
  grep -q "^rank $victim: done" $victim || fail "$name, woken"
done

# ---- what cannot be joined ----

# refused RANK WORDS VARIABLES…
refused() {
  name="$2" rank=$1
  local words=$2
  shift 2
  port=$((port + 20))
  env MASTER_PORT=$port RANK="$rank" WORLD_SIZE=2 "$@" timeout $((60 * ${PLAIT_PATIENCE:-1})) "$FOLDER/process_world_run" 0 >log 2>&1
  [ $? -eq 2 ] || fail "refused: $*"
  say "$words"
}
refused 0 'would listen at .*, where others could reach it, and what ranks say is neither encrypted' MASTER_ADDR=192.0.2.7
refused 1 'no.such.host has no address: ' MASTER_ADDR=no.such.host RES_OPTIONS='timeout:1 attempts:1' # no server of names may answer
refused 0 'MASTER_ADDR is "\[::1\]:5"; give the port in MASTER_PORT, as in MASTER_ADDR=::1 MASTER_PORT=5' MASTER_ADDR='[::1]:5'
refused 0 'MASTER_ADDR is "\[::1"; it must be the name or the address of the machine of rank 0' MASTER_ADDR='[::1'
refused 0 'MASTER_PORT is "many"; it must be a number from 1 to 65000' MASTER_PORT=many
refused 0 'two launchers disagree: OMPI_COMM_WORLD_SIZE says rank 0 of 3, but RANK and WORLD_SIZE say rank 0 of 2' OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0

# The port is another's, who says nothing (as torchrun's store does), and the next one another run's: rank 0 takes the third.
name='a taken port'
port=$((port + 20))
RANK=0 WORLD_SIZE=3 MASTER_PORT=$((port + 1)) "$FOLDER/process_carriers" >0 2>&1 &
silent=$!
listens() { grep -q ":$(printf '%04X' "$1") 00000000:0000 0A" /proc/net/tcp; }
for ((i = 0; i < 600 * ${PLAIT_PATIENCE:-1}; i++)); do listens $((port + 1)) && break; sleep 0.1; done
kill -STOP $silent
RANK=0 WORLD_SIZE=2 PLAIT_RUN_ID=another MASTER_PORT=$((port + 1)) "$FOLDER/process_carriers" >1 2>&1 &
other=$!
for ((i = 0; i < 600 * ${PLAIT_PATIENCE:-1}; i++)); do listens $((port + 2)) && break; sleep 0.1; done
ranks 2 "$FOLDER/process_world_run" 2 >log 2>&1 || fail "$name"
say '^2 ranks: 3$'
{ kill -KILL $silent $other; wait $silent $other; } 2>/dev/null
name='two of one rank'
port=$((port + 20))
RANK=0 WORLD_SIZE=3 MASTER_PORT=$port timeout $((100 * ${PLAIT_PATIENCE:-1})) "$FOLDER/process_carriers" >0 2>&1 &
first=$!
RANK=1 WORLD_SIZE=3 MASTER_PORT=$port timeout $((100 * ${PLAIT_PATIENCE:-1})) "$FOLDER/process_carriers" >1 2>&1 &
second=$!
RANK=1 WORLD_SIZE=3 MASTER_PORT=$port timeout $((100 * ${PLAIT_PATIENCE:-1})) "$FOLDER/process_carriers" >2 2>&1 &
third=$!
for ((i = 0; i < 600 * ${PLAIT_PATIENCE:-1}; i++)); do
  cat 1 2 >log
  grep -q 'another process is rank 1 of this run already' log && break
  sleep 0.1
done
say 'another process is rank 1 of this run already'
{ kill $first $second $third; wait; } 2>/dev/null
exit $failures
