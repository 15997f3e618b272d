# What the scripts of this folder share. Sourced by bash. FOLDER: that of the test programs.
# Each test has ports of its own, and each start of ranks an id: one whose port is taken uses the next, and must not meet another test there.
port=$((20000 + $$ % 8000))
unset MASTER_ADDR PLAIT_INSECURE PLAIT_SECRET PLAIT_JOB_SECRET PLAIT_ENCRYPT

if [ -n "${work-}" ]; then # of tests/train/harness.sh, which removes it
  logs=$work/logs
  mkdir "$logs"
else
  logs=$(mktemp -d) || exit 1
  trap 'rm -rf "$logs"' EXIT
fi

# start_ranks N COMMAND…: N processes as from N shells; sets `pids`. What rank r prints is in $logs/r and $logs/r.err.
start_ranks() {
  local n=$1 r
  shift
  pids=()
  port=$((port + 1))
  for ((r = 0; r < n; r++)); do
    PLAIT_RUN_ID="${run_id-$$.$port}" RANK=$r WORLD_SIZE=$n MASTER_PORT=$port timeout -k 5 "${rank_limit:-$((300 * ${PLAIT_PATIENCE:-1}))}" "$@" >"$logs/$r" 2>"$logs/$r.err" &
    pids+=($!)
  done
}

# Waits for all; the first status that is not 0.
wait_ranks() {
  local status=0 got pid
  for pid in "${pids[@]}"; do
    wait "$pid"
    got=$?
    [ $status -ne 0 ] || status=$got
  done
  return $status
}

# ranks N COMMAND…: the same, and prints what they print, rank 0 first
ranks() {
  local n=$1 r status
  start_ranks "$@"
  wait_ranks
  status=$?
  for ((r = 0; r < n; r++)); do cat "$logs/$r" && cat "$logs/$r.err" >&2; done
  return $status
}
