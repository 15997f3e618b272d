#!/bin/bash
# tier 2 3; rooms comm runtime; numbers
# The comm matrix, streams, messages, communicators, large calls, reserved memory and heartbeats over net with 1, 2 and 4 processes,
# through shared memory (once with the settings for adapters), and where net_comm_WORD.sh call it, through sockets of a machine, TCP,
# UCX's TCP, or shared memory and TCP together (each rank must say that it was these); that training steps allocate nothing; half by hand; inputs of a graph's own.
. "$SOURCE/tests/net/environment.sh" || exit 1
failures=0
rank_limit=$((300 * ${PLAIT_PATIENCE:-1}))
sizes='1 2 4' # of worlds
[ "${PLAIT_TIER:-2}" -ge 3 ] || sizes='2 4' # one process is as threads

# all CARRIER
all() {
  local n program keys carriers began
  carriers=$(ranks 3 "$FOLDER/process_carriers" | sort -u)
  [[ $carriers =~ ^$1$ ]] || { echo "FAILED: messages go by $carriers, not $1"; failures=1; }
  for n in $sizes; do
    for program in process_comm process_comm_calls process_departure process_large process_memory process_heartbeats process_chains test_steady_memory; do
      [ "$program" != test_steady_memory ] || [ "$n" = 2 ] || [ "${PLAIT_TIER:-2}" -ge 3 ] || continue
      began=$SECONDS
      if ranks "$n" "$FOLDER/$program" >"$logs/log" 2>&1; then
        echo "$program with $n, $carriers: passed, $((SECONDS - began)) s"
      else
        echo "FAILED: $program with $n, $carriers, status $?, after $((SECONDS - began)) s"
        tail -40 "$logs/log"
        failures=1
      fi
    done
  done
  for keys in "dp=2" "pp=2" "dp=2 tp=2" "pp=2 tp=2"; do
    n=2
    case $keys in *" "*) n=4 ;; esac
    ranks $n "$FOLDER/process_by_hand" "$keys" >"$logs/log" 2>&1 && grep -q agree "$logs/log" && continue
    echo "FAILED: half by hand, $keys, $carriers"
    tail -40 "$logs/log"
    failures=1
  done
  for keys in "mesh.dp=2 parallel.zero=1|mesh.dp=2 parallel.zero=3" "mesh.dp=2 mesh.tp=2|mesh.pp=2 mesh.dp=2 batch.micro=1"; do
    n=2
    case $keys in *mesh.tp*) n=4 ;; esac
    rm -rf "$logs/checkpoints"
    ranks $n "$FOLDER/process_own_inputs" "$logs/checkpoints" "${keys%|*}" "${keys#*|}" >"$logs/log" 2>&1 && grep -q agree "$logs/log" && continue
    echo "FAILED: inputs of a graph's own, $keys, $carriers"
    tail -40 "$logs/log"
    failures=1
  done
}

unset UCX_TLS PLAIT_WIRE
if [ "${1-}" = ucx ]; then
  export PLAIT_WIRE=ucx UCX_TLS=tcp,self
  all 'tcp/lo.*'
elif [ "${1-}" = sockets ]; then
  PLAIT_WIRE=sockets all unix
  left=$(find "${XDG_RUNTIME_DIR:-/tmp}" -maxdepth 1 -name 'plait-wire-*' -user "$(id -u)" -newer "$logs" 2>/dev/null | wc -l)
  [ "$left" = 0 ] || { echo "FAILED: $left folders of sockets are left"; failures=1; }
elif [ "${1-}" = mixed ]; then
  sizes=4
  PLAIT_WIRE=mixed all $'(sysv|posix)/memory.* cma/memory.*\ntcp'
elif [ "${1-}" = tcp ]; then
  PLAIT_WIRE=tcp all tcp
elif "$PLAIT" doctor | grep -q '^--  UCX '; then
  echo "skipped: no UCX; test_net_comm_sockets is the same through sockets"
  exit 77
else
  all '(sysv|posix)/memory.* cma/memory.*'
  for n in 3 5; do
    ranks $n "$FOLDER/process_chains" >"$logs/log" 2>&1 || { echo "FAILED: process_chains with $n"; cat "$logs/log"; failures=1; }
  done
  for program in process_comm_calls process_large process_departure; do # with UCX's error handling, as adapters need it
    PLAIT_WIRE=ucx UCX_NET_DEVICES=all ranks 2 "$FOLDER/$program" >"$logs/log" 2>&1 || { echo "FAILED: $program with all devices"; cat "$logs/log"; failures=1; }
  done
fi
exit $failures
