#!/bin/bash
# tier 2; rooms cmd train; numbers
# plait slurm and plait runs with a stand-in for Slurm (sbatch, srun and scontrol in PATH): what the script says, signal and requeue, arrays,
# chains, leads, wrong command lines. tests/slurm runs the real one (make slurm).
. "$SOURCE/tests/elastic/environment.sh" || exit 1
unset "${!SLURM_@}" PLAIT_LEAD

mkdir bin 'a folder'
cat >bin/sbatch <<'END'
#!/bin/bash
echo "$*" >>"$WORK/submitted"
[ -n "$BROKEN" ] && echo "sbatch: error: Batch job submission failed: no such partition" >&2 && exit 1
echo "sbatch: a warning" >&2
echo "$((100 + $(wc -l <"$WORK/submitted")));cluster"
END
cat >bin/srun <<'END'
#!/bin/bash
echo "$*" >>"$WORK/steps"
while [[ $1 == --* ]]; do shift; done
exec "$@"
END
cat >bin/scontrol <<'END'
#!/bin/bash
echo "$*" >>"$WORK/requeued"
END
chmod +x bin/*
export WORK=$work PATH="$work/bin:$PATH" BROKEN=''

# ---- the script ----

"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 4:00:00 "run.dir=$work/a folder/it's" >job.sh || fail "a script"
bash -n job.sh || fail "bash does not read the script"
if command -v shellcheck >/dev/null; then shellcheck job.sh || fail "shellcheck"; fi
for line in '--nodes=1' '--ntasks-per-node=2' '--time=4:00:00' '--signal=USR1@300' '--requeue' '--open-mode=append' '--no-kill' "--job-name=\"it's\""; do
  grep -qxF -e "#SBATCH $line" job.sh || { cat job.sh; fail "the script lacks $line"; }
done
grep -q 'rdzv "$stores"' job.sh && fail "one machine needs no stores"
"$PLAIT" slurm recipe.yaml --nodes 1:4 --ntasks-per-node 2 --time 2-12 --lead 600 --insecure --out 'a folder/job.sh' -- -c 3 --partition=long '--comment=two words' || fail "--out"
bash -n 'a folder/job.sh' && grep -qxF '#SBATCH --nodes=1-4' 'a folder/job.sh' && grep -qxF '#SBATCH --mincpus=6' 'a folder/job.sh' && ! grep -q ntasks-per-node=2 'a folder/job.sh' && grep -qxF '#SBATCH --signal=USR1@600' 'a folder/job.sh' &&
  grep -qxF '#SBATCH -c 3 --partition=long "--comment=two words"' 'a folder/job.sh' || { cat 'a folder/job.sh'; fail "options of sbatch"; }
# shellcheck disable=SC2016 # of the script
grep -qF -e '--nnodes "1:$SLURM_JOB_NUM_NODES" --rdzv "$stores"' 'a folder/job.sh' && grep -qF -e ' --insecure' 'a folder/job.sh' || fail "several machines"
if command -v shellcheck >/dev/null; then shellcheck 'a folder/job.sh' || fail "shellcheck"; fi
[ "$(SLURM_JOB_NODELIST='n[08-11],m5' SLURM_JOB_ID=7003 "$PLAIT" slurm --stores)" = n08:17003,n09:17003,n10:17003 ] || fail "--stores"
refuse 2 'SLURM_JOB_NODELIST "n\[3-1\]": a range ends before it begins at character 3' env SLURM_JOB_NODELIST='n[3-1]' "$PLAIT" slurm --stores

# srun takes --cpus-per-task from sbatch only before Slurm 22.05: the script needs none, and no page shows one that is lost
grep -q '^unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK' job.sh && grep -q -e '--cpu-bind=none' job.sh || { cat job.sh; fail "cores of a machine's share"; }
for page in "$SOURCE"/README.md "$SOURCE"/docs/*.md; do
  awk '/^```/ { asks = 0 } /^#SBATCH.*(--cpus-per-task| -c)/ { asks = 1 } asks && /^srun/ && !/--cpus-per-task/ { bad = 1 } END { exit bad }' "$page" ||
    fail "$page: srun without --cpus-per-task, which sbatch has"
done

# ---- a job: the time is up, it is requeued and goes on; scancel ----

"$PLAIT" launch --nproc-per-node 2 recipe.yaml schedule.steps=8 run.dir=first >log 2>&1 || { cat log; die "plait launch"; }
job() { # SCRIPT: as Slurm's batch step does
  SLURM_JOB_ID=42 SLURM_JOB_NUM_NODES=1 SLURM_CPUS_PER_TASK=1 bash "$@" >log 2>&1 &
  running=$!
}
# shellcheck disable=SC2086 # words on purpose
long='schedule.steps=120 checkpoint.every=50'
# shellcheck disable=SC2086
"$PLAIT" train recipe.yaml $long run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }
# shellcheck disable=SC2086
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 $long 'run.dir=a folder/run' >job.sh || fail "a script"
job job.sh
wait_for grep -q '"step": 20,' 'a folder/run/metrics.jsonl' || { cat log; die "the job does not start"; }
for p in $(workers slurm-42-0) $(pgrep -P "$running"); do kill -USR1 "$p"; done # Slurm signals them all
wait "$running"
status=$?
running=''
[ $status -eq 75 ] && [ "$(cat requeued)" = 'requeue 42' ] || { cat log; fail "the time is up: status $status, $(cat requeued)"; }
expect 0 '^run +[0-9]+/120 +[0-9.]+ +stopped: by SIGUSR1' "$PLAIT" runs 'a folder'
SLURM_RESTART_COUNT=1 job job.sh
wait "$running" || { cat log; fail "the job that was requeued"; }
running=''
same_run whole 'a folder/run'
[ "$(wc -l <requeued)" -eq 1 ] || fail "a run that is done is requeued"
grep -q -e '--nodes=1 --ntasks=1 --ntasks-per-node=1 --mpi=none --cpu-bind=none --no-kill --kill-on-bad-exit=0 --wait=0' steps || fail "srun $(cat steps)"
expect 0 '^run +120/120 +[0-9.]+ +done$' "$PLAIT" runs 'a folder/run/..'
# shellcheck disable=SC2086
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 $long schedule.steps=100000 run.dir=cancelled >job.sh
job job.sh
wait_for grep -q '"step": 7,' cancelled/metrics.jsonl || { cat log; die "the job does not start"; }
expect 0 '^cancelled +[0-9]+/100000 +[0-9.]+ +running$' "$PLAIT" runs .
for p in $(workers slurm-42-0) $(pgrep -P "$running") $running; do kill -TERM "$p"; done # also the batch shell, which waits
wait "$running"
status=$?
running=''
[ $status -eq 143 ] && [ "$(wc -l <requeued)" -eq 1 ] || { cat log; fail "scancel: status $status, $(cat requeued)"; }
expect 0 '^cancelled .*stopped: by SIGTERM' "$PLAIT" runs .

# ---- an array ----

cat >sweep.txt <<'END'
# rates
optimizer.lr=1e-3
optimizer.lr=2e-3 "run.dir=a folder/second"

optimizer.lr=3e-3 data.train=nothing   # it fails
END
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 --array sweep.txt schedule.steps=20 run.dir=sweep --submit >out 2>&1 || { cat out; fail "--array"; }
grep -qx "job 101: $work/sweep/slurm.sh; the signal comes 150 s before 10 are over" out || fail "--submit says $(cat out)"
grep -qx '#SBATCH --array=1-3' sweep/slurm.sh && bash -n sweep/slurm.sh || fail "an array's script"
for task in 1 2 3; do
  SLURM_ARRAY_JOB_ID=42 SLURM_ARRAY_TASK_ID=$task job sweep/slurm.sh
  wait "$running"
  echo "$task: $?" >>statuses
  running=''
done
[ "$(cat statuses)" = $'1: 0\n2: 0\n3: 2' ] || { cat log; fail "statuses of an array: $(cat statuses)"; }
[ -f 'a folder/second/checkpoints/step-20/checkpoint.json' ] || fail "a line's own run.dir"
grep -q 'lr: .*0.001' sweep/1/recipe.yaml || fail "a line's key"
printf 'run.dir=same\nrun.dir=same optimizer.lr=1\n' >twice
refuse 2 'twice:2: its run.dir, .*/same, is that of line 1, too' "$PLAIT" slurm recipe.yaml mesh.dp=1 --time 10 --array twice
printf '\noptimizer.lrr=1\n' >wrong
refuse 2 'wrong:2: .*optimizer.lrr' "$PLAIT" slurm recipe.yaml mesh.dp=1 --time 10 --array wrong
printf '"optimizer.lr=1\n' >wrong
refuse 2 'wrong:1: a quote is not closed' "$PLAIT" slurm recipe.yaml mesh.dp=1 --time 10 --array wrong
# each task is requeued alone
sed -i 's/^srun/(exit 75) #/; /--cpu-bind/d; /"\$plait" launch/d; /"\$recipe" "/d' sweep/slurm.sh
SLURM_ARRAY_JOB_ID=42 SLURM_ARRAY_TASK_ID=2 job sweep/slurm.sh
wait "$running"
running=''
[ "$(tail -1 requeued)" = 'requeue 42_2' ] || { cat log; fail "an array's task: $(tail -1 requeued)"; }

# ---- a chain, and sbatch that refuses ----

: >submitted
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 --chain 3 --submit run.dir=chain >out || fail "--chain"
[ "$(cat submitted)" = "$(printf -- "--parsable %s\n" "$work/chain/slurm.sh" "--dependency=afterany:101 $work/chain/slurm.sh" "--dependency=afterany:102 $work/chain/slurm.sh")" ] || fail "a chain: $(cat submitted)"
grep -qx 'job 103, after job 102 has ended' out || fail "a chain says $(cat out)"
grep -qx '#SBATCH --no-requeue' chain/slurm.sh && ! grep -q scontrol chain/slurm.sh || fail "a chain requeues"
BROKEN=1 refuse 1 'sbatch does not take .*slurm.sh: sbatch: error: .*no such partition' "$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 --submit run.dir=refused
mv bin/sbatch bin/none
refuse 1 'sbatch: No such file or directory: cannot be run; submit .*slurm.sh where Slurm is installed' /usr/bin/env "PATH=$work/bin" "$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 --submit run.dir=refused

# ---- leads ----

"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 1:00:00 run.dir=whole | grep -qx '#SBATCH --signal=USR1@60' || fail "a lead that was measured"
sed -i 's/"checkpoint_seconds": [^}]*/"checkpoint_seconds": 100/; s/"step_seconds": [^,]*/"step_seconds": 50/' whole/metrics.jsonl
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 1:00:00 run.dir=whole | grep -qx '#SBATCH --signal=USR1@530' || fail "a longer lead that was measured"
expect 0 'note: the signal comes 20 s before the time is up, but a step has taken 50.* s and a checkpoint .*; give --lead 500' \
  "$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 1:00:00 --lead 20 run.dir=whole
expect 0 'note: the signal comes 20 s before the time is up, .*; give plait slurm --lead 500' env PLAIT_LEAD=20 "$PLAIT" train recipe.yaml $long schedule.steps=125 run.dir=whole
expect 0 'note: Slurm may send the signal up to 60 s early' "$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 1 run.dir=other

# ---- how runs have ended ----

cp corpus.idx bad.idx
cp corpus.bin bad.bin
printf '\377\177' | dd of=bad.bin bs=2 seek=$(($(wc -c <bad.bin) / 2 - 3000)) conv=notrunc 2>/dev/null
mkdir runs
expect 2 'rank' "$PLAIT" train recipe.yaml run.dir=runs/run10 data.train=bad schedule.steps=3000 eval.every=0
"$PLAIT" launch --nproc-per-node 2 --rdzv-id "killed$$" recipe.yaml $long schedule.steps=100000 run.dir=runs/run9 >log 2>&1 &
running=$!
wait_for grep -q '"step": 7,' runs/run9/metrics.jsonl || { cat log; die "run9 does not start"; }
kill -KILL $(workers "killed$$")
wait $running
running=''
"$PLAIT" runs runs >output 2>&1 || fail "plait runs"
"$PLAIT" runs | cmp - output || fail "plait runs without a folder is not that of runs/"
[ "$(sed -n '2,$s/ .*//p' output | tr '\n' ' ')" = 'run9 run10 ' ] || { cat output; fail "the order of runs"; }
grep -qE '^run10 .* failed: rank [0-9]: .*bad.bin.*32767' output || { cat output; fail "a sentence of training"; }
grep -qE '^run9 .* failed: rank [01] on .* was killed by SIGKILL ' output || { cat output; fail "a sentence of the supervisor"; }
rm runs/run9/launch.jsonl
expect 0 '^run9 .* failed: it has ended without a word' "$PLAIT" runs runs
"$PLAIT" runs --json runs | python3 -c 'import json, sys
a, b = json.load(sys.stdin)
assert a["run"] == "runs/run9" and a["state"] == b["state"] == "failed" and b["steps"] == 3000 and a["loss"] > 0 and "bad.bin" in b["sentence"]' || fail "--json"
# shellcheck disable=SC2086
expect 0 'finished' "$PLAIT" train recipe.yaml $long schedule.steps=10 run.dir=runs/run9 --force checkpoint.resume=never
expect 0 '^run9 +10/10 .* done$' "$PLAIT" runs runs
mkdir empty
refuse 2 'empty: there is no run in it' "$PLAIT" runs empty
refuse 2 'nowhere: there is no such folder' "$PLAIT" runs nowhere

# ---- wrong command lines ----

refuse 2 'RECIPE is missing' "$PLAIT" slurm --time 5
refuse 2 '--time is missing' "$PLAIT" slurm recipe.yaml
for time in x 1:2:3:4 1- 5: 1-2-3 -5; do refuse 2 'is not a time limit' "$PLAIT" slurm recipe.yaml --ntasks-per-node 2 "--time=$time"; done
refuse 2 '--time 0:00 is not a time' "$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 0:00
refuse 2 '--nodes 4:2: the least number is above the most; did you mean 2:4' "$PLAIT" slurm recipe.yaml --time 5 --nodes 4:2
refuse 2 '"many" is neither a number of machines nor MIN:MAX' "$PLAIT" slurm recipe.yaml --time 5 --nodes many
refuse 2 'mesh: pp 1 × dp 2 × cp 1 × tp 1 is 2 ranks, but --nodes 1:1 with --ntasks-per-node 3 are 3' "$PLAIT" slurm recipe.yaml --time 5 --ntasks-per-node 3
refuse 2 '--nodes 2: supervisors of several machines talk over the network; give --secret FILE, or --insecure' "$PLAIT" slurm recipe.yaml --time 5 --nodes 2
refuse 2 '--lead 400: --time 5 is 300 s' "$PLAIT" slurm recipe.yaml --time 5 --ntasks-per-node 2 --lead 400
refuse 2 '"soon" is neither auto nor a number of seconds' "$PLAIT" slurm recipe.yaml --time 5 --ntasks-per-node 2 --lead soon
refuse 2 '--chain submits jobs .* give --submit' "$PLAIT" slurm recipe.yaml --time 5 --ntasks-per-node 2 --chain 2
refuse 2 'line break' "$PLAIT" slurm recipe.yaml --time 5 --ntasks-per-node 2 -- $'--comment=a\nrm'
finish
