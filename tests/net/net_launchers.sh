#!/bin/bash
# tier 3; rooms comm train; numbers
# Other launchers than plait launch, over net: mpirun with run.comm=net, and a real torchrun where PYTHON has PyTorch. The run of threads to
# the bit.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1
. "$SOURCE/tests/mpi/environment.sh" || exit 1
tested=0

"$PLAIT" train recipe.yaml schedule.steps=6 run.dir=threads run.comm=local >log 2>&1 || { cat log; die "threads"; }

# ---- mpirun ----

if [ -x "${MPIRUN-}" ]; then
  tested=1
  timeout -k 5 120 "$MPIRUN" -n 2 "$PLAIT" train recipe.yaml schedule.steps=6 run.dir=mpirun run.comm=net >log 2>&1 || { cat log; fail "run.comm=net under mpirun"; }
  same_run threads mpirun
  # shellcheck disable=SC2016
  timeout -k 5 120 "$MPIRUN" -n 2 sh -c 'exec "$0" bench comm --comm net --collectives all_reduce --sizes 1K --repeat 2' "$PLAIT" >log 2>&1 &&
    grep -q '^2 ranks, net (processes)' log || { cat log; fail "what mpirun starts does not talk over net"; }
else
  echo "mpirun: not tested, there is none"
fi

# ---- all patterns of collectives beside each other, by size ----

"$PLAIT" launch --nproc-per-node 4 -- "$PLAIT" bench comm --comm net --patterns --sizes 1K,48K --repeat 2 >log 2>&1 || { cat log; fail "bench --patterns"; }
for collective in all_reduce reduce_scatter all_gather; do # microseconds above 0 of three patterns, and the one that a run takes
  [ "$(awk -v name=$collective '$1 == name && NF == 10 && $4 > 0 && $6 > 0 && $8 > 0 && $10 == "directly"' log | wc -l)" -eq 2 ] || { cat log; fail "bench --patterns: $collective"; }
done
grep -q 'directly  *chain  *groups of 2$' log || { cat log; fail "bench --patterns: its head"; }

# ---- torchrun ----

python=${PYTHON:-python3}
if "$python" -c 'import torch.distributed.run' 2>/dev/null; then
  tested=1
  timeout -k 5 300 "$python" -m torch.distributed.run --standalone --no-python --nproc-per-node 2 "$PLAIT" train recipe.yaml schedule.steps=6 run.dir=torchrun >log 2>&1 ||
    { cat log; fail "torchrun"; }
  same_run threads torchrun
else
  echo "torchrun: not tested, $python has no PyTorch (PYTHON names another one)"
fi
# ---- ranks that nobody starts: a shell of srun -n4, and one of two shells ----

waits() { # LINE VARIABLES…
  local line=$1
  shift
  env "$@" timeout -k 5 $((10 * ${PLAIT_PATIENCE:-1})) "$PLAIT" train recipe.yaml run.dir=waits run.comm=net >log 2>&1
  grep -qE "$line" log || { cat log; fail "$*: it does not say for whom it waits"; }
}
waits '^plait: rank 0 is waiting for ranks 1 to 3 at 127\.0\.0\.1:[0-9]+ \(SLURM_STEP_NUM_TASKS says 4 tasks\), for 120 s at most$' \
  SLURM_JOB_ID=5 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 SLURM_STEP_NUM_NODES=1
waits '^plait: rank 1 is waiting for rank 0 at 127\.0\.0\.1:[0-9]+ \(WORLD_SIZE says 2 tasks\), for 120 s at most$' WORLD_SIZE=2 RANK=1
refuse 2 'RANK is 1, but WORLD_SIZE is not set' env RANK=1 "$PLAIT" train recipe.yaml run.dir=waits

[ $tested = 1 ] || [ "$failures" -gt 0 ] || exit 77
finish
