#!/bin/bash
# tier 1; rooms comm
# Where all ranks share this machine's memory no worker of plait launch listens at a TCP port while it trains, and the workers have no
# connections with each other but the watch's. With run.wire: ucx and TCP for UCX they do: so listening is seen here. Processes of one
# host name that do not share their memory or their files, as in containers, find sockets by themselves.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
unset UCX_TLS UCX_NET_DEVICES PLAIT_WIRE

# sockets PROCESS…: "pid state local remote" of the sockets of TCP that these processes have open; the state 0A listens, 01 is connected
sockets() {
  local pid table
  for pid in "$@"; do
    for table in tcp tcp6; do
      [ -e "/proc/$pid/net/$table" ] || continue # a kernel without IPv6
      awk -v pid="$pid" 'NR == FNR { own[$0]; next } FNR > 1 && "socket:[" $10 "]" in own { print pid, $4, $2, $3 }' \
        <(readlink "/proc/$pid/fd/"*) "/proc/$pid/net/$table" || return 1
    done
  done
}

# look NAME KEYS…: trains on two workers, which are stopped after the first step; $work/NAME has their sockets
look() {
  local name=$1 pid
  shift
  "$PLAIT" launch --nproc-per-node 2 recipe.yaml schedule.steps=100000 checkpoint.every=0 eval.every=0 run.dir="run.$name" "$@" >log 2>&1 &
  running=$!
  trains() { grep -q '"loss"' "run.$name/metrics.jsonl" || ! kill -0 "$running"; }
  wait_for trains
  mapfile -t pids < <(pgrep -P "$running" | tail -2) # before them, what watches the supervisor
  [ ${#pids[@]} -eq 2 ] || { cat log; die "$name: not two workers: ${pids[*]}"; }
  for pid in "${pids[@]}"; do halt "$pid" || { cat log; die "$name: a worker has ended"; }; done
  sockets "${pids[@]}" >"$name" || die "$name: no list of sockets"
  kill -KILL "$running" # its workers die with it
  wait "$running" 2>/dev/null
  running=''
}
count() { awk -v pid="$1" -v state="$2" '$1 == pid && $2 == state { n++ } END { print n + 0 }' "$3"; }

look shared
for pid in "${pids[@]}"; do
  [ "$(count "$pid" 0A shared)" -eq 0 ] || fail "worker $pid listens: $(cat shared)"
done
# The watch: one connection, which both have an end of.
[ "$(awk '$2 == "01" { print $3, $4; print $4, $3 }' shared | sort | uniq -d | wc -l)" -eq 2 ] && [ "$(grep -c ' 01 ' shared)" -eq 2 ] ||
  fail "connections of the workers: $(cat shared)"
echo "on one machine: $(grep -c ' 0A ' shared) ports, $(grep -c ' 01 ' shared) ends of connections"

look sockets run.wire=sockets
for pid in "${pids[@]}"; do
  [ "$(count "$pid" 0A sockets)" -eq 0 ] || fail "worker $pid listens at TCP for sockets of this machine: $(cat sockets)"
done

if "$PLAIT" doctor | grep -q '^--  UCX  *plait was built without it'; then
  echo "not tried, as there is no UCX: its ports"
else
UCX_TLS=tcp,self look tcp run.wire=ucx
for pid in "${pids[@]}"; do
  [ "$(count "$pid" 0A tcp)" -ge 1 ] || fail "worker $pid does not listen with UCX_TLS=tcp,self: $(cat tcp)"
done
echo "with UCX_TLS=tcp,self: $(grep -c ' 0A ' tcp) ports, $(grep -c ' 01 ' tcp) ends of connections"
fi

# Ranks with one host name that have numbers of processes, or System V segments, of their own, as containers have
port=$((20000 + $$ % 8000))
for own in "--pid --fork --mount-proc" --ipc; do
  # shellcheck disable=SC2086 # words on purpose
  unshare $own true 2>/dev/null || { echo "not tried, as only root may: unshare $own"; continue; }
  port=$((port + 20)) pids=()
  for rank in 0 1; do
    # shellcheck disable=SC2086
    RANK=$rank WORLD_SIZE=2 MASTER_PORT=$port PLAIT_RUN_ID=$$.$port timeout $((30 * patience)) unshare $own "$PLAIT" train recipe.yaml \
      schedule.steps=8 checkpoint.every=0 eval.every=0 run.comm=net "run.dir=own.$port" >"log.$rank" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || { cat log.0 log.1; fail "ranks beyond unshare $own"; }; done
done
finish
