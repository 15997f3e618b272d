#!/bin/bash
# tier 3; rooms comm train cmd; numbers
# plait launch on several machines, which are several supervisors here: they lose, gain and wait for machines; what they
# refuse (test_two_machines.sh has what goes well, test_member.c has other versions and folders, and taken ports).
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1

long='schedule.steps=150 checkpoint.every=5'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $long run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }

# ---- no restart is left ----

job last
for name in a b; do machine $name --nnodes 2 recipe.yaml $long schedule.steps=100000 run.dir=last; done
at_step last 7
kill -KILL "$(worker "$id" 1)"
all_end 137 a b
no_workers "$id" || fail "workers are left over"

# ---- fewer than MIN: the others wait; goodbye and join are at a step, which is saved ----

job wait
for name in a b; do machine $name --nnodes 2 recipe.yaml $long run.dir=wait; done
at_step wait 12
other=$(not_serving a b)
stay=$(echo a b | tr -d "$other ")
kill -TERM "${pid[$other]}"
all_end 143 "$other"
wait_for grep -q 'waiting for machines: 1 of at least 2 is here' $stay.log || { cat $stay.log; die "it does not wait"; }
saved=$(last_step wait)
[ -d "wait/checkpoints/step-$saved" ] || fail "goodbye after step $saved, which is not saved"
[ "$(cat a.log b.log | grep -c "^step $saved is saved; machines join or leave, and training resumes from this step\$")" -eq 1 ] &&
  [ "$(cat a.log b.log | grep -c '^plait: machines join or leave: stopping after this step, which is saved then$')" -eq 1 ] &&
  ! grep -qE '^(stopped by|next  |plait: SIG)' a.log b.log || fail "goodbye reads like the end of the run: $(tail -n 20 a.log b.log)"
machine c --nnodes 2 recipe.yaml $long run.dir=wait
all_end 0 "$stay" c
same_run whole wait
[ "$(tail -1 wait/launch.jsonl)" = '{"rounds": 2, "restarts": 0, "status": 0}' ] || fail "launch.jsonl: $(cat wait/launch.jsonl)"
grep -q "\"first_step\": $((saved + 1))" wait/launch.jsonl || fail "it does not go on after step $saved: $(cat wait/launch.jsonl)"

# ---- one that is stopped (SIGSTOP) is lost, and comes back as another one ----

# freeze NAME STEPS: a job of three of which one, $other, with the processes $frozen, is stopped, and the others, $rest, go on
freeze() {
  local name
  job "$1"
  for name in a b c; do machine $name --nnodes 2:3 --silence 1 recipe.yaml $long schedule.steps="$2" run.dir="$1"; done
  at_step "$1" 10
  other=$(not_serving a b c)
  while [ -z "$(workers_of "$other")" ]; do other=$(not_serving $(echo a b c | tr -d "$other")); done
  rest=$(echo a b c | tr -d "$other")
  frozen="${pid[$other]} $(workers_of "$other")"
  kill -STOP $frozen
  wait_for grep -q 'was lost' $(for name in $rest; do echo $name.log; done) || { cat ?.log; die "silence is not noticed"; }
  wait_for grep -q '"round": 1,' "$1/launch.jsonl" || { cat ?.log; die "no next round"; }
}
freeze frozen 400
kill -CONT $frozen
wait_for grep -q 'the workers here are ended' $other.log || { cat $other.log; fail "the machine that woke does not notice"; }
all_end 0 a b c
[ "$(grep -c '"loss"' frozen/metrics.jsonl)" -eq 400 ] || fail "frozen has $(grep -c '"loss"' frozen/metrics.jsonl) lines of steps"
grep -q '"restarts": 0, "status": 0}' frozen/launch.jsonl || fail "launch.jsonl: $(tail -1 frozen/launch.jsonl)"

# ---- one that wakes when the job has ended ends, too ----

freeze missed 100000
read -r one _ <<<"$rest" # where a is stopped, $rest begins with a blank
kill -USR1 "${pid[$one]}"
all_end 75 $rest
kill -CONT $frozen
wait_for grep -q 'the job has ended, with status 75, while this machine was cut off' $other.log || { cat $other.log; die "the machine that woke does not know that the job has ended"; }
all_end 75 "$other"
[ "$(grep -c '"status"' missed/launch.jsonl)" -eq 1 ] || fail "the end is told twice: $(cat missed/launch.jsonl)"

# ---- SIGUSR1 stops all of the job ----

job stop
for name in a b; do machine $name --nnodes 2 recipe.yaml $long schedule.steps=100000 run.dir=stop; done
at_step stop 7
kill -USR1 "${pid[a]}"
wait "${pid[a]}"; first=$?
wait "${pid[b]}"; second=$?
{ [ $first -eq $second ] && { [ $first -eq 138 ] || [ $first -eq 75 ]; }; } || { cat a.log b.log; fail "USR1: status $first and $second"; }
[ -d "stop/checkpoints/step-$(last_step stop)" ] || fail "USR1: nothing is saved"

# ---- signals of the end come more than once: Slurm and closing terminals send several ----

job twice
machine a --nnodes 1:2 --nproc-per-node 2 recipe.yaml $long schedule.steps=100000 run.dir=twice
at_step twice 7
kill -HUP "${pid[a]}"
kill -TERM "${pid[a]}"
wait "${pid[a]}"; status=$?
[ $status -eq 129 ] || [ $status -eq 143 ] || { cat a.log; fail "HUP and TERM: status $status"; }
[ -d "twice/checkpoints/step-$(last_step twice)" ] || { cat a.log; fail "HUP and TERM: nothing is saved"; }
# With the last machine the job has ended: its folder says so, and whoever comes next need not wait.
tail -n 1 twice/launch.jsonl | grep -q "^{\"rounds\": 1, \"restarts\": 0, \"status\": $status}" || { cat twice/launch.jsonl; fail "HUP and TERM: the end is not in launch.jsonl"; }
grep -q "^[^ ]* -$((status + 2)) " twice/rendezvous-1 || { cat twice/rendezvous-1; fail "HUP and TERM: the lease does not say that the job has ended"; }

# ---- a long wait names what is missing, and where ----

# One worker fails, and the other does not end before --grace has passed. Meanwhile other tests continue.
job ends
for name in x y; do machine $name --nnodes 2 --grace 14 -- bash -c '[ "$RANK" = 0 ] && exit 3; trap "" TERM; exec sleep 60'; done
ends="${pid[x]} ${pid[y]}" ends_at=$store

# ---- one that serves the store is stopped, and wakes before the others have another, a member still or lost: no restart is counted ----

job pause
for name in a b; do machine $name --nnodes 2 recipe.yaml $long schedule.steps=100000 run.dir=pause; done
at_step pause 20
other=$(not_serving a b)
serving=$(echo a b | tr -d "$other ")
frozen="${pid[$serving]} $(workers_of "$serving")"
kill -STOP $frozen
sleep 6 # --silence is 5
kill -CONT $frozen
wait_for grep -qE '(was stopped for longer than --silence|was lost.*); round 1 has 2 machines' a.log b.log || { cat a.log b.log; die "a pause ends the job"; }
wait_for grep -q '"round": 1,.*"restarts": 0' pause/launch.jsonl || { cat a.log b.log; fail "a pause is a restart: $(cat pause/launch.jsonl)"; }
kill -USR1 "${pid[a]}"
all_end 75 a b

# ---- what is refused ----

job refused
machine a --nnodes 2 recipe.yaml $long run.dir=refused
wait_for grep -q 'waiting for machines' a.log || die "it does not wait: $(cat a.log)"
common="--nnodes 2 --rdzv $store"
# shellcheck disable=SC2086
{
  refuse 2 "the job at $store runs something else: run.seed is 8 here and 7 there; give all machines the same" timeout -k 2 20 "$PLAIT" launch $common --rdzv-id "$id" recipe.yaml $long run.seed=8 run.dir=refused
  refuse 2 'is another job than --rdzv-id another; give another port' timeout -k 2 20 "$PLAIT" launch $common --rdzv-id another recipe.yaml $long run.dir=refused
  refuse 2 'run.dir .*refused is in use by another job, whose store is at' timeout -k 2 20 "$PLAIT" launch --nnodes 2 --rdzv 127.0.0.1:$((port + 1)) --rdzv-id "$id" recipe.yaml $long run.dir=refused
}
wait_for grep -q "^plait launch: still waiting after 10 s (store at $store): only these machines have joined: $(hostname)\$" a.log || fail "a wait does not say who is here: $(cat a.log)"
kill -TERM "${pid[a]}"
all_end 143 a
for p in $ends; do
  wait "$p"
  status=$?
  [ $status -eq 3 ] || fail "a worker that failed with status 3: the job ends with $status"
done
[ "$(cat x.log y.log | grep -c "^plait launch: still waiting after 10 s (store at $ends_at): round 0 ends as soon as the workers of $(hostname) have ended\$")" -eq 1 ] ||
  fail "a round that does not end: $(cat x.log y.log)"
expect 1 '^plait launch: no store answers at 192.0.2.7:29400 within 1 s; is plait launch running there' "$PLAIT" launch --nnodes 2 --rdzv 192.0.2.7:29400 --insecure --rdzv-timeout 1 recipe.yaml run.dir=nobody
refuse 2 'pp 1 × dp 2 × cp 1 × tp 2 is 4 ranks, but 2 machines with --nproc-per-node 1 start 2; give --nproc-per-node 2 or --nnodes 4' \
  "$PLAIT" launch --nnodes 2 --nproc-per-node 1 --rdzv 127.0.0.1:29400 recipe.yaml mesh.tp=2
refuse 2 'pp 1 × cp 1 × tp 4 takes a multiple of 4 ranks, but 3 machines with --nproc-per-node 1 start 3; give --nproc-per-node 2 or --nnodes 4' \
  "$PLAIT" launch --nnodes 1:3 --nproc-per-node 1 --rdzv 127.0.0.1:29400 recipe.yaml mesh.dp=auto mesh.tp=4
refuse 2 'give all machines where they meet, one of them and a port, as in --rdzv hostA:29400' "$PLAIT" launch --nnodes 2 recipe.yaml
refuse 2 'give --secret, or in a network that you trust --insecure' "$PLAIT" launch --nnodes 2 --rdzv 192.0.2.7:29400 recipe.yaml
refuse 2 '"nowhere" is not HOST:PORT' "$PLAIT" launch --nnodes 2 --rdzv nowhere recipe.yaml
refuse 2 '--node-rank 2, but the machines of --nnodes 2 have the numbers 0 to 1' "$PLAIT" launch --nnodes 2 --rdzv 127.0.0.1:29400 --node-rank 2 recipe.yaml
refuse 2 '--rdzv and --rdzv-endpoint say the same' "$PLAIT" launch --nnodes 2 --rdzv 127.0.0.1:1 --rdzv-endpoint 127.0.0.1:1 recipe.yaml
python3 -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True)
while True: c, _ = s.accept(); c.sendall(b"x" * 64)' >other.port &
running=$!
wait_for test -s other.port
refuse 2 'what listens at .* is not plait launch; choose another port' "$PLAIT" launch --nnodes 2 --rdzv "127.0.0.1:$(cat other.port)" recipe.yaml
kill $running
running=''
finish
