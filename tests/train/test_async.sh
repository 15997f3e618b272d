#!/bin/bash
# tier 2 3; rooms checkpoint runtime; threads numbers
# Checkpoints that are written while the next steps run (checkpoint.async): the bytes of those that steps wait for, under several
# parallel configurations; a killed run resumes from a whole one; a full disk and a rollback behave as without; the plan has the
# memory. ASYNC_KILLS: how many kills, otherwise 8, and 20 in tier 3.
. "$SOURCE/tests/train/harness.sh" || exit 1
kills=${ASYNC_KILLS:-$((tier < 3 ? 8 : 20))}
sanitized && kills=3

# The manifest without what must differ: the recipe's text names checkpoint.async and run.dir, and the first line is a checksum.
manifest() { sed -e 1d -e 's/"recipe": *"[^"]*\(\\"[^"]*\)*"//' -e 's/{"checksum[^}]*"format/"format/' "$1"; }

# pair NAME KEY=VALUE…: the same run, steps waiting and not
pair() {
  local name=$1 step part
  shift
  rm -rf on off
  expect 0 'step 9: saved' "$PLAIT" train recipe.yaml schedule.steps=9 checkpoint.every=2 checkpoint.keep=0 "$@" run.dir=off checkpoint.async=off
  expect 0 'step 9: saved' "$PLAIT" train recipe.yaml schedule.steps=9 checkpoint.every=2 checkpoint.keep=0 "$@" run.dir=on checkpoint.async=on
  [ "$(ls on/checkpoints)" = "$(ls off/checkpoints)" ] || fail "$name: $(ls on/checkpoints)"
  same_run off on
  for step in 2 4 6 8 9; do
    part=checkpoints/step-$step/checkpoint.json
    cmp -s <(manifest on/$part) <(manifest off/$part) || fail "$name: the manifest of step $step differs"
    grep -q "^step $step: saved" output || fail "$name: nothing says that step $step is saved"
  done
}
pair 'one rank' mesh.dp=1 parallel.zero=0
[ "${PLAIT_FAULT-}" = copy_is_not_awaited ] && finish
pair 'dp 2' mesh.dp=2 parallel.zero=0
pair 'ZeRO 3' mesh.dp=2 parallel.zero=3
pair 'tp 2' mesh.dp=1 mesh.tp=2 parallel.zero=0
pair 'pp 2, bf16' mesh.dp=1 mesh.pp=2 parallel.zero=0 precision=bf16
pair '2bw' mesh.dp=1 mesh.pp=2 parallel.zero=0 parallel.pipeline=2bw optimizer.delay=1
pair 'updates in backward' mesh.dp=2 parallel.zero=2 parallel.update=in_backward optimizer.clip=0 batch.micro=4 run.non_finite=stop
pair 'best' mesh.dp=2 parallel.zero=1 eval.every=3 checkpoint.best=true

# ---- memory ----
copy() { "$PLAIT" plan --bytes recipe.yaml schedule.steps=9 checkpoint.every=2 "$@" | awk '/checkpoint copy  / { print $3 }'; }
rm -rf on && expect 0 . "$PLAIT" train recipe.yaml schedule.steps=9 checkpoint.every=2 run.dir=on mesh.dp=1 parallel.zero=0 checkpoint.async=on
planned=$(copy mesh.dp=1 parallel.zero=0 checkpoint.async=on) written=$(stat -c %s on/checkpoints/step-8/part-00000.safetensors)
[ "$planned" -gt 0 ] && [ $((planned * 100)) -gt $((written * 80)) ] && [ $((planned * 100)) -lt $((written * 120)) ] ||
  fail "the plan has $planned bytes for the copy, and $written are written"
[ -z "$(copy checkpoint.async=off)" ] && [ -z "$(copy checkpoint.every=0)" ] || fail "the plan has a copy that is not made"

# ---- killed inside of writing ----
newest() { ls "$1/checkpoints" 2>/dev/null | grep -E '^step-[0-9]+$' | grep -o '[0-9]*$' | sort -n | tail -1; }
long='mesh.dp=2 parallel.zero=3 schedule.steps=400 checkpoint.every=2 checkpoint.keep=2 checkpoint.async=on'
written() { compgen -G 'killed/checkpoints/step-*/checkpoint.json'; }
rm -rf killed
for ((kill = 0; kill < kills; kill++)); do
  # shellcheck disable=SC2086
  start recipe.yaml $long run.dir=killed
  if [ $((kill % 2)) = 0 ]; then # the folder of a checkpoint that is being written is there
    for ((try = 0; try < 2000 * patience; try++)); do compgen -G 'killed/checkpoints/*.tmp' >/dev/null && break; sleep 0.005; done
  else
    wait_for written || die "no checkpoint"
    sleep 0.$((RANDOM % 30 + 10))
  fi
  kill -9 "$running" 2>/dev/null
  wait "$running" 2>/dev/null
  running=
  newest=$(newest killed)
  [ -z "$newest" ] || "$PLAIT" eval "killed/checkpoints/step-$newest" >output 2>&1 || fail "kill $kill: step $newest is not whole: $(cat output)"
done
[ -n "$newest" ] || fail "no checkpoint after $kills kills"
end=$((newest + 4))
# shellcheck disable=SC2086
expect 0 "step $end: saved" "$PLAIT" train recipe.yaml $long run.dir=killed schedule.warmup=0 schedule.name=constant schedule.steps=$end
grep -q "resuming from .*step-$newest\$" output || fail "resumes not from the last whole checkpoint, step $newest"

# ---- a full disk: the run ends with a sentence at a step boundary, and what was whole stays ----
mkdir full
if mount -t tmpfs -o size=1600k none full 2>/dev/null; then
  mounted=$work/full
  refuse 1 '^plait train: rank [01]: .*(step-[0-9]+.tmp/part-0000[01].safetensors|metrics.jsonl).*full' \
    "$PLAIT" train recipe.yaml run.dir=full/run mesh.dp=2 parallel.zero=1 schedule.steps=40 checkpoint.every=2 checkpoint.keep=0 checkpoint.async=on
  newest=$(newest full/run)
  [ -n "$newest" ] && expect 0 '^loss' "$PLAIT" eval "full/run/checkpoints/step-$newest"
  compgen -G 'full/run/checkpoints/*.tmp' && fail "a checkpoint that was given up is left"
  umount full && mounted=
fi

# ---- a step that is not finite goes back to the newest checkpoint, though that is being written when the step ends ----
half='precision=fp16 loss_scale.initial=1 loss_scale.growth_interval=0 optimizer.name=sgd optimizer.clip=0'
blow="$half optimizer.lr=1e6 optimizer.weight_decay=1e6 schedule.warmup=0 schedule.steps=12 eval.every=0 eval.batches= run.non_finite=rollback"
for how in off on; do
  rm -rf $how
  # shellcheck disable=SC2086
  refuse 1 'the run has been rolled back 3 times already' "$PLAIT" train recipe.yaml $blow checkpoint.every=1 run.dir=$how checkpoint.async=$how
done
same_run off on
finish
