#!/bin/bash
# tier 1; rooms recipe machine
# mesh.dp: auto, and plait plan --nnodes: a line for each number of machines, with the ranks that no mesh can use, the cut of the batch
# and memory; as many microbatches as a pipeline takes, whatever the ranks are; what cannot be planned is refused.
. "$SOURCE/tests/train/harness.sh" || exit 1

# line N: the columns of the line of N machines
line() { awk -v n="$1" '$1 == n' output | head -1; }
# has N COLUMNS…: machines, ranks, idle ranks, mesh.dp, microbatches, sequences of one at most, of a step at most, idle time
has() { [ "$(line "$1" | awk '{ print $1, $2, $3, $4, $5, $6, $7, $8 }')" = "$*" ] || fail "expected $*; got $(line "$1")"; }

expect 0 'mesh.dp: auto, with pp 1 × cp 1 × tp 1, 1 process on each machine; 64 sequences' \
  "$PLAIT" plan recipe.yaml batch.global=64 batch.micro=4 mesh.dp=auto --nnodes 1:5
has 1 1 0 1 16 4 64 0.0
has 3 3 0 3 6 4 22 3.0
has 4 4 0 4 4 4 16 0.0
has 5 5 0 5 4 4 13 1.5
expect 0 '^ +3 +9' "$PLAIT" plan recipe.yaml batch.global=64 batch.micro=4 mesh.dp=auto mesh.tp=2 --nnodes 1:3 --nproc-per-node 3
has 1 3 1 1 16 4 64 0.0
has 2 6 0 3 6 4 22 3.0
has 3 9 1 4 4 4 16 0.0
# interleaved takes a multiple of mesh.pp
sed 's/"n_layer": [0-9]*/"n_layer": 4/' model.json >deep.json
expect 0 '^ +5 +20' "$PLAIT" plan recipe.yaml model.config=deep.json batch.global=64 batch.micro=5 mesh.dp=auto mesh.pp=2 parallel.pipeline=interleaved --nnodes 5 --nproc-per-node 4
has 5 20 0 10 2 4 7 8.6
expect 0 'mesh.dp is auto, but 2 ranks are fewer than the 4 of pp 2 × cp 1 × tp 2; start at least 4' \
  "$PLAIT" plan recipe.yaml mesh.dp=auto mesh.tp=2 mesh.pp=2 parallel.zero=0 --nnodes 2:4
has 4 4 0 1 4 2 8 0.0
# memory is planned for the largest share that ranks may have
memory() { "$PLAIT" plan recipe.yaml --bytes batch.global=64 batch.micro=1024 "$@" | awk '/^  activations/ { print $2 }'; }
[ "$(memory batch.balance=measured)" -gt "$(memory)" ] || fail "no memory for larger shares"
[ "$(memory 'batch.balance=[3,1]')" -eq "$(memory batch.balance=measured)" ] || fail "3 of 4 sequences are not 1.5 times the even share"

# The effective recipe leaves it open; one process has one rank.
expect 0 'dp: auto' "$PLAIT" recipe recipe.yaml mesh.dp=auto
expect 0 'dp=1' "$PLAIT" plan recipe.yaml mesh.dp=auto parallel.zero=0
expect 0 'dp: 3' "$PLAIT" recipe recipe.yaml mesh.dp=auto mesh.dp=3

refuse 2 'fewer than the 4' "$PLAIT" plan recipe.yaml mesh.dp=auto mesh.tp=2 mesh.pp=2 parallel.zero=0 --nnodes 1:3
refuse 2 'mesh.dp is 2, whatever they are; add mesh.dp=auto' "$PLAIT" plan recipe.yaml --nnodes 1:4
refuse 2 'did you mean 1:4' "$PLAIT" plan recipe.yaml mesh.dp=auto --nnodes 4:1
refuse 2 'neither a number of machines nor MIN:MAX' "$PLAIT" plan recipe.yaml mesh.dp=auto --nnodes many
refuse 2 'add --nnodes' "$PLAIT" plan recipe.yaml mesh.dp=auto --nproc-per-node 2
refuse 2 'mesh.dp must be an integer from 1 to 65536, or auto' "$PLAIT" plan recipe.yaml mesh.dp=any
finish
