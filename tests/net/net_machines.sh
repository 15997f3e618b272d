#!/bin/bash
# tier 3; rooms comm; numbers
# Two machines (tests/net/lab), two ranks each, and a secret: sums have the bits of the direct exchange, long ones go by a chain of
# machines, and it is TCP that carries them. First, that machines are what they should be. Needs root.
. "$SOURCE/tests/net/environment.sh" || exit 1
. "$SOURCE/tests/net/lab" || exit 1
lab_open machineA machineB || exit 1
[ -z "${PLAIT_LINK_RATE-}" ] || lab_rate "$PLAIT_LINK_RATE" || exit 1 # of what is measured here

"$PLAIT" launch --make-secret "$logs/key" || exit 1
unset UCX_TLS PLAIT_WIRE
export PLAIT_SECRET=$logs/key MASTER_ADDR=machineA

# machines COMMAND…: ranks 0 and 1 on the first, 2 and 3 on the second
machines() {
  local r lab_in
  pids=()
  port=$((port + 1))
  for r in 0 1 2 3; do
    lab_to $([ $r -lt 2 ] && echo machineA || echo machineB)
    "${lab_in[@]}" env PLAIT_RUN_ID=$$.$port RANK=$r WORLD_SIZE=4 MASTER_PORT=$port timeout -k 5 "${rank_limit:-$((300 * ${PLAIT_PATIENCE:-1}))}" "$@" >"$logs/$r" 2>"$logs/$r.err" &
    pids+=($!)
  done
  wait_ranks
}

if [ $# -gt 0 ]; then # to measure: net_machines.sh COMMAND…
  machines "$@"
  status=$?
  cat "$logs/0" "$logs"/*.err
  exit $status
fi

failures=0
fail() {
  echo "FAILED: $*"
  head -20 "$logs"/[0-3] "$logs"/*.err 2>/dev/null
  failures=1
}

lab_to machineB
"${lab_in[@]}" python3 -c 'import socket; s = socket.create_server(("0.0.0.0", 700)); print("listens", flush=True); [s.accept() for i in iter(int, 1)]' >"$logs/listens" &
listener=$!
until grep -q listens "$logs/listens" || ! kill -0 $listener; do sleep 0.05; done
# meets yes|no HOST OTHER WHEN: whether a connection comes about. Of a network that is whole again not the first needs to: a
# search for the other's hardware address that began before fails then, and the connection at once.
meets() {
  local got=no until=$((SECONDS + 30)) seconds=10
  [ "$1" = yes ] || seconds=0.5 until=0
  while :; do
    lab_on "$2" timeout $seconds bash -c "echo >/dev/tcp/$3/700" 2>/dev/null && got=yes
    [ $got = no ] && [ $SECONDS -lt $until ] || break
    sleep 0.1
  done
  [ $got = "$1" ] || fail "$4: whether $2 reaches $3: $got"
}
for host in machineA machineB; do [ "$(lab_on $host hostname)" = $host ] || fail "the host name of $host"; done
meets yes machineA machineB "at first"
lab_cut machineA
meets no machineA machineB "cable pulled"
lab_heal
lab_part machineB
meets no machineA machineB "parted"
meets yes machineB machineB "parted"
lab_heal
lab_down machineB
meets no machineA machineB "interface down"
lab_heal
meets yes machineA machineB "healed"
kill $listener

machines "$FOLDER/process_carriers" || fail "messages between machines"
[[ "$(cat "$logs"/[0-3] | sort -u)" =~ ^(((sysv|posix)/memory.* cma/memory.*)$'\n'tcp|tcp$'\n'unix)$ ]] ||
  fail "messages go by $(cat "$logs"/[0-3] | sort -u)"
machines "$FOLDER/process_heartbeats" || fail "heartbeats by two carriers"
machines "$FOLDER/process_departure" || fail "departures by two carriers"
machines "$FOLDER/process_chains" || fail "chains of machines"
machines "$FOLDER/process_comm" || fail "collectives between machines"

# Of a long all_reduce the link carries the elements once in each direction by the chain that is chosen, and twice directly; of an all_gather each part once.
sent() { lab_on machineA ip -j -s link show eth0 | sed 's/.*"tx":{"bytes":\([0-9]*\).*/\1/'; }
# bytes COLLECTIVE CHAIN
bytes() {
  local before
  before=$(sent)
  machines "$PLAIT" bench comm --comm net --collectives "$1" --sizes 16M --repeat 7 --chain "$2" >&2 || fail "bench --chain $2"
  echo $(($(sent) - before))
}
for what in all_reduce all_gather; do
  chosen=$(bytes $what 0) direct=$(bytes $what -1)
  echo "$what of 16 MiB, 10 times, over the link: directly $direct bytes, as chosen $chosen"
  [ $((direct * 10)) -gt $((chosen * 17)) ] || fail "$what by machines saves nothing"
done

machines "$PLAIT" bench comm --comm net --patterns --collectives all_reduce --sizes 1K,4M --repeat 2 || fail "bench --patterns"
grep -q '^all_reduce *1 KiB .* directly$' "$logs/0" && grep -q '^all_reduce *4 MiB .* groups of 2$' "$logs/0" || fail "bench --patterns does not say what a run takes"

unset PLAIT_SECRET
rank_limit=20
machines "$FOLDER/process_carriers" 2>/dev/null && fail "other machines are reached without a secret"
rank_limit=100
grep -q 'neither encrypted nor authenticated' "$logs"/*.err "$logs"/[0-3] || fail "no word of what listens"
PLAIT_INSECURE=1 machines "$FOLDER/process_carriers" || fail "PLAIT_INSECURE"
grep -q '^note: PLAIT_INSECURE is set' "$logs/0.err" || fail "no note"
exit $failures
