#!/bin/bash
# Random faults while a run trains on three machines (supervisors of this one), of which it needs two: a worker is killed, a machine is
# killed, the store's machine is killed, a machine is stopped and wakes, one says goodbye; one that went comes again. Afterwards: the
# losses of the unbroken run, each step once, no process left, restarts counted exactly. FAULTS: how many, SEED: which. Needs UCX.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1
"$PLAIT" launch --nproc-per-node 2 recipe.yaml schedule.steps=8 run.dir=first >log 2>&1
if grep -q 'without which this plait was built; install it (on Debian libucx-dev)' log; then
  echo "skipped: a build without UCX"
  exit 77
fi
faults=${FAULTS:-8}
RANDOM=${SEED:=$RANDOM}
echo "$faults faults, SEED=$SEED"
keys='schedule.name=constant schedule.steps=1000000 eval.every=0 checkpoint.every=20 run.log_every=1000'
killed=0 number=0
job elastic
store=$store,127.0.0.1:$((port + 1))

begin() {
  number=$((number + 1))
  # shellcheck disable=SC2086 # words on purpose
  machine m$number --nnodes 2:3 --silence 1 --max-restarts 1000 recipe.yaml $keys run.dir=elastic
}
rounds() { grep -c '"first_step"' elastic/launch.jsonl; }
round_after() { [ "$(rounds)" -gt "$1" ] && [ "$(last_step elastic)" -gt "$2" ]; }
all_there() { # nobody takes part in the next fault who has not come back from the last one
  local name waiting=0
  for name in "${!pid[@]}"; do [ -n "$(workers_of "$name")" ] || waiting=$((waiting + 1)); done
  [ "$waiting" -le 1 ]
}
# with_workers: a machine that has a worker, at random
with_workers() {
  local name names=()
  for name in "${!pid[@]}"; do [ -n "$(workers_of "$name")" ] && names+=("$name"); done
  echo "${names[$((RANDOM % ${#names[@]}))]}"
}
serving() {
  local name
  for name in "${!pid[@]}"; do ss -ltnpH "sport = :$port or sport = :$((port + 1))" | grep -q "pid=${pid[$name]}," && echo "$name" && return; done
}
gone() {
  { wait "${pid[$1]}"; } 2>/dev/null
  unset "pid[$1]"
  begin
}

begin; begin; begin
at_step elastic 5
for ((fault = 1; fault <= faults; fault++)); do
  wait_for all_there || { tail -n 3 m*.log; die "fault $fault: the machines of fault $((fault - 1)) have not come back"; }
  before=$(rounds) step=$(last_step elastic) choice=$((RANDOM % 5)) victim=$(with_workers)
  case $choice in
    0) echo "$fault: step $step: a worker of $victim is killed"
      kill -KILL "$(workers_of "$victim" | head -1)" && killed=$((killed + 1)) ;;
    1) echo "$fault: step $step: $victim is killed"
      kill -KILL "${pid[$victim]}"
      gone "$victim" ;;
    2) victim=$(serving)
      echo "$fault: step $step: $victim, which has the store, is killed"
      [ -z "$(workers_of "$victim")" ] && before=$((before - 1))
      kill -KILL "${pid[$victim]}"
      gone "$victim" ;;
    3) echo "$fault: step $step: $victim is stopped, and wakes"
      stopped="${pid[$victim]} $(workers_of "$victim")"
      # Where it has the store, the others count it as lost only when they have another: a call and two greetings, 3 s.
      asleep=$((RANDOM % 3 + 3))
      [ "$victim" != "$(serving)" ] || asleep=$((asleep + 3))
      # shellcheck disable=SC2086
      kill -STOP $stopped
      sleep $asleep
      # shellcheck disable=SC2086
      kill -CONT $stopped ;;
    4) echo "$fault: step $step: $victim says goodbye"
      kill -TERM "${pid[$victim]}"
      gone "$victim" ;;
  esac
  wait_for round_after "$before" "$((step + 2))" || { tail -n 4 m*.log; cat elastic/launch.jsonl; die "fault $fault: the run does not go on"; }
done
kill -USR1 "${pid[$(with_workers)]}"
for name in "${!pid[@]}"; do
  wait "${pid[$name]}"
  status=$?
  [ $status -eq 138 ] || [ $status -eq 75 ] || { tail -n 5 "$name.log"; fail "$name: status $status after USR1"; }
done
pid=()
no_workers "$id" || fail "processes are left: $(workers "$id")"
last=$(last_step elastic)
grep -q "\"restarts\": $killed, \"status\"" elastic/launch.jsonl || fail "$killed workers were killed: $(tail -1 elastic/launch.jsonl)"
# shellcheck disable=SC2086
"$PLAIT" train recipe.yaml $keys run.dir=whole >log 2>&1 &
running=$!
reached() { [ "$(last_step whole)" -ge "$last" ]; }
limit=100
wait_for reached || { tail -3 log; die "the unbroken run does not come to step $last"; }
{ kill -KILL $running; wait $running; } 2>/dev/null
running=''
steady elastic >elastic.txt
steady whole | head -n "$last" >whole.txt
cmp whole.txt elastic.txt || { diff whole.txt elastic.txt | head -5; fail "the losses of $last steps are not those of the unbroken run"; }
[ -d "elastic/checkpoints/step-$last" ] || fail "the last step is not saved"
grep -o '"cause": "[^"]*\|"seconds_to_step": .*' elastic/launch.jsonl | tr '\n' ' ' | sed 's/"cause"/\n&/g'
echo
finish
