#!/bin/bash
# tier 3; rooms comm train checkpoint; numbers
# Random faults while a run trains on three or four machines, of which it needs two: a worker is killed, a machine is killed, the store's
# machine is killed, a machine is stopped and wakes, one says goodbye; a machine that went comes again. One joins, one leaves for good. Where
# root can make machines (tests/net/lab), also: a cable is pulled, an interface taken down, the network parted. Else they are supervisors
# of this one. Afterwards: each step once, losses of each round as of one rank, no process left, restarts counted exactly. FAULTS: how many;
# SEED: which, and which layout.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1
. "$SOURCE/tests/net/lab" || exit 1
faults=${FAULTS:-8}
RANDOM=${SEED:=$RANDOM}
layouts=(parallel.zero=1 parallel.zero=3 mesh.tp=2 mesh.pp=2) # of the last two a third machine is a spare
layout=${layouts[RANDOM % 4]}
keys=(precision=fp64 batch.global=12 batch.micro=2 schedule.name=constant schedule.steps=1000000 eval.every=0 checkpoint.every=10 checkpoint.keep=0
  run.log_every=1000 run.threads=1 run.silence=2)
unit=1 killed=0 stops=0 number=0
case $layout in mesh*) unit=2 ;; esac
job elastic
store=$store,127.0.0.1:$((port + 1)) kinds=6 free=()
if (lab_open hostA) >/dev/null 2>&1; then
  lab_open hostA hostB hostC hostD || die "no lab"
  store=hostA:$port,hostB:$((port + 1)) kinds=8 free=(hostA hostB hostC hostD)
fi
echo "$faults faults of $kinds kinds, SEED=$SEED: $layout"

# begins: a machine more; in a lab, on a host that has none
begins() {
  number=$((number + 1))
  if [ -n "${lab_switch-}" ]; then host[m$number]=${free[0]} free=("${free[@]:1}"); fi
  # shellcheck disable=SC2086 # words on purpose
  machine m$number --nnodes 2:4 --silence 1 --max-restarts 1000 --insecure --nproc-per-node 1 recipe.yaml "${keys[@]}" mesh.dp=auto run.dir=elastic $layout
}
# ended NAME: it is waited for; the next one comes on the same host, since only the first two can serve the store
ended() {
  { wait "${pid[$1]}"; } 2>/dev/null
  unset "pid[$1]"
  [ -z "${lab_switch-}" ] || free=("${host[$1]}" "${free[@]}")
}
rounds() { grep -c '"first_step"' elastic/launch.jsonl; }
steps_after() { [ "$(last_step elastic)" -gt "$1" ]; }
# round_after ROUNDS STEP: a later round has made a step after this one
round_after() { [ "$(rounds)" -gt "$1" ] && steps_after "$2"; }
working() { # the machines that have a worker
  local name
  for name in $(echo "${!pid[@]}" | tr ' ' '\n' | sort); do [ -n "$(workers_of "$name")" ] && echo "$name"; done
}
all_there() { # nobody takes part in the next fault who has not come back from the last one
  local names
  names=$(working)
  [ "$(wc -w <<<"$names")" -ge "$((${#pid[@]} - (${#pid[@]} % 2 && unit == 2)))" ]
}
# any NAME…
any() { shift $((RANDOM % $#)) && echo "$1"; }
serving() {
  local name
  for name in "${!pid[@]}"; do serves "$name" && echo "$name" && return; done
}
# Supervisors that somebody else has stopped, as what measures on this machine may, explain a run that does not go on.
tell_stopped() {
  local name
  for name in "${!pid[@]}"; do [[ $(ps -o stat= -p "${pid[$name]}") != T* ]] || echo "$name is stopped, and not by this test (ps says T)"; done
}
shown() {
  tell_stopped
  tail -n 4 m*.log
  cat elastic/launch.jsonl
}
goes_on() { wait_for "$@" || { shown; die "fault $fault: the run does not go on"; }; }
# Of those that no comparison needs, and that are not new
remove_checkpoints() {
  local step
  for step in $(ls elastic/checkpoints 2>/dev/null | sed -n 's/^step-\([0-9]*\)$/\1/p' | sort -n | head -n -5); do
    grep -q "\"first_step\": $((step + 1))," elastic/launch.jsonl || rm -rf "elastic/checkpoints/step-$step"
  done
}
# half_goes_on NAME…: these can make a round, and one of them can serve the store
half_goes_on() { [ $# -ge 2 ] && may_serve "$@"; }
may_serve() {
  local name
  for name in "$@"; do case ${host[$name]} in hostA | hostB) return ;; esac; done
  return 1
}
# broken WHAT NAME…: these are apart from the others until one half has gone on, or, so that nobody may have noticed, a moment; also
# where neither half could go on
broken() {
  local what=$1 here=("${@:2}") there
  # shellcheck disable=SC2046 # words on purpose
  mapfile -t there < <(printf '%s\n' "${!pid[@]}" | grep -vx $(printf -- '-e %s ' "${here[@]}"))
  if [ $((RANDOM % 3)) -eq 0 ] || ! { half_goes_on "${here[@]}" || half_goes_on "${there[@]}"; }; then
    echo "$what, for a moment"
    sleep 0.$((RANDOM % 10))
    before=-1
  else
    echo "$what"
    [ "$before" -ge 0 ] || sleep 2 # it is to be noticed, though nothing has to follow from it
    goes_on round_after "$before" "$step"
  fi
  lab_heal
  step=$(last_step elastic)
}

begins; begins; begins
at_step elastic 5
for ((fault = 1; fault <= faults; fault++)); do
  wait_for all_there || { shown; die "fault $fault: the machines of fault $((fault - 1)) have not come back"; }
  remove_checkpoints
  # shellcheck disable=SC2046 # words on purpose
  before=$(rounds) step=$(last_step elastic) victim=$(any $(working))
  saying="$fault: step $step: $victim"
  case $((RANDOM % kinds)) in
    0) echo "$saying: a worker is killed"
      kill -KILL "$(workers_of "$victim" | head -1)" && killed=$((killed + 1)) ;;
    1) echo "$saying is killed"
      kill -KILL "${pid[$victim]}"
      ended "$victim"
      begins ;;
    2) victim=$(serving)
      echo "$fault: step $step: $victim, which has the store, is killed"
      [ -n "$(workers_of "$victim")" ] || before=-1 # a spare
      kill -KILL "${pid[$victim]}"
      ended "$victim"
      begins ;;
    3) echo "$saying is stopped, and wakes"
      stopped="${pid[$victim]} $(workers_of "$victim")"
      # shellcheck disable=SC2086
      kill -STOP $stopped && stops=$((stops + 1))
      goes_on round_after "$before" "$step" # without it
      # shellcheck disable=SC2086
      kill -CONT $stopped ;;
    4) echo "$saying says goodbye"
      kill -TERM "${pid[$victim]}"
      ended "$victim"
      begins ;;
    5) if [ ${#pid[@]} -eq 4 ]; then
        echo "$saying says goodbye, and stays away"
        kill -TERM "${pid[$victim]}"
        ended "$victim"
      else
        begins
        echo "$fault: step $step: m$number joins"
      fi ;;
    6) if [ $((RANDOM % 2)) -eq 0 ]; then
        lab_cut "${host[$victim]}"
        broken "$saying: the cable is pulled" "$victim"
      else
        lab_down "${host[$victim]}"
        broken "$saying: its interface is down" "$victim"
      fi ;;
    7) other=$(any "${!pid[@]}")
      [ -n "$(working | grep -vx -e "$victim" -e "$other")" ] || before=-1 # all that work are in one half: their round may go on
      apart=("$victim")
      [ "$other" = "$victim" ] || apart+=("$other")
      lab_part "${host[$victim]}" "${host[$other]}"
      broken "$saying: ${apart[*]} apart from the others" "${apart[@]}" ;;
  esac
  goes_on round_after "$before" "$((step + 2))"
done
wait_for all_there || { shown; die "the machines of fault $faults have not come back"; }
kill -USR1 "${pid[$(any "${!pid[@]}")]}"
for name in "${!pid[@]}"; do
  wait "${pid[$name]}"
  status=$?
  [ $status -eq 138 ] || [ $status -eq 75 ] || { grep -A12 'ERROR: .*Sanitizer\|runtime error' "$name.log"; tail -n 5 "$name.log"; fail "$name: status $status after USR1"; }
done
pid=()
no_workers "$id" || fail "processes are left: $(workers "$id")"
last=$(last_step elastic)
# A machine that is stopped with the only store there is counts as there: its ranks are silent, which is a failure of theirs.
silent=$(grep -c '"cause": "rank [^"]* ended with status [^"]* is silent' elastic/launch.jsonl)
[ "$silent" -le "$stops" ] || { shown; fail "$silent failures by silence, but $stops machines were stopped"; }
grep -q "\"restarts\": $((killed + silent)), \"status\"" elastic/launch.jsonl ||
  { shown; fail "$killed workers were killed, $silent silent: $(tail -1 elastic/launch.jsonl)"; }
[ -d "elastic/checkpoints/step-$last" ] || fail "the last step is not saved"
# shellcheck disable=SC2046 # words on purpose
as_one_rank elastic "$last" $(sed -n 's/.*"first_step": \([0-9]*\).*/\1/p' elastic/launch.jsonl | awk '{ print $1 - 1 }')
grep -o '"cause": "[^"]*\|"seconds_to_step": .*' elastic/launch.jsonl | tr '\n' ' ' | sed 's/"cause"/\n&/g'
echo
[ $failures -eq 0 ] || echo "again with FAULTS=$faults SEED=$SEED"
finish
