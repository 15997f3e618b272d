#!/bin/bash
# tier 2 3; rooms comm net cmd
# needs test_crowds
# What listens, as docs/launch.md has it in its table: the listening sockets of supervisors and workers are these and no others, while a
# world is made and while it trains. Strangers at each of them are closed in time, and nothing else comes of them: no restart, no lost
# step, the run of threads to the bit.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1
unset UCX_TLS UCX_NET_DEVICES
strangers=$(dirname "$PLAIT")/test_crowds
[ -x "$strangers" ] || die "no $strangers"
count=2000
[ "$tier" -lt 3 ] || count=20000 # test_crowds itself has more

# listening PROCESS…: "PROCESS ADDRESS:PORT" of each socket of TCP at which one of them listens, sorted
listening() {
  local p
  for p in "$@"; do ss -ltnpH | awk -v p="$p" 'index($0, "pid=" p ",") { print p, $4 }'; done | sort -u
}
# visit ADDRESS:PORT…: strangers at all of them, at the same time
visit() {
  local at visits=()
  for at in "$@"; do
    "$strangers" "${at%:*}" "${at##*:}" $count $((11 * patience)) >"visit.${at##*:}" 2>&1 &
    visits+=($!)
  done
  for at in "$@"; do
    wait "${visits[0]}" || fail "strangers at $at: $(cat "visit.${at##*:}")"
    visits=("${visits[@]:1}")
    echo "$at: $(cat "visit.${at##*:}")"
  done
}
# undisturbed RUN LOG…: one round, no restart, and no word of a failure
undisturbed() {
  local run=$1
  shift
  same_run threads "$run"
  [ "$(tail -1 "$run/launch.jsonl")" = '{"rounds": 1, "restarts": 0, "status": 0}' ] || fail "$run: $(cat "$run/launch.jsonl")"
  ! grep -h '^plait' "$@" | grep -vE 'the copy of step|has joined|has closed' | grep -E 'killed|failed|lost|silent|starting all|gone' || fail "$run: strangers have had an effect"
}

long="schedule.steps=150 checkpoint.every=5"
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $long run.dir=threads >log 2>&1 || { cat log; die "the run of threads"; }

# ---- one machine: rank 0's port at the loopback interface, until all ranks have come; then none ----

# Rank 1 waits until it may come.
mkdir bin
cat >bin/late <<'LATE'
#!/bin/bash
[ "$RANK" = 0 ] || until [ -e go ]; do sleep 0.05; done
exec "$PLAIT" train recipe.yaml $long run.comm=net "run.dir=$run"
LATE
chmod +x bin/late
export PLAIT long run=one
"$PLAIT" launch --nproc-per-node 2 --rdzv-id "one$$" --max-restarts 2 -- bin/late >one.log 2>&1 &
running=$!
rank_0_listens() { zero=$(worker "one$$" 0) && [ -n "$(listening "$zero")" ]; }
wait_for rank_0_listens || { cat one.log; die "rank 0 does not listen"; }
all=$(listening "$running" $(pgrep -P "$running") $(workers "one$$"))
port_of_0=$(tr '\0' '\n' </proc/"$zero"/environ | sed -n 's/^MASTER_PORT=//p')
at=127.0.0.1:$((port_of_0 + 1)) # MASTER_PORT itself is where torchrun's store would be
[ "$all" = "$zero $at" ] || fail "one machine, while the world is made: $all"
visit $at
# Who knows all that a rank of the run is told, but for its secret, is not taken for rank 1. It tries for 3 s, and rank 1 comes then.
mapfile -d '' -t words < <(grep -zvE '^(PLAIT_JOB_SECRET|PLAIT_LAUNCH_[A-Z]*|RANK|PLAIT_RANK|LOCAL_RANK)=' /proc/"$zero"/environ)
env -i "${words[@]}" RANK=1 PLAIT_RANK=1 LOCAL_RANK=1 timeout 3 "$PLAIT" train recipe.yaml run.comm=net run.dir=stranger >stranger.log 2>&1 &&
  fail "a stranger has trained as rank 1"
touch go
at_step one 5
all=$(listening "$running" $(pgrep -P "$running") $(workers "one$$"))
[ -z "$all" ] || fail "one machine, while it trains: $all"
wait "$running" || { cat one.log; fail "one machine: status $?"; }
running=''
same_run threads one
! grep -E 'killed|failed|starting all|gone' one.log || fail "one machine: strangers have had an effect"

# ---- two machines: the store, and where each takes copies ----

# two RUN WORD…: a job of two supervisors, with these words, and strangers at its ports
two() {
  local name=$1 all store_of='' p
  shift
  job "$name"
  local words=(--nnodes 2 --max-restarts 2 "$@" recipe.yaml "schedule.steps=150" checkpoint.every=5 checkpoint.memory_every=3 checkpoint.copies=1 "run.dir=$name")
  machine a "${words[@]}"
  wait_for serves a || { cat a.log; die "$name: no store"; }
  all=$(listening "${pid[a]}")
  [ "$all" = "${pid[a]} $store" ] || fail "$name, the first machine: $all"
  visit "$store"
  machine b "${words[@]}"
  at_step "$name" 5
  # shellcheck disable=SC2046
  all=$(listening "${pid[a]}" "${pid[b]}" $(pgrep -P "${pid[a]}") $(pgrep -P "${pid[b]}") $(workers "$id"))
  for p in a b; do serves $p && store_of=${pid[$p]}; done
  [ "$(wc -l <<<"$all")" -eq 3 ] || fail "$name: $all"
  grep -qx "$store_of $store" <<<"$all" || fail "$name: no store at $store: $all"
  for p in a b; do
    [ "$(grep -v " $store\$" <<<"$all" | grep -c "^${pid[$p]} 127\.0\.0\.1:")" -eq 1 ] || fail "$name: not one port for copies of $p: $all"
  done
  # shellcheck disable=SC2046
  visit $(cut -d' ' -f2 <<<"$all") # as long as it lasts
  all_end 0 a b
  undisturbed "$name" a.log b.log
}
two plain
"$PLAIT" launch --make-secret key
if "$PLAIT" launch --secret key -- true 2>/dev/null; then two secret --secret key; else echo "not tried: a build without GnuTLS"; fi
finish
