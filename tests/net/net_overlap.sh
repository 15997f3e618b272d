#!/bin/bash
# tier 3; rooms comm runtime; numbers
# Two machines (tests/net/lab) with a slow link between them: a step in which collectives are in flight takes no longer than one that
# waits for each, with the same losses, for two ranks, and for four with tensor parallelism inside the machines. Needs root.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1
. "$SOURCE/tests/net/lab" || exit 1
lab_open machineA machineB || exit 1
lab_rate "${PLAIT_LINK_RATE:-200mbit}" || exit 1

"$PLAIT" launch --make-secret "$logs/key" || exit 1
unset UCX_TLS PLAIT_WIRE
export PLAIT_SECRET=$logs/key MASTER_ADDR=machineA

# machines N COMMAND…: half of the ranks on each
machines() {
  local n=$1 r lab_in
  shift
  pids=()
  port=$((port + 1))
  for ((r = 0; r < n; r++)); do
    lab_to $([ $((2 * r)) -lt "$n" ] && echo machineA || echo machineB)
    "${lab_in[@]}" env PLAIT_RUN_ID=$$.$port RANK=$r WORLD_SIZE="$n" MASTER_PORT=$port timeout -k 5 $((300 * patience)) "$@" >"$logs/$r" 2>"$logs/$r.err" &
    pids+=($!)
  done
  wait_ranks
}

# 12.6 MB of gradients, which the link carries in half a second, in buckets of 1 MB
sed 's/"n_layer": 2/"n_layer": 4/; s/"n_embd": 32/"n_embd": 256/' model.json >wide.json
keys=(model.config=wide.json schedule.steps=9 batch.global=64 eval.every=0 checkpoint.every=0 parallel.bucket_mb=1 parallel.zero=0 run.threads=1)

# seconds RUN: the shortest of steps 3 to 9, which others on this machine have delayed least
seconds() { for step in 3 4 5 6 7 8 9; do metric "$1" $step step_seconds; done | sort -g | head -n 1; }

# compare RANKS KEYS…
compare() {
  local n=$1 on off overlap
  shift
  for overlap in true false; do
    rm -rf run-$overlap
    machines "$n" "$PLAIT" train recipe.yaml run.comm=net "${keys[@]}" "$@" parallel.overlap=$overlap run.dir=run-$overlap ||
      { cat "$logs"/[0-3] "$logs"/[0-3].err; die "$*: overlap $overlap"; }
  done
  on=$(seconds run-true) off=$(seconds run-false)
  echo "$* over ${PLAIT_LINK_RATE:-200 Mbit/s}: a step takes $on s with overlap, $off s without"
  awk -v on="$on" -v off="$off" 'BEGIN { exit !(on > 0 && on <= 1.05 * off) }' || fail "$*: $on s with overlap, $off s without"
  [ "$(losses run-true)" = "$(losses run-false)" ] || fail "$*: other losses"
}
compare 2 mesh.dp=2 batch.micro=32
compare 4 mesh.dp=2 mesh.tp=2 batch.micro=32
finish
