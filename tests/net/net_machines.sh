#!/bin/bash
# Two machines, which are network and UTS namespaces with a link between them, two ranks each, and a secret: sums have the bits of the
# direct exchange, long ones go by a chain of machines, and it is TCP that carries them. Needs root, ip and unshare.
. "$SOURCE/tests/net/environment.sh" || exit 1
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v unshare >/dev/null || ! unshare -n true 2>/dev/null; then
  echo "skipped: namespaces need root, ip and unshare"
  exit 77
fi
a=plaitA$$ b=plaitB$$
leave() { ip netns del $a; ip netns del $b; rm -rf "$logs"; } 2>/dev/null
trap leave EXIT
ip netns add $a && ip netns add $b && ip -n $a link add veth0 type veth peer name veth0 netns $b || { echo "skipped: no network namespaces here"; exit 77; }
for m in $a $b; do
  ip -n $m link set lo up
  ip -n $m link set veth0 up
done
ip -n $a addr add 10.77.0.1/24 dev veth0
ip -n $b addr add 10.77.0.2/24 dev veth0
[ -z "${PLAIT_LINK_RATE-}" ] || for m in $a $b; do # of what is measured here
  ip netns exec $m tc qdisc add dev veth0 root tbf rate "$PLAIT_LINK_RATE" burst 256k latency 50ms || exit 1
done

"$PLAIT" launch --make-secret "$logs/key" || exit 1
export PLAIT_SECRET=$logs/key UCX_TLS=tcp,self MASTER_ADDR=10.77.0.1

# machines COMMAND…: ranks 0 and 1 on the first, 2 and 3 on the second
machines() {
  local r m name
  pids=()
  port=$((port + 1))
  for r in 0 1 2 3; do
    m=$a name=machineA
    [ $r -lt 2 ] || m=$b name=machineB
    ip netns exec $m unshare -u bash -c 'hostname "$1"; shift; exec "$@"' - $name env RANK=$r WORLD_SIZE=4 MASTER_PORT=$port \
      timeout -k 5 "${rank_limit:-120}" "$@" >"$logs/$r" 2>"$logs/$r.err" &
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
  head -20 "$logs"/[0-3] "$logs"/*.err
  failures=1
}
machines "$FOLDER/process_carriers" || fail "messages between machines"
[ "$(cat "$logs"/[0-3] | sort -u)" = tcp/veth0.0 ] || fail "messages go by $(cat "$logs"/[0-3] | sort -u)"
machines "$FOLDER/process_chains" || fail "chains of machines"
machines "$FOLDER/process_comm" || fail "collectives between machines"

# Of a long all_reduce the link carries the elements once in each direction by the chain that is chosen, and twice directly; of an all_gather each part once.
sent() { ip netns exec $a cat /sys/class/net/veth0/statistics/tx_bytes; }
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
grep -q 'neither encrypted nor authenticated' "$logs"/*.err "$logs"/[0-3] || fail "no word of what listens"
PLAIT_INSECURE=1 machines "$FOLDER/process_carriers" || fail "PLAIT_INSECURE"
grep -q '^note: PLAIT_INSECURE is set' "$logs/0.err" || fail "no note"
exit $failures
