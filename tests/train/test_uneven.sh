#!/bin/bash
# tier 1; rooms data; numbers
# Batches that do not divide: whole runs with checkpoints, evaluations, resumed on other meshes, held to one rank; memory as planned;
# and what plan says of idle time.
. "$SOURCE/tests/train/harness.sh" || exit 1
limit=$((200 * patience)) far=1e-4 least=1e-6
keys=(schedule.warmup=2 schedule.steps=6 checkpoint.every=3 eval.every=3 batch.global=7 batch.micro=2)

# run NAME KEYS…: trains to the end, with the losses, norms and evaluations of the run "one"
run() {
  local name=$1
  shift
  expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir="$name" "${keys[@]}" "$@"
  like_one "$name" 8
}
run one mesh.dp=1 parallel.zero=0
run three mesh.dp=3
run five mesh.dp=5 parallel.zero=3
run none mesh.dp=9 batch.micro=8 parallel.zero=2
run pipeline mesh.dp=3 mesh.pp=2 batch.micro=1
run batch-over-tp mesh.dp=2 mesh.tp=2 batch.micro=1 'layout.batch=[dp,tp]' run.desync_check=true
PLAIT_CHAOS=9 run chaos mesh.dp=3 mesh.tp=2 mesh.pp=2 batch.micro=1 run.desync_check=true

# Another mesh continues where one has stopped, with the same samples.
expect 0 'step 6' "$PLAIT" train recipe.yaml run.dir=moved "${keys[@]}" mesh.dp=2 mesh.pp=2 batch.micro=1 checkpoint.resume=three/checkpoints/step-3
like_one moved 4
finish
