#!/bin/bash
# tier 1 2; rooms runtime data comm schedule; threads numbers
# Whole training jobs, small ones that together use every thread that plait has: ranks of one and two threads, threads lent
# to other ranks, pipelines, collectives in flight, loaders, the watchdog, checkpoints. Every configuration ends with the
# loss of the first. CI runs this under the thread sanitizer, which ends a job with another status at the first data race.
# In tier 1 every third configuration.
. "$SOURCE/tests/train/harness.sh" || exit 1
limit=$((300 * patience)) count=0

# Documents of 2 to 60 tokens: their borders fall anywhere in a sample.
awk '{ words = $0; n = split(words, word, " "); text = ""; for (i = 1; i <= n && i <= NR % 7 + 1; i++) text = text " " word[i]
  printf "{\"text\": \"%s\"}\n", text }' text-[0-3]?.txt >ragged.jsonl
"$PLAIT" tokenize --tokenizer tokenizer.json --threads 2 --out ragged ragged.jsonl >log 2>&1 || { cat log; die "the corpus"; }
sed 's/"n_layer": 2/"n_layer": 4/' model.json >deep.json
sed 's/"n_layer": 2/"n_layer": 3/; s/"n_embd": 32/"n_embd": 128/; s/"n_positions": 64/"n_positions": 16/' model.json >wide.json

common=(model.config=deep.json data.train=ragged schedule.warmup=2 schedule.steps=8 checkpoint.every=4 eval.every=4
  watchdog.start=$((100 * patience)) watchdog.data=$((100 * patience)) watchdog.step=$((100 * patience)) watchdog.checkpoint=$((100 * patience)))

# job NAME KEYS…: trains to the end, with the loss of the run "first" at every step
job() {
  local name=$1
  shift
  count=$((count + 1))
  [ "$tier" -gt 1 ] || [ $((count % 3)) = 1 ] || return 0
  expect 0 'step 8' "$PLAIT" train recipe.yaml run.dir="$name" "${common[@]}" "$@"
  paste <(losses first) <(losses "$name") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-4 * $1)) bad = 1 }
    END { exit bad || NR != 8 }' || fail "$name: the losses are not those of the first run"
}
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }

job first run.threads=2
job two-threads run.threads=4
pipeline=(mesh.dp=1 mesh.pp=2 parallel.zero=0)
job lend "${pipeline[@]}" parallel.layers=[3,1] run.threads=2 run.work_stealing=true
[ "$tier" = 1 ] || [ "$(nproc)" -lt 2 ] || grep -q 'with work stealing' output || fail "threads are not lent"
job pipeline-threads "${pipeline[@]}" parallel.pipeline=gpipe run.threads=4
job interleaved "${pipeline[@]}" mesh.dp=2 batch.micro=1 parallel.zero=2 parallel.pipeline=interleaved
job zero-bubble "${pipeline[@]}" mesh.dp=2 batch.micro=1 parallel.zero=2 parallel.pipeline=zb-v
job overlap mesh.dp=4 batch.micro=1 parallel.zero=3 run.dump_gradients=gradients
job no-overlap mesh.dp=4 batch.micro=1 parallel.zero=3 parallel.overlap=false
job kept mesh.dp=4 batch.micro=1 parallel.zero=3 parallel.shard_group=2 parallel.reshard=false
job whole mesh.dp=2 parallel.zero=2 parallel.unsplit_tensors=true parallel.recompute=selective run.threads=4
job sequence mesh.tp=2 parallel.sequence=true run.desync_check=true run.trace=trace.json run.trace_first=2
PLAIT_CHAOS=5 job chaos mesh.tp=2 mesh.pp=2 parallel.zero=1 batch.micro=1 run.desync_check=true
[ "$tier" = 1 ] && finish
[ -s trace.json ] && [ -s gradients/step-1.safetensors ] || fail "the trace or the gradients are missing"

# A model whose gradients fill more than one bucket
expect 0 'step 4' "$PLAIT" train recipe.yaml run.dir=buckets "${common[@]}" model.config=wide.json data.seq_len=16 batch.global=4 batch.micro=1 \
  schedule.steps=4 parallel.zero=1 parallel.bucket_mb=1

# Steps that are skipped, and run a second time to find out where it began
expect 0 'gradients overflow' "$PLAIT" train recipe.yaml run.dir=skipped "${common[@]}" model.config=model.json precision=fp16 \
  loss_scale.initial=268435456
grep -q '"skipped": 0' skipped/metrics.jsonl || fail "every step was skipped"
# Weights that are loaded again in the middle of a run
expect 1 'rolled back 3 times' "$PLAIT" train recipe.yaml run.dir=rolled "${common[@]}" model.config=model.json precision=fp16 loss_scale.initial=1 \
  loss_scale.growth_interval=0 optimizer.name=sgd optimizer.clip=0 optimizer.lr=1e6 optimizer.weight_decay=1e6 schedule.warmup=0 schedule.steps=20 \
  checkpoint.every=1 eval.every=0 eval.batches= run.non_finite=rollback

# A signal, and the rest in a second run
start recipe.yaml run.dir=stopped "${common[@]}" "${pipeline[@]}" schedule.steps=100000
wait_for grep -q '"step": 3,' stopped/metrics.jsonl || { cat log; die "the run does not start"; }
kill -TERM "$running"
wait "$running"
status=$?
running=
[ "$status" -eq 143 ] || { cat log; fail "SIGTERM gives status $status"; }
step=$(sed -n 's/^stopped by SIG[A-Z0-9]* after step \([0-9]*\), which is saved.*/\1/p' log)
expect 0 "resuming from .*step-$step" "$PLAIT" train recipe.yaml run.dir=stopped "${common[@]}" schedule.steps=$((step + 3))

# A rank that fails while the others wait for it: an id beyond the vocabulary, which some sample of the fourth step holds
cp ragged.idx bad.idx
cp ragged.bin bad.bin
printf '\377\177' | dd of=bad.bin bs=2 seek=8000 conv=notrunc 2>/dev/null
refuse 2 '^plait train: rank [0-3]: .*bad.bin.*32767.*0 to 299' "$PLAIT" train recipe.yaml run.dir=failing "${common[@]}" "${pipeline[@]}" mesh.tp=2 \
  data.train=bad
[ "$(grep -c '"loss"' failing/metrics.jsonl)" -eq 3 ] || fail "the bad sample is not in the fourth step"

# A step that takes too long for the watchdog. It names a rank that computes, or one that still reads data for which the
# other waits: on a slow machine rank 0 may be that far behind.
expect 1 'plait: rank [01] on .* is stuck: it has been (computing|waiting for the data of) step [0-9]+ for [0-9]+ s.*watchdog.step: 0.1 s' "$PLAIT" train recipe.yaml run.dir=late "${common[@]}" "${pipeline[@]}" \
  batch.global=16384 batch.micro=64 data.prefetch=1 watchdog.step=0.1
finish
