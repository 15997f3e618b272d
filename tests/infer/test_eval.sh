#!/bin/bash
# tier 1; rooms data; numbers
# What plait eval prints besides a loss: JSON with all digits, progress to a pipe, how many tokens a loss is of (as plait train does); what
# it asks for where it is not told what to evaluate, and of weights that plait cannot read.
. "$SOURCE/tests/train/harness.sh" || exit 1
golden=$SOURCE/tests/model/golden
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3 here"; exit 77; }

"$PLAIT" train recipe.yaml run.dir=run schedule.steps=8 checkpoint.every=0 eval.batches=100000 >log 2>&1 || { cat log; die "no run"; }

# ---- train and eval agree on the loss and on how many tokens it is of ----
held=$(sed -nE 's/^held-out at step 8: loss ([0-9.]+)  \(([0-9]+) tokens in (all [0-9]+ sequences of 32)\)$/\1 \2 \3/p' log)
eval=$("$PLAIT" eval run 2>/dev/null | sed -nE 's/^loss ([0-9.]+) .*\(([0-9]+) tokens in (all [0-9]+ sequences of 32), .*/\1 \2 \3/p')
[ -n "$held" ] || fail "train does not say of how many tokens its held-out loss is: $(cat log)"
[ "$held" = "$eval" ] || fail "train says $held, eval $eval"


# ---- a part of it: what training measured with eval.batches, eval measures with --limit, under every mesh ----
"$PLAIT" train recipe.yaml run.dir=part schedule.steps=8 checkpoint.every=0 eval.batches=3 >log 2>&1 || { cat log; die "no run"; }
global=$(sed -nE 's/^batch: .*global: ([0-9]+).*/\1/p' recipe.yaml)
all=$(sed -E 's/.*all ([0-9]+) .*/\1/' <<<"$held")
part=$(sed -nE 's/^held-out at step 8: loss ([0-9.]+)  \(([0-9]+) tokens in ([0-9]+ of [0-9]+) sequences of 32, eval.batches 3\)$/\1 \2 \3/p' log)
[ "${part#* * }" = "$((3 * global)) of $all" ] || fail "three batches of $global sequences are not said: $(grep held-out log)"
for mesh in "" mesh.dp=2; do
  eval=$("$PLAIT" eval part --limit $((3 * global)) $mesh | sed -nE 's/^loss ([0-9.]+) .*\(([0-9]+) tokens in ([0-9]+ of [0-9]+) sequences of 32, .*/\1 \2 \3/p')
  [ "$part" = "$eval" ] || fail "train says $part, eval --limit $mesh $eval"
done
for most in $all $((all + 1)) 0; do
  expect 0 "tokens in all $all sequences of 32," "$PLAIT" eval run --limit $most
done
expect 0 '\([0-9]+ tokens in 1 of [0-9]+ sequences of 5, ' "$PLAIT" eval run --limit 1 --seq-len 5
refuse 2 '^plait eval: eval.batches does nothing here; give --limit N, which evaluates on N sequences$' "$PLAIT" eval run eval.batches=2
refuse 2 '^plait eval: data.seq_len does nothing here; give --seq-len N$' "$PLAIT" eval run data.seq_len=8

# ---- JSON ----
"$PLAIT" eval run --json >result.json 2>log || fail "eval --json: $(cat log)"
python3 - "$held" <<'PYTHON' || fail "eval --json: $(cat result.json)"
import json, math, re, sys
loss, tokens, _, sequences = sys.argv[1].split()[:4]
text = open("result.json").read()
assert len(text.splitlines()) == 1
r = json.loads(text)
assert list(r) == ["tokens", "bytes", "loss", "perplexity", "bits_per_byte", "sequences", "all_sequences", "seq_len", "seconds"], r
assert r["sequences"] == r["all_sequences"] == int(sequences) and r["seq_len"] == 32, r
assert "%.4f" % r["loss"] == loss and r["tokens"] == int(tokens), r
assert len(re.search(r'"loss": ([0-9.]+)', text)[1]) > 12, "digits"
assert abs(r["perplexity"] - math.exp(r["loss"])) < 1e-9 * r["perplexity"]
assert abs(r["bits_per_byte"] - r["loss"] * r["tokens"] / math.log(2) / r["bytes"]) < 1e-12
PYTHON
again=$("$PLAIT" eval run --json 2>/dev/null)
[ "${again%, \"seconds\"*}" = "$(sed 's/, "seconds.*//' result.json)" ] || fail "the digits of a second run differ: $again"
rm run/tokenizer.json && mv tokenizer.json away.json # bytes are not known: null, never nan
"$PLAIT" eval run --json >result.json 2>log || fail "eval --json: $(cat log)"
grep -q '"bytes": null,.* "bits_per_byte": null,' result.json || fail "without a tokenizer: $(cat result.json)"
mv away.json tokenizer.json
grep -qi 'nan\|inf' result.json && fail "no JSON: $(cat result.json)"

# ---- progress where stderr is not a terminal: on stderr, so that stdout is the result alone ----
"$PLAIT" eval run --progress 0.000001 run.threads=1 >out 2>log || fail "eval --progress: $(cat log)"
grep -qE '^plait eval: [0-9]+%  [0-9]+ tokens, loss [0-9.]+, .* left$' log || fail "no progress: $(cat log)"
grep -qE '^plait eval: 100%' log || fail "progress does not come to its end: $(cat log)"
[ "$(wc -l <out)" -eq 1 ] && grep -q '^loss' out || fail "stdout is not the result alone: $(cat out)"
"$PLAIT" eval run --progress 0 >out 2>log
[ -s log ] && fail "--progress 0 prints $(cat log)"

# ---- nothing to evaluate on ----
sed 's/valid: valid, //' recipe.yaml >plain.yaml
"$PLAIT" train plain.yaml run.dir=plain schedule.steps=5 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no run without data.valid"; }
refuse 2 'the recipe of plain names no held-out text \(data.valid or data.split\); name one: plait eval plain --data PREFIX' "$PLAIT" eval plain
expect 0 '^loss ' "$PLAIT" eval plain --data valid
"$PLAIT" train plain.yaml run.dir=split data.split=0.2 schedule.steps=5 checkpoint.every=0 eval.batches=100000 >log 2>&1 || { cat log; die "no run with data.split"; }
held=$(sed -nE 's/^held-out at step 5: loss ([0-9.]+)  \(([0-9]+) tokens in (.*)\)$/\1 \2 \3/p' log)
eval=$("$PLAIT" eval split | sed -nE 's/^loss ([0-9.]+) .*\(([0-9]+) tokens in (.*), [0-9]+ bytes, .*/\1 \2 \3/p')
[ -n "$held" ] && [ "$held" = "$eval" ] || fail "of data.split train says $held, eval $eval"

# ---- weights in another form ----
mkdir old && cp "$golden/gpt2-tied/config.json" old && touch old/pytorch_model.bin
line="from transformers import AutoModelForCausalLM as M; M.from_pretrained\('old'\).save_pretrained\('old'\)"
refuse 2 "old holds its weights as pytorch_model.bin, and plait reads safetensors only.*python3 -c \"$line\"" "$PLAIT" eval old --data valid
refuse 2 "old holds its weights as pytorch_model.bin" "$PLAIT" export old --out x
"$PLAIT" export run --out mine >log 2>&1 && mv mine/model.safetensors mine/pytorch_model.bin || fail "no export: $(cat log)"
expect 2 "holds its weights as pytorch_model.bin" "$PLAIT" train recipe.yaml run.dir=init model.config=mine/config.json model.init=mine
rm old/pytorch_model.bin
refuse 2 "old is neither a checkpoint" "$PLAIT" eval old --data valid

# ---- stopped: the status is 128 + signal, and there is no result ----
mkfifo held.json
for signal in INT TERM; do
  env --default-signal=INT,TERM "$PLAIT" eval run --tokenizer held.json --json >out 2>log &
  running=$!
  caught() { [ "/proc/$running/exe" -ef "$PLAIT" ] && ((16#$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$running/status") >> ($(kill -l $signal) - 1) & 1)); }
  wait_for caught || die "eval does not catch SIG$signal"
  kill -s $signal "$running"
  timeout "$limit" cp tokenizer.json held.json
  wait "$running"
  status=$?
  running=
  [ $status -eq $((128 + $(kill -l $signal))) ] || fail "status $status after SIG$signal: $(cat log)"
  [ -s out ] && fail "a result of a part: $(cat out)"
done
finish
