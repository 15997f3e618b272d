#!/bin/bash
# tier 3; rooms comm train; numbers
# plait train as processes: what cannot be is refused in one sentence; signals to any process stop all, and the run continues
# under another layout; a process that is killed takes the others along.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/mpi/environment.sh" || exit 1

# refused STATUS WORDS PROCESSES SETTINGS…
refused() {
  local status=$1 words=$2 n=$3 got
  shift 3
  ranks "$n" "$PLAIT" train recipe.yaml "$@" >output 2>&1
  got=$?
  if [ "$got" -ne "$status" ] || ! grep -q -- "$words" output || [ "$(grep -c '^plait' output)" -ne 1 ]; then
    fail "$n processes, $*: status $got"
    cat output
  fi
}

# ---- what cannot be ----

refused 2 'mesh: pp 1 × dp 2 × cp 1 × tp 2 is 4 ranks, but 2 processes were started; start 4' 2 mesh.tp=2
refused 2 'run.comm: local makes ranks threads of one process, but 2 processes were started' 2 run.comm=local
refused 2 'schedule.steps' 2 schedule.steps=many
refused 2 'no-such-corpus' 2 data.train=no-such-corpus
expect 2 'mesh: .* is 2 ranks, but 1 process was started' "$PLAIT" train recipe.yaml run.comm=mpi
expect 0 'saved' "$PLAIT" train recipe.yaml run.comm=mpi mesh.dp=1 schedule.steps=5 run.dir=single
expect 0 'saved' "$MPIRUN" -n 1 "$PLAIT" train recipe.yaml schedule.steps=5 run.dir=threads # auto: one process, ranks are threads
grep -q 'dp=2' output || fail "threads under mpirun -n 1"

# Tasks of a launcher whose language this MPI does not speak
refused_singleton() {
  env "$@" timeout 60 "$PLAIT" train recipe.yaml >output 2>&1
  [ $? -eq 2 ] && grep -q "$1.*2 tasks.*MPI sees only one rank\|${1%%=*} says that there are 2 tasks, but MPI sees only one rank" output && return
  fail "singletons ($*)"
  cat output
}
open_mpi() { "$MPIRUN" --version 2>&1 | grep -q 'Open MPI\|Open RTE'; }
if open_mpi; then refused_singleton PMI_SIZE=2 PMI_RANK=0
else refused_singleton OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0; fi

# ---- all processes come to one conclusion about what has changed, the best loss and the end of patience ----

patient='run.dir=patient schedule.warmup=0 schedule.name=constant eval.every=2 optimizer.lr=0 schedule.steps=20 eval.patience=2 checkpoint.best=true'
# shellcheck disable=SC2086 # words on purpose
{
  ranks 2 "$PLAIT" train recipe.yaml $patient >log 2>&1 || { cat log; fail "a run that ends early"; }
  [ "$(grep -c '^step 6: the run ends early' log)" -eq 1 ] || { cat log; fail "no process says once that the run ends early"; }
  [ "$(readlink patient/checkpoints/best)" = step-2 ] || fail "the best is $(readlink patient/checkpoints/best)"
  ranks 2 "$PLAIT" train recipe.yaml $patient >log 2>&1 || { cat log; fail "a run whose patience is over"; }
  [ "$(grep -c 'patient: the run ended early at step 6' log)" -eq 1 ] || { cat log; fail "patience that is over"; }
  refused 2 'differs in what makes it this run: run.seed 7' 2 $patient eval.patience=0 run.seed=8
  ranks 2 "$PLAIT" train --force recipe.yaml $patient eval.patience=3 run.seed=8 >log 2>&1 || { cat log; fail "a forced resume"; }
  grep -q '^note: --force: from step 7 on' log || { cat log; fail "a forced resume says nothing"; }
}

# ---- plan: auto: for as many ranks as there are processes, which all choose the same ----

auto='plan=auto run.cluster=h200-node mesh=null parallel=null batch.micro=null precision=fp32 run.dir=auto schedule.warmup=0 eval.every=0'
# shellcheck disable=SC2086 # words on purpose
{
  ranks 2 "$PLAIT" train recipe.yaml $auto schedule.steps=2 >log 2>&1 || { cat log; fail "plan: auto on 2 processes"; }
  [ "$(grep -c '^plan: auto chose .* plans for 2 ranks of ' log)" -eq 1 ] || { cat log; fail "the plan is not said once"; }
  ranks 4 "$PLAIT" train recipe.yaml $auto schedule.steps=4 >log 2>&1 || { cat log; fail "plan: auto, resumed on 4 processes"; }
  grep -q '^plan: auto chose .* plans for 4 ranks of ' log || { cat log; fail "no new plan for 4 processes"; }
  grep -q 'step *3/4' log || { cat log; fail "plan: auto does not resume"; }
}

# ---- what only one process cannot read ends all of them, with one sentence ----

"$PLAIT" export single/checkpoints/step-5 --out weights >log 2>&1 || { cat log; die "export"; }
cp -r weights other-weights
printf x >>other-weights/model.safetensors
timeout 60 "$MPIRUN" -n 1 "$PLAIT" train recipe.yaml run.dir=tuned model.init=weights : \
  -n 1 "$PLAIT" train recipe.yaml run.dir=tuned model.init=other-weights >output 2>&1
[ $? -eq 2 ] && [ "$(grep -c '^plait' output)" -eq 1 ] && grep -q 'other-weights/model.safetensors' output ||
  { cat output; fail "weights that one process cannot read"; }
[ ! -e tuned/metrics.jsonl ] || fail "a run that was refused has begun"

# ---- signals, and on under another layout ----

processes() { pgrep -f "$PLAIT train recipe.yaml .*run.dir=$1( |\$)" | while read -r id; do
  [ "$(basename "$(readlink "/proc/$id/exe")")" = "$(basename "$PLAIT")" ] && echo "$id"
done; }

export TERM=xterm # a progress line would be live
slow='batch.global=64 schedule.steps=40 eval.every=0 precision=fp64 run.threads=2'
# shellcheck disable=SC2086 # words on purpose
ranks 2 "$PLAIT" train recipe.yaml $slow run.dir=whole checkpoint.every=0 >log 2>&1 || { cat log; die "the unbroken run"; }
# mpirun gives each process a terminal of its own making, but what it prints goes to a file here.
grep -q $'[\r\033]' log && fail "progress with carriage returns or colours in a file: $(grep -m 1 $'[\r\033]' log | cat -v | cut -c 1-200)"
grep -q '^step 40/40  loss' log || { cat log; fail "no plain progress lines"; }
# shellcheck disable=SC2086
ranks 2 "$PLAIT" train recipe.yaml $slow run.dir=stopped checkpoint.every=0 >log 2>&1 &
running=$!
wait_for grep -q '"step": 3,' stopped/metrics.jsonl || die "the run does not start"
kill -TERM "$(processes stopped | tail -1)" || die "there is no process to stop"
wait "$running"
status=$?
running=
[ "$status" -eq 143 ] || { cat log; fail "SIGTERM to one process: status $status"; }
grep -q 'stopped by SIGTERM after step' log || { cat log; fail "SIGTERM to one process"; }
# shellcheck disable=SC2086
ranks 2 "$PLAIT" train recipe.yaml $slow mesh.dp=1 mesh.tp=2 parallel.zero=0 run.dir=stopped checkpoint.every=0 >log 2>&1 ||
  { cat log; fail "continuing under tp 2"; }
paste <(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' whole/metrics.jsonl) <(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' stopped/metrics.jsonl) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-9 * $1)) bad = 1 } END { exit bad || NR != 40 }' || fail "another run after the stop"

# Open MPI's launcher passes SIGUSR1 on to all ranks, of which one says so.
if open_mpi; then
  # shellcheck disable=SC2086
  ranks 2 "$PLAIT" train recipe.yaml $slow run.dir=warned checkpoint.every=0 >log 2>&1 &
  running=$!
  wait_for grep -q '"step": 3,' warned/metrics.jsonl || die "the run does not start"
  # shellcheck disable=SC2046 # one word
  kill -USR1 $(ps -o ppid= "$(processes warned | head -1)") || die "there is no launcher"
  wait "$running"
  status=$?
  running=
  [ "$status" -eq 75 ] && [ "$(grep -c 'plait: SIGUSR1: stopping after this step' log)" -eq 1 ] && grep -q 'stopped by SIGUSR1 after step .*, which is saved' log ||
    { cat log; fail "SIGUSR1 to the launcher: status $status"; }
fi

# What follows is a matter of seconds, which mean little in a build with sanitizers.
sanitized && finish

# ---- a process that dies ----

# shellcheck disable=SC2086
ranks 2 "$PLAIT" train recipe.yaml $slow schedule.steps=100000 run.dir=killed checkpoint.every=0 >log 2>&1 &
running=$!
wait_for grep -q '"step": 2,' killed/metrics.jsonl || die "the run does not start"
kill -KILL "$(processes killed | tail -1)"
wait "$running"
status=$?
running=
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "a process was killed: status $status"
none() { [ -z "$(processes "$1")" ]; }
wait_for none killed || fail "processes are left over"

# ---- a process that stands still ----

# The process that is this rank
process_of() {
  local id
  for id in $(processes "$1"); do
    tr '\0' '\n' <"/proc/$id/environ" | grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK|PMIX_RANK)=$2\$" && echo "$id" && return
  done
}

for victim in 0 1; do
  # shellcheck disable=SC2086
  ranks 3 "$PLAIT" train recipe.yaml $slow batch.global=48 mesh.dp=3 schedule.steps=100000 run.dir="still$victim" checkpoint.every=0 \
    watchdog.step=4 >log 2>&1 &
  running=$!
  wait_for grep -q '"step": 2,' "still$victim/metrics.jsonl" || die "the run does not start"
  sleep 2.5 # at least: heartbeats, one a second, have told the others of it
  id=$(process_of "still$victim" $victim)
  kill -STOP "$id" || die "there is no rank $victim"
  began=$SECONDS
  wait "$running"
  status=$?
  running=
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ $((SECONDS - began)) -lt 100 ] || fail "rank $victim was stopped: status $status after $((SECONDS - began)) s"
  grep -q "^plait: rank $victim on .* sends no heartbeats: [0-9]* s ago it began .*; its last collective.*, .* (call [0-9]* of" log || { fail "rank $victim is not named"; grep -a plait log; }
  # The step is of its last heartbeat, not of one long ago; where others are further the sentence says so.
  last=$(sed -n 's/^{"step": \([0-9]*\), "loss".*/\1/p' "still$victim/metrics.jsonl" | tail -1)
  named=$(grep -ao 'computing step [0-9]*' log | head -1 | grep -o '[0-9]*$') others=$(grep -ao 'another rank is at step [0-9]*' log | head -1 | grep -o '[0-9]*$')
  [ "${named:-0}" -ge $((last - 20)) ] && { [ "$named" -ge "$last" ] || [ "${others:-0}" -ge "$last" ]; } ||
    fail "rank $victim was stopped at step $last: named are step ${named:-none}, and of others ${others:-none}"
  wait_for none "still$victim" || fail "processes are left over"
done
finish
