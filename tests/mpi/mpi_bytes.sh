#!/bin/bash
# tier 2 3; rooms comm program runtime; numbers
# What MPI is asked to move, at its profiling layer, is what was counted at the wire; and that is what the plan says that
# each rank sends and receives over each axis. With weights of 64 KiB and more.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/mpi/environment.sh" || exit 1

sed -E 's/"n_embd": [0-9]+/"n_embd": 144/; s/"n_head": [0-9]+/"n_head": 4/' model.json >wide.json
grep -q '"n_embd": 144' wide.json || die "the model has no width"

# moves PROCESSES KEYS…
moves() {
  local n=$1
  shift
  ranks "$n" "$FOLDER/process_bytes" recipe.yaml model.config=wide.json data.valid=null eval.every=0 mesh.dp=1 parallel.zero=0 "$@" >log 2>&1 &&
    grep -q 'as planned, by MPI' log && { echo "$n processes, $*: $(cat log)"; return; }
  fail "$n processes, $*"
  cat log
}

moves 2 mesh.dp=2 parallel.zero=1 parallel.unsplit_tensors=true
moves 4 mesh.tp=4 parallel.tensor=2d parallel.summa=true
if [ "${PLAIT_TIER:-2}" -ge 3 ]; then
  moves 2 mesh.dp=2
  moves 4 mesh.dp=4 parallel.zero=1 parallel.unsplit_tensors=true
  moves 4 mesh.dp=4 parallel.zero=3
  moves 4 mesh.dp=2 mesh.pp=2 parallel.zero=2
  moves 3 mesh.dp=3 batch.global=7 parallel.zero=1
  moves 2 mesh.cp=2 parallel.context=ring
  moves 4 mesh.dp=4 batch.micro=1 optimizer.name=muon
  sed -i 's/"n_embd": 144/"n_embd": 16/' wide.json # sums of one hop
  moves 2 mesh.dp=2 parallel.zero=1 parallel.unsplit_tensors=true
  moves 4 mesh.dp=2 mesh.tp=2
fi
finish
