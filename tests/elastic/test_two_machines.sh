#!/bin/bash
# tier 2; rooms comm train; numbers
# plait launch on two and three machines, which are supervisors here: they meet, restart together when a worker is killed, and continue without
# a machine that is lost. test_machines.sh has more of what may happen.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1

long='schedule.steps=150 checkpoint.every=5'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $long run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }

# ---- the run of threads; torchrun's words and variables ----

job two
machine a --nnodes 2 recipe.yaml $long run.dir=two
machine b --nnodes 2 recipe.yaml $long run.dir=two
all_end 0 a b
same_run whole two
[ "$(tail -1 two/launch.jsonl)" = '{"rounds": 1, "restarts": 0, "status": 0}' ] || fail "launch.jsonl: $(cat two/launch.jsonl)"
[ "$(grep -o '"ranks": \[[01], [01]\]' two/launch.jsonl | tr '\n' ' ')" = '"ranks": [0, 0] "ranks": [1, 1] ' ] || fail "members: $(cat two/launch.jsonl)"
[ "$(cut -d ' ' -f 2 two/rendezvous-*)" = -2 ] || fail "the store's lease does not say that the job has ended: $(cat two/rendezvous-*)"

all='echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RUN_ID"'
job torch
for name in a b; do
  node=1 # the one that comes first wants to be second
  [ $name = b ] && node=0
  "$PLAIT" launch --nnodes=2 --nproc_per_node=$((node + 1)) --rdzv-backend=c10d --rdzv_endpoint="$store" --rdzv_id=torch$$ --node_rank=$node \
    --max_restarts=1 -- bash -c "$all" >$name.log 2>&1 &
  pid[$name]=$!
done
all_end 0 a b
[ "$(grep -h '^[0-9]' a.log b.log | sort)" = "0 3 0 1 0 2 127.0.0.1 torch$$
1 3 0 2 1 2 127.0.0.1 torch$$
2 3 1 2 1 2 127.0.0.1 torch$$" ] || fail "variables: $(cat a.log b.log)"

# ---- a worker is killed: told once, counted once ----

job killed
for name in a b; do machine $name --nnodes 2 --max-restarts 2 recipe.yaml $long run.dir=killed; done
for at in 20 45; do
  wait_for find_worker "$id" $((at / 40)) || die "there is no rank $((at / 40))"
  at_step killed $at
  kill -KILL "$victim"
  wait_for grep -q "rank $((at / 40)) on .* (pid $victim) was killed by SIGKILL .*; its last .*; starting all 2 workers again (restart $((at / 40 + 1)) of 2)" a.log b.log ||
    { grep -h '^plait' a.log b.log; die "no word of rank $((at / 40))"; }
done
all_end 0 a b
same_run whole killed
[ "$(cat a.log b.log | grep -c '^plait launch: rank .* was killed by SIGKILL')" -eq 2 ] || fail "failures are not told once: $(grep -h '^plait' a.log b.log)"
[ "$(cat a.log b.log | grep -c '^plait launch: rank .* failed')" -eq 2 ] || fail "others do not name the rank: $(grep -h '^plait' a.log b.log)"
[ "$(tail -1 killed/launch.jsonl)" = '{"rounds": 3, "restarts": 2, "status": 0}' ] || fail "launch.jsonl: $(tail -1 killed/launch.jsonl)"
echo "worker killed -> next step: $(seconds_of killed 'rank') s"

# ---- a worker gets the signal that says that the time is up: the job ends, and is to be started again ----

job warned
for name in a b; do machine $name --nnodes 2 --max-restarts 2 recipe.yaml $long schedule.steps=100000 run.dir=warned; done
at_step warned 7
kill -USR1 "$(worker "$id" 1)"
all_end 75 a b
[ "$(tail -1 warned/launch.jsonl)" = '{"rounds": 1, "restarts": 0, "status": 75}' ] || fail "launch.jsonl: $(cat warned/launch.jsonl)"

# ---- programs are stopped: that they end with status 0 does not say that they are done ----

job stopped
for name in a b; do machine $name --nnodes 2 -- bash -c 'trap "exit 0" USR1; touch ready.$RANK; while :; do sleep 0.1; done'; done
ready() { [ -e ready.0 ] && [ -e ready.1 ]; }
wait_for ready || die "the programs do not start"
kill -USR1 "${pid[b]}"
all_end 75 a b

# ---- a machine is lost, a spare takes its place; a worker's failure that follows does not count ----

job lost
for name in a b c; do machine $name --nnodes 1:3 recipe.yaml $long run.dir=lost; done
at_step lost 10
wait_for grep -q 'is a spare in round 0' a.log b.log c.log || { cat a.log b.log c.log; die "no spare"; }
other=$(not_serving a b c)
while [ -z "$(workers_of "$other")" ]; do other=$(not_serving $(echo a b c | tr -d "$other")); done
kill -KILL "${pid[$other]}"
rest=$(echo a b c | tr -d "$other")
all_end 137 "$other"
all_end 0 $rest
same_run whole lost
[ "$(tail -1 lost/launch.jsonl)" = '{"rounds": 2, "restarts": 0, "status": 0}' ] || fail "launch.jsonl: $(cat lost/launch.jsonl)"
cat $(for n in $rest; do echo $n.log; done) | grep -qE 'was lost \(rank [01] on .* has died: its connection has ended; its last [^)]* of 2 ranks\), is .*\); round 1 has' ||
  fail "what the others saw of the lost machine: $(grep -h 'was lost' ?.log)"
echo "machine killed -> next step: $(seconds_of lost 'was lost') s after it was noticed"
finish
