#!/bin/bash
# tier 2 3; rooms comm train cmd; numbers
# plait launch on one machine: the run of threads to the bit; workers that are killed, fail or hang; restarts; a supervisor that is
# stopped or killed; what cannot be started; logs.
. "$SOURCE/tests/elastic/environment.sh" || exit 1

"$PLAIT" launch --nproc-per-node 2 recipe.yaml schedule.steps=8 run.dir=first >log 2>&1

# ---- the run of threads ----

"$PLAIT" train recipe.yaml run.dir=threads >log 2>&1 || { cat log; die "the run of threads"; }
"$PLAIT" launch --nproc-per-node 2 recipe.yaml run.dir=two run.comm=auto >log 2>&1 || { cat log; fail "two workers"; }
same_run threads two
[ "$(grep -c '^{"round": 0, "cause": "start", "restarts": 0, .*"first_step": 1' two/launch.jsonl)" -eq 1 ] || fail "launch.jsonl: $(cat two/launch.jsonl)"
[ "$(tail -1 two/launch.jsonl)" = '{"rounds": 1, "restarts": 0, "status": 0}' ] || fail "launch.jsonl: $(tail -1 two/launch.jsonl)"
sed 's/^run: *{/run: {comm: local, /' recipe.yaml >threads.yaml # a recipe that is written for threads
"$PLAIT" launch --nproc-per-node auto threads.yaml run.dir=auto >log 2>&1 || { cat log; fail "as many as the mesh has ranks"; }
same_run threads auto
grep -q '"ranks": \[0, 1\]' auto/launch.jsonl || fail "auto starts $(cat auto/launch.jsonl)"
# The run's recipe keeps run.comm as the user wrote it: plait train goes back, and trains longer, with threads; plait launch with processes.
[ "$(sed -n 's/.*comm: *\([a-z]*\).*/\1/p' first/recipe.yaml auto/recipe.yaml | tr '\n' ' ')" = 'auto local ' ] || fail "run.comm: $(grep -H comm: first/recipe.yaml auto/recipe.yaml)"
expect 0 'resuming from .*step-4' "$PLAIT" train --force first/recipe.yaml checkpoint.resume=first/checkpoints/step-4
expect 0 'finished at step 12 of 12' "$PLAIT" train first/recipe.yaml schedule.steps=12
expect 0 'finished at step 40 of 40' "$PLAIT" launch --nproc-per-node 2 first/recipe.yaml schedule.steps=40
[ "$(tail -1 first/launch.jsonl)" = '{"rounds": 1, "restarts": 0, "status": 0}' ] || fail "launch.jsonl: $(tail -1 first/launch.jsonl)"

# ---- workers that are killed: the run continues as if nothing had happened ----

long='schedule.steps=120 checkpoint.every=5'
# The step in which a worker was killed, and its last call
where='((in training|while saving) step [0-9]+|while evaluating); its last [^;]* of (a communicator of )?2 ranks\),? (is|waits)[^;]*'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $long run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }
# shellcheck disable=SC2086
"$PLAIT" launch --nproc-per-node 2 --rdzv-id "kill$$" --max-restarts 2 recipe.yaml $long run.dir=killed >log 2>&1 &
running=$!
for at in 20 45; do
  wait_for find_worker "kill$$" $((at / 40)) || { cat log; die "there is no rank $((at / 40))"; }
  wait_for grep -q "\"step\": $at," killed/metrics.jsonl || { cat log; die "the run does not come to step $at"; }
  kill -KILL "$victim"
  wait_for grep -qE "^plait launch: rank $((at / 40)) on .* \(pid $victim\) was killed by SIGKILL $where; starting all 2 workers again" log ||
    { echo "$victim, $(worker "kill$$" 0)"; grep plait log; die "no word of rank $((at / 40))"; }
done
wait $running || { cat log; fail "the run that was killed twice"; }
running=''
same_run whole killed
[ "$(grep -c '"loss"' killed/metrics.jsonl)" -eq 120 ] || fail "killed has $(grep -c '"loss"' killed/metrics.jsonl) lines of steps"
[ "$(grep -c '^plait launch: rank' log)" -eq 2 ] || { grep plait log; fail "failures are not printed once"; }
[ "$(tail -1 killed/launch.jsonl)" = '{"rounds": 3, "restarts": 2, "status": 0}' ] || fail "launch.jsonl: $(tail -1 killed/launch.jsonl)"
python3 - killed/launch.jsonl <<'PYTHON' || fail "launch.jsonl: $(cat killed/launch.jsonl)"
import json, sys
rounds = [json.loads(line) for line in open(sys.argv[1])][:-1]
assert [r["round"] for r in rounds] == [0, 1, 2] and [r["restarts"] for r in rounds] == [0, 1, 2]
assert all(r["seconds_to_step"] > 0 for r in rounds) and "SIGKILL" in rounds[1]["cause"]
PYTHON
echo "worker killed -> next step: $(sed -n 's/.*"cause": "rank.*"seconds_to_step": \([0-9.]*\).*/\1/p' killed/launch.jsonl | tr '\n' ' ')s"

# ---- no restart is left: the others end by themselves, and not by the SIGKILL that follows --grace ----

grace=$((60 * patience))
by_themselves() { awk "BEGIN { exit !($EPOCHREALTIME - $began < $grace) }" || fail "$1: all ended after $(awk "BEGIN { print $EPOCHREALTIME - $began }") s"; }
# shellcheck disable=SC2086
"$PLAIT" launch --nproc-per-node 2 --grace $grace --rdzv-id "last$$" recipe.yaml $long schedule.steps=100000 run.dir=last >log 2>&1 &
running=$!
wait_for grep -q '"step": 7,' last/metrics.jsonl || { cat log; die "last does not start"; }
began=$EPOCHREALTIME
kill -KILL "$(worker "last$$" 1)"
wait $running
[ $? -eq 137 ] || fail "status after a worker was killed"
running=''
by_themselves "a worker was killed"
grep -qE "^plait launch: rank 1 on .* was killed by SIGKILL $where\$" log || { cat log; fail "no sentence"; }
no_workers "last$$" || fail "workers are left over: $(workers "last$$")"
tail -1 last/launch.jsonl | grep -q '^{"rounds": 1, "restarts": 0, "status": 137, "failure": "rank 1 on .* was killed by SIGKILL .*", "rank": 1}$' || fail "launch.jsonl: $(tail -1 last/launch.jsonl)"
# A sentence that a surviving rank said meanwhile is not how the other ended; one of a later start, which plait launch does not know, is.
echo '{"state": "failed", "sentence": "rank 1 has died: its connection has ended"}' >last/ended.json
touch -r last/launch.jsonl last/ended.json
expect 0 '^last .*failed: rank 1 on .* was killed by SIGKILL' "$PLAIT" runs last
touch -d '1 minute' last/ended.json
expect 0 '^last .*failed: rank 1 has died: its connection has ended' "$PLAIT" runs last

# ---- a full disk is not tried again: training would come to the same save each time ----

mkdir full
if mount -t tmpfs -o size=1600k plait-test full 2>/dev/null; then
  mounted=$work/full
  for async in off on; do
    expect 1 '^plait launch: rank [01] on .*: cannot be written: No space left on device.*; nothing is started again, since that would end in the same way$' \
      "$PLAIT" launch --nproc-per-node 2 --max-restarts 3 recipe.yaml schedule.steps=40 checkpoint.every=2 checkpoint.keep=0 checkpoint.async=$async run.dir=full/run
    grep -q 'starting all' output && fail "a full disk is tried again"
    tail -1 full/run/launch.jsonl 2>/dev/null | grep -q '"restarts": [1-9]' && fail "a restart is counted: $(cat full/run/launch.jsonl)"
    rm -rf full/run
  done
  umount full && mounted=
fi

# ---- killed while a checkpoint is written: rank 0, which has written its part, does not wait for that of the dead ----

if [ "$tier" -ge 3 ]; then # to find the moment takes time
  # shellcheck disable=SC2086
  "$PLAIT" launch --nproc-per-node 2 --grace $grace --rdzv-id "part$$" recipe.yaml $long schedule.steps=100000 checkpoint.every=1 run.dir=part >log 2>&1 &
  running=$!
  wait_for grep -q '"step": 7,' part/metrics.jsonl || { cat log; die "part does not start"; }
  victim=$(worker "part$$" 1)
  alone() { compgen -G 'part/checkpoints/step-*.tmp/part-00000*.checksum' >/dev/null && ! compgen -G 'part/checkpoints/step-*.tmp/part-00001*.checksum' >/dev/null; }
  for ((try = 0; try < 500; try++)); do
    halt "$victim" # a thread that is inside of a call of the system, such as one that makes the file, ends it first
    for ((look = 0; look < 5; look++)); do alone && break 2 || sleep 0.01; done
    kill -CONT "$victim"
    sleep 0.00$((RANDOM % 10))
  done
  alone || die "rank 1 was never stopped inside of writing"
  began=$EPOCHREALTIME
  kill -KILL "$victim"
  wait $running
  [ $? -eq 137 ] || fail "status after a worker was killed inside of writing"
  running=''
  by_themselves "killed inside of writing"
  grep -qE "^plait launch: rank 1 on .* was killed by SIGKILL $where\$" log || { cat log; fail "no sentence of rank 1"; }
fi

# ---- a supervisor that is stopped, or killed ----

# Slurm signals workers and their supervisor, which passes it on; somebody else may signal only a worker.
for signal in TERM USR1 both one; do
  [ "$tier" -ge 3 ] || [ $signal = TERM ] || [ $signal = one ] || continue
  name=stop$signal
  # shellcheck disable=SC2086
  "$PLAIT" launch --nproc-per-node 2 --rdzv-id "$name$$" recipe.yaml $long schedule.steps=100000 run.dir=$name >log 2>&1 &
  running=$!
  wait_for grep -q '"step": 7,' $name/metrics.jsonl || { cat log; die "$name does not start"; }
  case $signal in
  both) kill -TERM $(workers "$name$$") $running && signal=TERM ;;
  one) kill -USR1 "$(worker "$name$$" 1)" && signal=USR1 ;;
  *) kill -$signal $running ;;
  esac
  wait $running
  status=$?
  running=''
  expected=143
  [ $signal = USR1 ] && expected=75
  [ $status -eq $expected ] || { tail -3 log; fail "$name: status $status"; }
  grep -q "stopped by SIG$signal after step" log || { tail log; fail "$name: nothing is saved"; }
  grep -q '^plait launch' log && { tail log; fail "$name: a stop is told as a failure"; }
  no_workers "$name$$" || fail "$name: workers are left over"
done
# Processes that workers have started die, too.
"$PLAIT" launch --nproc-per-node 2 --rdzv-id "orphan$$" -- bash -c 'sleep 1000 & sleep 1000' >log 2>&1 &
running=$!
six() { [ "$(workers "orphan$$" | wc -l)" -eq 6 ]; }
wait_for six || fail "there are $(workers "orphan$$" | wc -l) processes, not 2 shells and 4 sleeps"
{ kill -KILL $running; wait $running; } 2>/dev/null
running=''
wait_for no_workers "orphan$$" || { fail "orphans: $(workers "orphan$$")"; kill -KILL $(workers "orphan$$"); }

# ---- programs: variables, statuses, one that does not end, logs ----

all='echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID"'
"$PLAIT" launch --nproc-per-node=3 --nnodes=1 --standalone --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id=some --max-restarts=4 -- bash -c "$all" >log 2>&1 || fail "variables"
[ "$(sort log)" = "$(for r in 0 1 2; do echo "$r 3 $r 3 0 127.0.0.1 0 4 some"; done)" ] || { cat log; fail "torchrun's variables"; }
# shellcheck disable=SC2016
expect 3 'rank 1 on .* ended with status 3; the restart of --max-restarts is used up' "$PLAIT" launch --nproc-per-node 2 --max-restarts 1 -- bash -c '[ $RANK = 1 ] && exit 3; sleep 100'
[ "$(grep -c '^plait launch' output)" -eq 2 ] || { cat output; fail "not one sentence for each failure"; }
mkfifo stays
SECONDS=0
# shellcheck disable=SC2016
expect 5 'rank 0 on .* ended with status 5' "$PLAIT" launch --nproc-per-node 2 --grace 0.5 -- bash -c '[ $RANK = 0 ] && read -r <stays && exit 5; trap "" TERM; echo >stays; exec sleep 1000'
[ $SECONDS -lt $((30 * patience)) ] || fail "--grace took $SECONDS s"
# shellcheck disable=SC2016
expect 0 '^\[1\] out 1' "$PLAIT" launch --nproc-per-node 2 --log-dir logs --tee -- bash -c 'echo out $RANK; printf "error %s" $RANK >&2'
[ "$(cat logs/round-0/rank-1.out logs/round-0/rank-0.err)" = $'out 1\nerror 0' ] || fail "logs: $(tail logs/*/*)"
grep -q '^\[0\] error 0' output || { cat output; fail "a line without its end"; }
# tee WORDS EXPECTED: what comes to the console of two streams
tee_prints() {
  local expected=$1
  shift
  "$PLAIT" launch --log-dir logs "$@" -- bash -c 'echo out; echo error >&2' >output 2>&1 || fail "$*: $(cat output)"
  [ "$(sort output | tr '\n' ' ')" = "$expected" ] || { cat output; fail "$*"; }
}
tee_prints '[0] out ' --tee=1
tee_prints '[0] error ' --tee 2
tee_prints '[0] error [0] out ' --tee=3 --monitor-interval=0.1 --rdzv_conf=timeout=60
tee_prints '' --tee 0
"$PLAIT" launch --tee 0 --nproc_per_node 1 -- true >output 2>&1 || fail "--tee 0 without --log-dir: $(cat output)"
"$PLAIT" launch --log-dir quiet recipe.yaml run.dir=quiet schedule.steps=8 >output 2>&1 || fail "--log-dir: status $?"
[ ! -s output ] && grep -q 'finished at step 8 of 8' quiet/round-0/rank-0.out || { cat output; fail "--log-dir"; }
if [ "$(nproc)" -ge 2 ]; then
  # shellcheck disable=SC2016
  "$PLAIT" launch --nproc-per-node 2 -- bash -c 'taskset -p $$ | sed "s/.*: //"' >log 2>&1
  [ "$(sort -u log | wc -l)" -eq 2 ] || { cat log; fail "workers have the same cores"; }
fi

# ---- a worker's own sentence, and what a restart does not mend ----

mkdir unwritable
touch unwritable/checkpoints
refuse 2 '^plait launch: .*data.train: .*nothing' "$PLAIT" launch --nproc-per-node 2 --max-restarts 5 recipe.yaml data.train=nothing run.dir=wrong
touch file
for bad in "$work/file" "$work/file/below"; do
  refuse 2 "^plait launch: run.dir: $work/file(: exists and is not a folder|/below: cannot be created: Not a directory)" "$PLAIT" launch --nproc-per-node 2 --max-restarts 3 recipe.yaml run.dir="$bad"
  refuse 2 "^plait launch: run.dir: $work/file" "$PLAIT" launch --nproc-per-node 1 --max-restarts 3 recipe.yaml run.dir="$bad"
  refuse 2 "^plait launch: --log-dir: file" "$PLAIT" launch --nproc-per-node 2 --log-dir "${bad#"$work/"}" --max-restarts 3 recipe.yaml run.dir=wrong
done
[ ! -e wrong/lock ] || fail "--log-dir that is a file: workers were started"
refuse 1 '^plait launch: rank 0 on .* ended with status 1 while loading: .*unwritable' "$PLAIT" launch --nproc-per-node 2 recipe.yaml run.dir=unwritable

# ---- wrong command lines ----

refuse 2 'mesh: pp 1 × dp 2 × cp 1 × tp 1 is 2 ranks, but --nproc-per-node 3 starts 3; give --nproc-per-node 2' "$PLAIT" launch --nproc-per-node 3 recipe.yaml
refuse 2 '"many" is neither auto nor a number of processes' "$PLAIT" launch --nproc-per-node many recipe.yaml
refuse 2 '"x" is neither a number of machines nor MIN:MAX' "$PLAIT" launch --nnodes x recipe.yaml
refuse 2 '--nnodes 4:1: the least number is above the most; did you mean 1:4' "$PLAIT" launch --nnodes 4:1 recipe.yaml
refuse 2 '"zookeeper" is neither c10d nor static' "$PLAIT" launch --rdzv-backend zookeeper recipe.yaml
refuse 2 '--rdzv-backend etcd-v2: plait launch meets in etcd by --rdzv etcd://HOST:2379' "$PLAIT" launch --rdzv-backend etcd-v2 recipe.yaml
refuse 2 '^plait launch: --iface: this machine has no network interface "nonsense"; it has .*lo' "$PLAIT" launch --nproc-per-node 2 --iface lo,nonsense recipe.yaml
refuse 2 '--tee copies to the console what goes to files; give --log-dir' "$PLAIT" launch --tee recipe.yaml
refuse 2 '--tee must be 0, 1, 2 or 3, not "0:1,1:3"' "$PLAIT" launch --tee 0:1,1:3 recipe.yaml
refuse 2 '--rdzv-conf: keep_alive_interval is torchrun.s; here --silence SECONDS takes its place' "$PLAIT" launch --rdzv-conf timeout=9,keep_alive_interval=5 recipe.yaml
refuse 2 '--rdzv-conf: "colour" is not a setting of a rendezvous' "$PLAIT" launch --rdzv-conf colour=red recipe.yaml
refuse 2 '--rdzv-conf: timeout must be seconds, at least 1, not "soon"' "$PLAIT" launch --rdzv-conf timeout=soon recipe.yaml
# Whatever others could reach without a secret is said at each start, whatever runs.
expect 0 '^note: --insecure: whoever reaches this network can join this job' "$PLAIT" launch --local-addr 192.0.2.7 --insecure -- true
expect 1 '^note: --insecure: whoever reaches this network can join this job' "$PLAIT" launch --nnodes 2 --rdzv 192.0.2.7:29400 --insecure --rdzv-timeout 1 -- true
expect 1 '^note: PLAIT_INSECURE is set: whoever' env PLAIT_INSECURE=1 "$PLAIT" launch --nnodes 2 --rdzv 192.0.2.7:29400 --rdzv-timeout 1 -- true
"$PLAIT" launch --local-addr 127.0.0.1 --insecure -- true >output 2>&1 && [ ! -s output ] || fail "--insecure on the loopback interface: $(cat output)"
refuse 2 'plait launch: -- is not followed by a program' "$PLAIT" launch --
refuse 2 './nothing: cannot be run: No such file' "$PLAIT" launch -- ./nothing
refuse 2 'nothing.yaml' "$PLAIT" launch nothing.yaml
refuse 2 'did you mean --max-restarts' "$PLAIT" launch --max-restart 1 recipe.yaml
finish
