#!/bin/bash
# tier 1; rooms cmd machine train
# plait plan where a cluster is named, by run.cluster or --cluster: a simulated step, and no word about this machine.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CLUSTERS=$SOURCE/clusters XDG_CACHE_HOME=$work/cache

step() { sed -n "s/^  $1  *\\([0-9.]* [mu]*s\\).*/\\1/p" output; }
for keys in 'mesh.dp=2' 'mesh.dp=4 run.comm=mpi precision=auto' 'mesh.pp=2 run.comm=mpi'; do
  expect 0 '^  a step ' "$PLAIT" simulate recipe.yaml --cluster h200-node $keys
  want=$(step 'a step')
  expect 0 '^time, simulated on A node of 8 H200$' "$PLAIT" plan recipe.yaml run.cluster=h200-node $keys
  [ -n "$want" ] && [ "$(step 'per step')" = "$want" ] || fail "$keys: plan says $(step 'per step'), simulate $want"
  grep -qE 'machines like this one|smaller model|plait probe|from a product' output && fail "$keys: it speaks of this machine: $(cat output)"
  grep -qE '^  memory of a rank there +[0-9.]+ [kM]B +of 139 GB of H200' output || fail "$keys: no memory of the cluster's device"
  expect 0 '^time, simulated on A node of 8 H200$' "$PLAIT" plan recipe.yaml --cluster h200-node $keys
  [ "$(step 'per step')" = "$want" ] || fail "$keys: with --cluster plan says $(step 'per step'), simulate $want"
done
# years on a machine like this one
expect 0 '^time, simulated on 32 nodes of 8 H100' "$PLAIT" plan "$SOURCE/recipes/7b.yaml" run.cluster=h100-400g
grep -q 'warning: this run takes' output && fail "advice for a small model: $(cat output)"
expect 0 'cannot be simulated on run.cluster: the mesh has 16 ranks, but the cluster .*h200-node.yaml has 8 devices$' \
  "$PLAIT" plan recipe.yaml run.cluster=h200-node mesh.dp=16 batch.global=16 run.comm=mpi
refuse 2 '"h200-nod" is neither a file nor a cluster' "$PLAIT" plan recipe.yaml --cluster h200-nod mesh.pp=2 run.comm=mpi
expect 0 '^  the run .* estimated from a product' "$PLAIT" plan recipe.yaml # without one, this machine
finish
