# Ranks that plait launch starts, in place of environment.sh's, which are those of shells. Sourced by bash.

# ranks N plait train ARGUMENTS…
ranks() {
  local n=$1
  shift 3
  timeout -k 5 "${rank_limit:-$((300 * ${PLAIT_PATIENCE:-1}))}" "$PLAIT" launch --nproc-per-node "$n" "$@"
}
