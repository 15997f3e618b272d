# Supervisors that are the machines of a job. Sourced by bash, after environment.sh.
declare -A pid=()

# Sets port: the first of a hundred that no other test of this machine takes meanwhile. A job whose port another test has would be
# refused. This shell and what it starts hold the lock as long as one of them lives.
take_ports() {
  local block
  for ((block = $$ % 80; ; block = (block + 1) % 80)); do
    exec {ports}>"${TMPDIR:-/tmp}/plait-test-ports-$UID-$block" || exit 1
    flock -n "$ports" && break
    exec {ports}>&-
  done
  port=$((21000 + 100 * block))
}
take_ports

clean_machines() {
  [ "$BASHPID" = "$$" ] || return
  for name in "${!pid[@]}"; do
    kill -KILL "${pid[$name]}" 2>/dev/null && wait "${pid[$name]}" 2>/dev/null
  done
  clean_up
}
trap clean_machines EXIT

# job NAME: the ones that follow are of it; $id and $store are its
job() {
  port=$((port + 3))
  id="$1$$" store=127.0.0.1:$port
  pid=()
}
# machine NAME WORD…: a supervisor, whose output goes to NAME.log; where tests/net/lab is open, on the host ${host[NAME]} of it
declare -A host=()
machine() {
  local name=$1 lab_in=()
  shift
  [ -z "${lab_switch-}" ] || lab_to "${host[$name]}"
  : >"$name.log" # before it starts: what a machine of this name said in another job is not waited for
  "${lab_in[@]}" "$PLAIT" launch --rdzv "$store" --rdzv-id "$id" "$@" >"$name.log" 2>&1 &
  pid[$name]=$!
}
# all_end STATUS NAME…
all_end() {
  local status=$1 name got
  shift
  for name in "$@"; do
    { wait "${pid[$name]}"; } 2>/dev/null
    got=$?
    unset "pid[$name]"
    [ $got -eq "$status" ] || { tail -20 "$name.log"; fail "$name: status $got, expected $status"; }
  done
}
# at_step RUN STEP
at_step() { wait_for grep -q "\"step\": $2," "$1/metrics.jsonl" || { tail -n 5 ?.log; die "$1 does not come to step $2"; }; }
last_step() { sed -n 's/^{"step": \([0-9]*\),.*"loss".*/\1/p' "$1/metrics.jsonl" | tail -1; }
# workers_of NAME: the processes that a supervisor has started
workers_of() {
  local p
  for p in $(workers "$id"); do
    [ "$(ps -o ppid= -p "$p" | tr -d ' ')" = "${pid[$1]}" ] && echo "$p"
  done
}
# serves NAME: at one of the ports that $store may have
serves() {
  local lab_in=()
  [ -z "${lab_switch-}" ] || lab_to "${host[$1]}"
  "${lab_in[@]}" ss -ltnpH "sport = :$port or sport = :$((port + 1))" | grep -q "pid=${pid[$1]},"
}
# not_serving NAME…: the first of these that does not serve the store
not_serving() {
  local name
  for name in "$@"; do serves "$name" || { echo "$name" && return; }; done
}
# seconds_of RUN CAUSE: from the cause to the next step
seconds_of() { sed -n "s/.*\"cause\": \"[^\"]*$2.*\"seconds_to_step\": \([0-9.]*\).*/\1/p" "$1/launch.jsonl" | tr '\n' ' '; }
