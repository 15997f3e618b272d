#!/bin/bash
# tier 3; rooms comm train checkpoint; numbers
# Copies of the state in memory that outlives its processes (checkpoint.memory_every): workers are killed at random steps, and inside of
# a copy; the run continues from at most that number of steps before, as if nothing had happened. On several machines, too.
# SEED: of the random steps.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1

RANDOM=${SEED:=$((RANDOM + 1))}
echo "SEED=$SEED"
every=3
base='schedule.steps=60 eval.every=0 eval.batches= checkpoint.keep=0'
rare='checkpoint.every=1000'

# whole KEY=VALUE…: the unbroken run, of which every step is saved that others may save; $whole is its folder
whole() {
  whole=whole$(printf '.%s' "$@")
  # shellcheck disable=SC2086 # words on purpose
  [ -d "$whole" ] || "$PLAIT" train recipe.yaml $base checkpoint.every=$every "$@" run.dir="$whole" >log 2>&1 || { cat log; die "the unbroken run: $*"; }
}
# from LOG: the steps from which rounds have resumed
from() { sed -n 's/^resuming from .*step-\([0-9]*\)$/\1/p' "$1"; }
# resumes NAME NUMBER
resumes() { [ "$(from "$1" | wc -l)" -ge "$2" ]; }

# ---- a checkpoint is written from one copy while others are made ----

# shellcheck disable=SC2086
"$PLAIT" launch --nproc-per-node 2 recipe.yaml $base schedule.steps=12 schedule.decay_steps=1 checkpoint.every=4 checkpoint.memory_every=1 run.dir=files >log 2>&1 ||
  { cat log; fail "copies beside checkpoints"; }
# shellcheck disable=SC2086
"$PLAIT" train recipe.yaml $base schedule.steps=12 schedule.decay_steps=1 checkpoint.every=4 run.dir=plain >log 2>&1
same_run plain files
[ "${PLAIT_FAULT-}" = image_that_is_written_is_taken ] && finish

# ---- kills at random steps ----

# killed NAME KEY=VALUE…
killed() {
  local name=$1 at last=0 kill before
  shift
  whole "$@"
  job "$name"
  # shellcheck disable=SC2086
  "$PLAIT" launch --nproc-per-node 2 --rdzv-id "$id" --max-restarts 3 recipe.yaml $base $rare checkpoint.memory_every=$every "$@" run.dir="$name" >"$name.log" 2>&1 &
  running=$!
  for kill in 1 2; do
    at=$((last + 4 + RANDOM % 10))
    wait_for find_worker "$id" $((RANDOM % 2)) || { tail "$name.log"; die "$name does not start"; }
    wait_for grep -q "\"step\": $at," "$name/metrics.jsonl" || { tail "$name.log"; die "$name does not come to step $at"; }
    [ $kill = 2 ] && [ "$(find "/proc/$running/fd" -lname '*memfd:*' | wc -l)" -ne 4 ] && fail "$name: memory of earlier rounds is kept"
    before=$(last_step "$name")
    kill -KILL "$victim"
    wait_for resumes "$name.log" $kill || { grep plait "$name.log"; die "$name: it does not resume after kill $kill"; }
    last=$(from "$name.log" | tail -1)
    [ "$last" -ge $((before - every)) ] || fail "$name: killed after step $before, it resumes from step $last"
  done
  wait $running || { tail "$name.log"; fail "$name: status $?"; }
  running=''
  same_run "$whole" "$name"
  [ "$(grep -c '"loss"' "$name/metrics.jsonl")" -eq 60 ] || fail "$name has $(grep -c '"loss"' "$name/metrics.jsonl") lines of steps"
  [ "$(grep -c 'was in the memory of the workers, and is saved now' "$name.log")" -eq 2 ] || fail "$name: $(grep '^plait' "$name.log")"
  [ -z "$(find "$name" -name 'memory-*' -o -name '*.tmp*')" ] || fail "$name: $(ls "$name" "$name/checkpoints")"
}
killed dp mesh.dp=2 parallel.zero=0
killed zero mesh.dp=2 parallel.zero=3
killed tp mesh.dp=1 mesh.tp=2 parallel.zero=0
killed pp mesh.dp=1 mesh.pp=2 parallel.zero=0 precision=bf16
grep -q "^the state is kept in memory every $every steps: a crash of processes loses at most $every steps; losing a machine loses the steps since the last checkpoint" pp.log ||
  fail "what is survived is not told: $(cat pp.log)"

# ---- inside of a copy: the older one counts. Chaos lets copies take longer than they need ----

word() { od -An -tu"$3" -j"$2" -N"$3" "$1" | tr -d ' '; } # word FILE AT BYTES, of the header of checkpoint/memory_image.c
whole mesh.dp=2 parallel.zero=1
job inside
# shellcheck disable=SC2086
PLAIT_CHAOS=$SEED "$PLAIT" launch --nproc-per-node 2 --rdzv-id "$id" --max-restarts 3 recipe.yaml $base $rare checkpoint.memory_every=1 checkpoint.keep=1 run.dir=inside >inside.log 2>&1 &
running=$!
for kill in 1 2; do
  wait_for grep -q "\"step\": $((kill * 8))," inside/metrics.jsonl || { tail inside.log; die "inside does not come to step $((kill * 8))"; }
  victim=$(worker "$id" $((RANDOM % 2)))
  read -r a b _ < <(tr '\0' '\n' <"/proc/$victim/environ" | sed -n 's/^PLAIT_LAUNCH_MEMORY=//p')
  states='' older=-1
  for ((try = 0; try < 1000; try++)); do
    halt "$victim" || break # it was done before
    states="$(word "/proc/$victim/fd/$a" 12 4) $(word "/proc/$victim/fd/$b" 12 4)"
    case $states in # 1: being written, 2: complete
    '1 2') older=$(word "/proc/$victim/fd/$b" 416 8) ;;
    '2 1') older=$(word "/proc/$victim/fd/$a" 416 8) ;;
    *) kill -CONT "$victim"; continue ;;
    esac
    break
  done
  [ "$older" -ge 0 ] || die "no copy was met: the last states are $states"
  kill -KILL "$victim"
  wait_for resumes inside.log $kill || { grep plait inside.log; die "inside: it does not resume"; }
  [ "$(from inside.log | tail -1)" -eq "$older" ] || fail "killed while step $((older + 1)) was copied, it resumes from step $(from inside.log | tail -1)"
done
wait $running || { tail inside.log; fail "inside: status $?"; }
running=''
same_run "$whole" inside

# ---- no restart is left: the next start has it ----

job last
# shellcheck disable=SC2086
"$PLAIT" launch --nproc-per-node 2 --rdzv-id "$id" recipe.yaml $base $rare checkpoint.memory_every=$every run.dir=last >last.log 2>&1 &
running=$!
at_step last 12
kill -KILL "$(worker "$id" 0)"
wait $running
running=''
# shellcheck disable=SC2086
expect 0 '^resuming from .*step-[0-9]*$' "$PLAIT" train recipe.yaml $base $rare run.dir=last
[ "$(from output)" -ge $((12 - every)) ] || fail "it resumes from step $(from output)"
same_run "$whole" last

# ---- several machines: a worker dies; a machine dies with what it has ----

job two
mkdir -p two/memory-1f-4 # what the machine that led a rescue of an earlier start has left when it died; it is gone at the end
for name in a b; do machine $name --nnodes 2 --max-restarts 2 recipe.yaml $base $rare checkpoint.memory_every=$every run.dir=two; done
for kill in 1 2; do
  at=$((kill * 12))
  wait_for find_worker "$id" $((kill - 1)) || die "there is no rank $((kill - 1))"
  at_step two $at
  before=$(last_step two)
  kill -KILL "$victim"
  wait_for eval '[ "$(cat a.log b.log | grep -c "^resuming")" -ge $kill ]' || { grep -h '^plait' ?.log; die "two does not resume"; }
  last=$(cat a.log b.log | sed -n 's/^resuming from .*step-\([0-9]*\)$/\1/p' | sort -n | tail -1)
  [ "$last" -ge $((before - every)) ] || fail "two: killed after step $before, it resumes from step $last"
done
all_end 0 a b
same_run "$whole" two
[ -z "$(find two -name 'memory-*' -o -name '*.tmp*')" ] || fail "two: $(ls two two/checkpoints)"

# lose NAME KEY=VALUE…: the machine of either rank, and a spare takes its place
lose() {
  local name=$1 other rest
  shift
  whole "$@"
  job "$name"
  # shellcheck disable=SC2086
  for machine in a b c; do machine $machine --nnodes 2:3 recipe.yaml $base $rare checkpoint.memory_every=$every "$@" run.dir="$name"; done
  at_step "$name" 2
  other=$(not_serving a b c)
  while [ -z "$(workers_of "$other")" ]; do other=$(not_serving $(echo a b c | tr -d "$other")); done
  at_step "$name" 12
  kill -KILL "${pid[$other]}"
  rest=$(echo a b c | tr -d "$other")
  all_end 137 "$other"
  # shellcheck disable=SC2086
  all_end 0 $rest
  same_run "$whole" "$name"
  [ -z "$(find "$name" -name 'memory-*' -o -name '*.tmp*')" ] || fail "$name: $(ls "$name" "$name/checkpoints")"
}
lose gone mesh.dp=2 parallel.zero=3
grep -qh 'is not saved: .*; what comes next resumes from the last checkpoint' ?.log || fail "nothing says that memory is lost: $(grep -h '^plait' ?.log)"
lose whole_machine mesh.dp=2 parallel.zero=0
grep -qh 'losing a machine loses no more: the ranks of each machine have all of the state' ?.log || fail "what is survived: $(grep -h 'kept in' ?.log)"
last=$(cat ?.log | sed -n 's/^resuming from .*step-\([0-9]*\)$/\1/p')
[ "${last:-0}" -ge $((12 - every)) ] || { grep -h '^plait' ?.log; fail "a machine was lost after step 12, and the run resumes from step $last"; }
extra() { python3 -c 'import json, sys; e = json.load(open(sys.argv[1]))["extra"]; print([(k, v) for k, v in e.items() if k != "recipe"])' "$1/checkpoints/step-$last/checkpoint.json"; }
[ "$(extra whole_machine)" = "$(extra "$whole")" ] || fail "another machine has saved $(extra whole_machine), not $(extra "$whole")"

# ---- the next machine has copies: a machine is lost under ZeRO 3, and nothing but the steps after the newest in memory ----

# steps_in MACHINE NAME: those of complete images in the files without names whose names begin so
steps_in() {
  local file
  for file in $(find "/proc/${pid[$1]}/fd" -lname "/memfd:plait $2,*"); do
    [ "$(stat -Lc %s "$file")" -gt 4096 ] && [ "$(word "$file" 12 4)" = 2 ] && word "$file" 416 8
  done
}
# newest_common: the newest step that both ranks have
newest_common() { { steps_in "${at[0]}" 'rank 0'; steps_in "${at[1]}" 'rank 1'; } | sort -n | uniq -d | tail -1; }
# copied MACHINE RANK: it has a copy of that step
copied() { steps_in "$1" "copy of rank $2" | grep -qx "$newest"; }

# knock MACHINE…: a connection that says nothing comes to each port for copies of these twice a second
knock() {
  local ports machine to
  trap - EXIT
  # shellcheck disable=SC2046 # words on purpose
  ports=$(ss -ltnpH | grep $(for machine; do printf ' -e pid=%s,' "${pid[$machine]}"; done) | sed -n 's/.*127\.0\.0\.1:\([0-9]*\) .*/\1/p' | grep -vx "$port")
  [ "$(wc -w <<<"$ports")" -eq $# ] || echo "ports for copies: $ports" >no_strangers
  while sleep 0.5; do
    for to in $ports; do exec {to}<>"/dev/tcp/127.0.0.1/$to"; done
    [ ! -e knocked.once ] || : >knocked
    : >knocked.once
  done
}

whole mesh.dp=2 parallel.zero=3
for lost in 0 1; do # the rank whose machine is lost; the other one's serves the store; the second time among strangers
  job "copied$lost"
  at=()
  at[lost]=b at[1 - lost]=a
  for machine in a b c; do
    place='' && [ $machine != c ] && place=--node-rank=$([ "${at[0]}" = $machine ] && echo 0 || echo 1)
    # shellcheck disable=SC2086
    machine $machine --nnodes 2:3 $place recipe.yaml $base $rare checkpoint.memory_every=$every checkpoint.copies=1 mesh.dp=2 parallel.zero=3 run.dir=copied$lost
    [ $machine != a ] || wait_for serves a || die "the first machine does not serve the store"
  done
  wait_for find_worker "$id" $lost || die "there is no rank $lost"
  if [ $lost = 1 ]; then
    kill -STOP "$victim"
    knock a b & running=$!
    wait_for test -e knocked || die "no strangers come"
    kill -CONT "$victim"
  fi
  at_step copied$lost 12
  kill -STOP "$victim" # the other one waits for it, so that what is in memory stays
  newest=''
  for ((look = 0; look < 100; look++)); do # until the other one has done all that it can
    before=$newest newest=$(newest_common)
    [ -n "$newest" ] && [ "$newest" = "$before" ] && break
    sleep 0.5
  done
  wait_for copied a $lost || { steps_in a 'copy of rank'; die "step $newest of rank $lost does not come to the next machine"; }
  wait_for copied b $((1 - lost)) || die "step $newest of rank $((1 - lost)) does not come to the first machine"
  [ -z "$running" ] || { kill "$running" && wait "$running"; } 2>/dev/null
  running=''
  kill -KILL "${pid[b]}"
  all_end 137 b
  all_end 0 a c
  same_run "$whole" copied$lost
  [ "$newest" -ge 9 ] && [ "$(cat a.log c.log | from /dev/stdin | tail -1)" = "$newest" ] ||
    { grep -h '^plait' ?.log; fail "step $newest was the newest in memory, and the run resumes from step $(cat a.log c.log | from /dev/stdin | tail -1)"; }
  grep -qh "^plait launch: step $newest was in the memory of the workers, and is saved now" a.log c.log || fail "not saved from memory: $(grep -h '^plait' ?.log)"
  grep -qh 'losing a machine loses no more: the next one has a copy of what each keeps (checkpoint.copies: 1)' ?.log || fail "what is survived: $(grep -h 'kept in' ?.log)"
  [ ! -e no_strangers ] || fail "$(cat no_strangers)"
  [ -z "$(find copied$lost -name 'memory-*' -o -name '*.tmp*')" ] || fail "copied$lost: $(ls copied$lost copied$lost/checkpoints)"
done

# ---- the plan; where there is no such memory ----

copy() { "$PLAIT" plan --bytes recipe.yaml $base checkpoint.every=2 "$@" | awk '/checkpoint copy  / { print $3 }'; }
[ "$(copy checkpoint.memory_every=5)" -eq $((2 * $(copy))) ] || fail "the plan has $(copy checkpoint.memory_every=5) bytes for two copies, and $(copy) for one"
[ "$(copy checkpoint.memory_every=5 checkpoint.async=off)" -eq "$(copy checkpoint.memory_every=5)" ] || fail "the plan of copies in memory alone"
[ "$(copy checkpoint.memory_every=5 checkpoint.copies=1)" -eq $((2 * $(copy checkpoint.memory_every=5))) ] || fail "the plan has $(copy checkpoint.memory_every=5 checkpoint.copies=1) bytes with copies on the next machine"
# shellcheck disable=SC2086
expect 2 'checkpoint.copies is 1, but checkpoint.memory_every is 0, so that there is nothing in memory to copy; give the steps' "$PLAIT" train recipe.yaml $base checkpoint.copies=1 run.dir=threads
# shellcheck disable=SC2086
expect 0 'note: checkpoint.copies is not used: there is one machine' "$PLAIT" launch --nproc-per-node 2 recipe.yaml $base schedule.steps=6 schedule.decay_steps=1 checkpoint.memory_every=2 checkpoint.copies=1 run.dir=one_machine
# shellcheck disable=SC2086
expect 0 'note: checkpoint.memory_every is not used: only under plait launch' "$PLAIT" train recipe.yaml $base schedule.steps=6 schedule.decay_steps=1 checkpoint.memory_every=2 run.dir=threads
finish
