#!/bin/bash
# tier 1 2; rooms checkpoint runtime recipe schedule op data; numbers
# A run that stops and is started again is the unbroken one to the bit: every metrics line and every tensor of every checkpoint,
# whatever is kept between steps and however it lies. A row a case; tier 1 takes a few of them, TEST_ONLY=NAME the one of that name.
# (Kills at any moment: test_resume.sh.)
. "$SOURCE/tests/train/harness.sh" || exit 1
count=0

# row NAME STEPS STOPS KEYS…: a run of STEPS steps, which is stopped after each of STOPS
row() {
  local name=$1 steps=$2 stops=$3 stop
  shift 3
  count=$((count + 1))
  if [ -n "${TEST_ONLY-}" ]; then [ "$name" = "$TEST_ONLY" ] || return 0; elif [ "$tier" = 1 ]; then ((count % 8 == 1)) || return 0; fi
  local keys=(checkpoint.keep=0 schedule.steps="$steps" "$@")
  expect 0 "step $steps" "$PLAIT" train recipe.yaml run.dir="$name" "${keys[@]}"
  for stop in $stops; do resumes "$name" "$stop" "${keys[@]}"; done
  [ "$name" = adamw ] || [ ! -d adamw ] || ! diff <(steady adamw) <(steady "$name") >/dev/null || fail "$name trains as adamw does"
  [ "$name" = adamw ] || rm -rf "$name" "$name.again"
}

# Every optimizer, with its states and weights in fp32, with fp32 masters in two halves, and with states of 8 bits.
short=(schedule.warmup=1 eval.every=2 checkpoint.every=2)
split=("${short[@]}" precision=bf16 parallel.grad_dtype=bf16 optimizer.master=split)
eight=("${short[@]}" optimizer.states=8bit)
optimizers=$(sed -n 's/^OPTIMIZER[A-Z_]*([A-Z]*, \(.*\))$/\1/p' "$SOURCE/src/ir/optimizers.def")
case $optimizers in *adamw*lion* | *lion*adamw*) ;; *) die "the table of optimizers was not read" ;; esac
for optimizer in $optimizers; do
  row "$optimizer" 4 2 "${short[@]}" optimizer.name="$optimizer" optimizer.momentum=0.9
  row "split-$optimizer" 4 2 "${split[@]}" optimizer.name="$optimizer" optimizer.momentum=0.9
  row "8bit-$optimizer" 4 2 "${eight[@]}" optimizer.name="$optimizer" optimizer.momentum=0.9
done

# Both where states lie otherwise, or are changed in other ways.
while read -r name keys; do
  # shellcheck disable=SC2086 # words on purpose
  {
    row "split-$name" 4 2 "${split[@]}" $keys
    row "8bit-$name" 4 2 "${eight[@]}" $keys
  }
done <<'ROWS'
zero-0   parallel.zero=0
zero-3   parallel.zero=3
tp       mesh.dp=1 mesh.tp=2
delay    mesh.dp=1 mesh.pp=2 optimizer.delay=1
async    checkpoint.async=on
backward parallel.update=in_backward optimizer.clip=0 run.non_finite=stop batch.micro=4
2bw      mesh.dp=1 mesh.pp=2 parallel.pipeline=2bw optimizer.delay=1
ROWS
row 8bit-split-zero-3 4 2 "${eight[@]}" precision=bf16 optimizer.master=split parallel.grad_dtype=bf16 parallel.zero=3

# Versions of the weights that wait, in fp16 for steps that were skipped before the stop; pipelines that drain for it.
late=(schedule.warmup=0 eval.every=4 checkpoint.every=3)
row delay 12 '3 9' "${late[@]}" optimizer.delay=2
row delay-skipped 12 3 "${late[@]}" optimizer.delay=2 precision=fp16 loss_scale.initial=268435456
row 2bw 12 '3 9' "${late[@]}" precision=fp64 optimizer.delay=1 mesh.dp=1 mesh.pp=2 parallel.zero=0 parallel.pipeline=2bw
sed 's/"n_layer": 2/"n_layer": 4/; s/"tie_word_embeddings": true/"tie_word_embeddings": false/' model.json >untied.json
row pipedream 12 '3 9' "${late[@]}" precision=fp64 model.config=untied.json schedule.warmup=4 schedule.name=cosine 'optimizer.delay=[2,1,1,0]' \
  mesh.dp=1 mesh.pp=3 'parallel.layers=[1,2,1]' parallel.zero=0 parallel.pipeline=pipedream batch.micro=8 optimizer.clip=0 run.non_finite=stop

# The bias of routers; documents that are held out; shares of the batch that change.
row routers 12 6 checkpoint.every=6 model.config="$SOURCE/tests/train/moe.json" mesh.dp=1 parallel.zero=0 moe.balance_loss=0.05 moe.z_loss=0.001 \
  moe.bias_rate=0.01 moe.capacity=0.75
row held-out 8 4 checkpoint.every=4 precision=fp64 mesh.dp=1 parallel.zero=0 data.valid= data.split=0.1 eval.batches=1000
printf '{"step": %d, "shares": [%d, %d]}\n' 1 4 4 3 7 1 4 1 7 8 3 5 11 5 3 >shares.jsonl
row shares 12 '4 8' "${late[@]}" checkpoint.every=4 batch.balance=measured batch.most=1.75 batch.replay=shares.jsonl run.threads=1
[ -z "${TEST_ONLY-}" ] || [ "$failures" -gt 0 ] || [ -e output ] || fail "there is no row $TEST_ONLY"
finish
