#!/bin/bash
# tier 3; rooms elastic comm
# Several machines under a real Slurm (make slurm): a supervisor on each, stores from the list of nodes, the time is up, requeue; a machine
# dies, Slurm notices it, and the job continues with a spare. Takes about two minutes.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/slurm/environment.sh" || exit 1
"$PLAIT" launch --help | grep -q rdzv-timeout || { echo "skipped: plait launch knows one machine only"; exit 77; }
trap end_all EXIT
slurm_begin
long='mesh.dp=2 schedule.steps=1000000 checkpoint.every=50 checkpoint.keep=2 eval.every=0'

# ---- two machines: the time is up, the job is requeued and continues ----

# shellcheck disable=SC2086 # words on purpose
"$PLAIT" slurm recipe.yaml --nodes 2 --insecure --time 10 --submit $long run.dir=two >out 2>&1 || { cat out; die "--submit"; }
job=$(submitted)
wait_for has_step two 20 || { cat "slurm-$job.out"; die "two machines do not train"; }
scancel -s USR1 "$job"
patiently 60 requeued "$job" || { cat "slurm-$job.out"; fail "the job is $(state "$job")"; }
stopped=$(sed -n 's/^stopped by SIGUSR1 after step \([0-9]*\), which is saved.*/\1/p' "slurm-$job.out")
patiently 150 starts_again "$job" || fail "the requeued job is $(state "$job")"
wait_for grep -q "^resuming from .*step-$stopped$" "slurm-$job.out" || { cat "slurm-$job.out"; fail "it does not resume from step $stopped"; }
wait_for has_step two $((stopped + 20)) || fail "the requeued job does not continue"
scancel "$job"
patiently 60 has_ended "$job" || fail "scancel: $(state "$job")"
"$PLAIT" runs two | grep -q 'stopped: by SIGTERM' || { tail -20 "slurm-$job.out"; fail "scancel: $("$PLAIT" runs two)"; }
each_once two || fail "steps stand twice in the metrics"

patiently 60 nodes_idle || fail "nodes are not idle"

# ---- a machine dies: its supervisor, its worker and its slurmd ----

# shellcheck disable=SC2086
"$PLAIT" slurm recipe.yaml --nodes 2:3 --insecure --time 10 --submit $long run.dir=dies >out 2>&1 || { cat out; die "--submit"; }
job=$(submitted)
wait_for has_step dies 20 || { cat "slurm-$job.out"; die "three machines do not train"; }
[ "$(squeue -h -j "$job" -o %D)" = 3 ] || fail "the job has $(squeue -h -j "$job" -o %D) of three machines"
# A worker, its supervisor and slurmstepd; the batch script runs on the first node, which Slurm needs.
node=127.0.0.1
for rank in 0 1; do
  [ "$node" = 127.0.0.1 ] || break
  victim=$(worker "slurm-$job-0" $rank)
  supervisor=$(ps -o ppid= "$victim" | tr -d ' ')
  step=$(ps -o ppid= "$supervisor" | tr -d ' ')
  node=$(tr '\0' '\n' <"/proc/$supervisor/environ" | sed -n 's/^SLURMD_NODENAME=//p')
done
kill -KILL "$step" "$supervisor" "$victim" "$(cat "$slurm_folder/node-$node.pid")"
at=$(sed -n 's/^{"step": \([0-9]*\), "loss".*/\1/p' dies/metrics.jsonl | tail -1)
is_down() { sinfo -h -N -n "$node" -o %T | grep -q down; }
patiently 90 is_down || fail "Slurm does not notice that $node is gone: $(sinfo -h -N)"
wait_for has_step dies $((at + 200)) || { tail -20 "slurm-$job.out"; fail "the others do not continue"; }
is_state "$job" RUNNING || fail "the job is $(state "$job")"
grep '^plait launch' "slurm-$job.out"
scancel "$job"
patiently 60 has_ended "$job" || fail "scancel: $(state "$job")"
each_once dies || fail "steps stand twice in the metrics"
cat dies/launch.jsonl
"$PLAIT" runs .
finish
