#!/bin/bash
# tier 3; rooms elastic
# plait slurm under a real Slurm (make slurm): a time limit that requeues the job, scancel, an array whose tasks are requeued alone, a chain,
# and what Slurm does with signals. Takes about five minutes.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/slurm/environment.sh" || exit 1
trap end_all EXIT
slurm_begin

long='schedule.steps=1000000 checkpoint.every=1000 eval.every=0'

# ---- the time limit: Slurm signals, the run is saved, the script requeues it, the run continues ----

# shellcheck disable=SC2086 # words on purpose
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 2 --lead 30 --submit $long run.dir=limit -- --cpus-per-task=1 >out 2>&1 || { cat out; die "--submit"; }
limited=$(submitted)
began=$SECONDS
wait_for has_step limit 20 || { cat "slurm-$limited.out"; tail -5 "$slurm_folder"/*.log; die "the job does not train"; }
step_of() { "$PLAIT" runs "$1" | tail -1 | awk '{ print $2 }' | cut -d/ -f1; }

# ---- meanwhile: scancel saves the run and ends it ----

# shellcheck disable=SC2086
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 --submit $long run.dir=cancelled >out 2>&1 || { cat out; die "--submit"; }
job=$(submitted)
wait_for has_step cancelled 20 || { cat "slurm-$job.out"; die "the second job does not train"; }
scancel "$job"
patiently 60 has_ended "$job" || fail "scancel: the job is $(state "$job")"
"$PLAIT" runs cancelled | grep -q 'stopped: by SIGTERM' || { cat "slurm-$job.out"; fail "scancel: $("$PLAIT" runs cancelled)"; }
[ -f "cancelled/checkpoints/step-$(step_of cancelled)/checkpoint.json" ] || fail "scancel: the last step is not saved"
[ "$(restarts "$job")" = 0 ] || fail "scancel: the job was requeued"
echo "scancel: saved at step $(step_of cancelled), $(state "$job")"

# ---- an array: each of its runs alone; one fails, one is requeued ----

printf 'optimizer.lr=1e-3\noptimizer.lr=2e-3\ndata.train=nothing\n' >sweep.txt
# shellcheck disable=SC2086
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 --array sweep.txt --submit $long run.dir=sweep >out 2>&1 || { cat out; die "--array"; }
job=$(submitted)
wait_for has_step sweep/1 20 || { cat slurm-"$job"_1.out; die "the first task does not train"; }
wait_for has_step sweep/2 20 || { cat slurm-"$job"_2.out; die "the second task does not train"; }
patiently 60 has_ended "${job}_3" || fail "a task that fails is $(state "${job}_3")"
grep -q 'data.train: .*nothing' slurm-"$job"_3.out || fail "a task that fails: $(cat slurm-"$job"_3.out)"
scancel -s USR1 "${job}_2"
patiently 60 requeued "${job}_2" || { cat slurm-"$job"_2.out; fail "a task is not requeued"; }
is_state "${job}_1" RUNNING && [ "$(restarts "${job}_1")" = 0 ] || fail "another task was requeued, too: $(state "${job}_1")"
patiently 150 starts_again "${job}_2" || fail "a task that was requeued is $(state "${job}_2")"
wait_for grep -q '^resuming from' slurm-"$job"_2.out || { cat slurm-"$job"_2.out; fail "a task that was requeued does not resume"; }
scancel "$job"
patiently 60 has_ended "${job}_1" || fail "scancel of an array: $(state "${job}_1")"
patiently 60 has_ended "${job}_2"
each_once sweep/2 || fail "steps of a task stand twice in its metrics"
"$PLAIT" runs sweep

# ---- the time limit again ----

patiently 150 requeued "$limited" || { cat "slurm-$limited.out"; fail "the time limit: the job is $(state "$limited")"; }
echo "time limit of 120 s: requeued $((SECONDS - began)) s after the start"
grep -q '^plait: SIGUSR1: stopping after this step' "slurm-$limited.out" || fail "no signal: $(cat "slurm-$limited.out")"
stopped=$(sed -n 's/^stopped by SIGUSR1 after step \([0-9]*\), which is saved.*/\1/p' "slurm-$limited.out")
patiently 150 starts_again "$limited" || fail "the requeued job is $(state "$limited")"
wait_for grep -q "^resuming from .*step-$stopped$" "slurm-$limited.out" || { cat "slurm-$limited.out"; fail "the requeued job does not resume from step $stopped"; }
wait_for has_step limit $((stopped + 20)) || fail "the requeued job does not continue"
scancel "$limited"
patiently 60 has_ended "$limited" || fail "the requeued job is $(state "$limited")"
each_once limit || fail "steps stand twice in the metrics"

# ---- a chain: a job that is not requeued, and the next one, which continues ----

# shellcheck disable=SC2086
"$PLAIT" slurm recipe.yaml --ntasks-per-node 2 --time 10 --chain 2 --submit $long run.dir=chain >out 2>&1 || { cat out; die "--chain"; }
job=$(submitted)
next=$(sed -n 's/^job \([0-9]*\), after job .* has ended$/\1/p' out)
wait_for has_step chain 20 || { cat "slurm-$job.out"; die "the chain does not train"; }
is_state "$next" PENDING || fail "the second job of a chain is $(state "$next")"
scancel -s USR1 "$job"
patiently 60 has_ended "$job" || fail "the first job of a chain is $(state "$job")"
[ "$(restarts "$job")" = 0 ] || fail "the first job of a chain was requeued"
wait_for grep -q '^resuming from' "slurm-$next.out" || { cat "slurm-$next.out"; fail "the second job of a chain does not resume"; }
scancel "$next"
patiently 60 has_ended "$next"
each_once chain || fail "steps of a chain stand twice in its metrics"
"$PLAIT" runs .

# ---- tasks of srun that no MPI knows, on two machines: net, at the first one ----

"$PLAIT" train recipe.yaml run.dir=threads >log 2>&1 || { cat log; die "the run of threads"; }
timeout 120 srun --nodes=2 --ntasks-per-node=1 --mpi=none "$PLAIT" train recipe.yaml run.dir=srun run.comm=net >log 2>&1 || { cat log; fail "srun --mpi=none on two machines"; }
same_run threads srun
finish
