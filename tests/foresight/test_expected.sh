#!/bin/bash
# tier 2; rooms machine train
# How long a run will take, said before it, with a warning where it is more than a day; precision: auto, which a run keeps.
. "$SOURCE/tests/train/harness.sh" || exit 1
export XDG_CACHE_HOME=$work/cache

# ---- the time of a run ----

expect 0 'the run .* 40 steps; estimated from a product' "$PLAIT" plan recipe.yaml
grep -q '(plait probe measures this machine, in about a minute and once; then this is simulated)' output || fail "plan does not say how to measure: $(cat output)"
peaks=$(echo cache/plait/machine-*.yaml)
[ -s "$peaks" ] || die 'the measured peak is not remembered'
slow() { sed -i "s/^# peak [0-9.e+]*/# peak $1/" "$peaks"; } # a machine with $1 FLOP/s
of_plan() { "$PLAIT" plan "$@" 2>/dev/null | sed -nE "s/^  $row +([0-9.]+[kMGT]?).*/\1/p" | numfmt --from=si; }

# At so few only FLOPs count: a step takes those of all ranks, which share the machine's threads.
slow 500000.0
seconds=$("$PLAIT" plan recipe.yaml 2>/dev/null | sed -nE 's/^  per step +([0-9]+)m ([0-9]+)s .*/\1 \2/p' | awk '{ print $1 * 60 + $2 }')
flops=$(row='per rank and step' of_plan recipe.yaml)
awk -v s="$seconds" -v f="$flops" 'BEGIN { want = 2 * f / 0.475e6 / (s ? s : 1); exit !(want > 0.9 && want < 1.1) }' ||
  fail "a step of 2 × $flops FLOPs takes $seconds s at 0.5 MFLOP/s"
expect 0 'the run +[0-9]+h' "$PLAIT" plan recipe.yaml
grep -q warning output && fail 'a warning of a run of hours'
expect 0 'the run +[0-9]+d' "$PLAIT" plan recipe.yaml schedule.steps=4000
for line in '^warning: this run takes about [0-9]+d [0-9]+h, at ' 'a smaller model: one of about [0-9.]+k? parameters' 'a smaller batch: batch.global: [0-9]+ ' \
  'fewer steps: schedule.steps: [0-9]+ \(not 4000\)'; do
  grep -qE "$line" output || { cat output; fail "the warning lacks: $line"; }
done
# the proposal keeps its word: about a day
steps=$(sed -nE 's/.*schedule.steps: ([0-9]+) .*/\1/p' output)
expect 0 'the run +(23h|1d 00h)' "$PLAIT" plan recipe.yaml "schedule.steps=$steps"

# The same before a run. It measures again, and the faster one counts.
expect 0 '^expected: [0-9].* to [0-9].* for 4 steps, [0-9.]+[kM]? to [0-9.]+[kM]? tokens/s ' "$PLAIT" train recipe.yaml run.dir=short schedule.steps=4 schedule.warmup=0
grep -q '^# peak 500000.0 ' "$peaks" && fail 'a run does not correct a peak that is too low'
start recipe.yaml run.dir=long schedule.steps=1000000000000
wait_for grep -q '^warning: this run takes about .*, at ' log || { cat log; fail 'a run of years begins without a word'; }
kill -9 "$running" && wait "$running" 2>/dev/null
running=
# one that resumes keeps its model and its precision, so it is not told to change them
start recipe.yaml run.dir=short precision=auto schedule.steps=1000000000000
wait_for grep -q '^  fewer steps: ' log || { cat log; fail 'a run of years starts without a word'; }
grep -q 'a smaller model\|^  precision: auto' log && fail "advice that a run cannot follow: $(cat log)"
kill -9 "$running" && wait "$running" 2>/dev/null
running=

# A missing cache is not an error, and neither is a foreign one.
for folder in /proc/none relative ''; do
  XDG_CACHE_HOME=$folder HOME=/proc expect 0 'the run' "$PLAIT" plan recipe.yaml
  grep -q 'cannot\|peaks' output && fail "XDG_CACHE_HOME=$folder: $(cat output)"
done
for text in '' '[' '# peak' '# peak x y z' '# peak 1 2'; do
  printf '%s' "$text" >"$peaks"
  expect 0 'the run' "$PLAIT" plan recipe.yaml
  grep -q '^# peak [0-9.e+]* [0-9]* .* threads' "$peaks" || fail "not repaired: $text"
done

# The recipe for text of one's own is of a size for any machine: 1e11 FLOP/s is less than two cores of any have, and no other
# work on this machine makes it less.
slow 100000000000.0
expect 0 'precision .*\(auto, on this machine\)' "$PLAIT" plan "$SOURCE/recipes/my-text.yaml"
grep -q '^  the run .* steps; estimated' output || fail 'my-text.yaml: no time'
grep -q warning output && fail 'my-text.yaml takes more than a day'

# ---- precision: auto ----

short=(schedule.steps=4 schedule.warmup=0 checkpoint.keep=0)
stored() { sed -n 's/^precision: *//p' "$1/recipe.yaml"; }
PLAIT_SIMD=portable expect 0 '^precision: auto is fp32 in this run: this machine does not compute bf16 faster$' \
  "$PLAIT" train recipe.yaml precision=auto run.dir=plain "${short[@]}"
[ "$(stored plain)" = fp32 ] || fail "the run's recipe has precision: $(stored plain)"
# on this machine, whatever it can: the run stays what it was
expect 0 '^precision: auto is fp32 here, as in the run so far$' "$PLAIT" train recipe.yaml precision=auto run.dir=plain "${short[@]}" schedule.steps=6
[ "$(stored plain)" = fp32 ] || fail "after resuming, the run's recipe has precision: $(stored plain)"
expect 0 'fp32 here, as in the run' "$PLAIT" train recipe.yaml precision=auto run.dir=onwards checkpoint.resume=plain/checkpoints/step-4 "${short[@]}" schedule.steps=6

here=$("$PLAIT" recipe recipe.yaml precision=auto 2>note | sed -n 's/^precision: *//p')
grep -q "^note: precision: auto is $here on this machine$" note || fail "plait recipe: $(cat note)"
"$PLAIT" doctor | grep -q 'it has bf16 instructions' && [ -z "${PLAIT_SIMD-}" ] && [ "$(sed -n 's/^vendor_id.*: //p' /proc/cpuinfo | head -1)" = AuthenticAMD ] &&
  [ "$here" != bf16 ] && fail 'a CPU with bf16 instructions, but auto is not bf16'
expect 0 "precision: auto is $here in this run" "$PLAIT" train recipe.yaml precision=auto run.dir=auto "${short[@]}"
[ "$(stored auto)" = "$here" ] || fail "the run's recipe has precision: $(stored auto), not $here"
expect 0 'step 4' "$PLAIT" train recipe.yaml "precision=$here" run.dir=named "${short[@]}"
same_run named auto
# elsewhere: on a machine without bf16 it computes as it did, to the bit but for its kernels
PLAIT_SIMD=portable expect 0 "precision: auto is $here here, as in the run so far" "$PLAIT" train recipe.yaml precision=auto run.dir=auto "${short[@]}" schedule.steps=6
[ "$(stored auto)" = "$here" ] || fail "resumed elsewhere, the run's recipe has precision: $(stored auto), not $here"
# a run with a loss scale keeps that, too, and a plan for it knows
expect 0 'step 4' "$PLAIT" train recipe.yaml precision=fp16 loss_scale.initial=1024 run.dir=scaled "${short[@]}"
expect 0 'auto is fp16 here, as in the run so far' "$PLAIT" train recipe.yaml precision=auto run.dir=scaled "${short[@]}" schedule.steps=6
grep -qx '  initial: 1024' scaled/recipe.yaml || fail 'the loss scale is lost'
expect 0 '^precision +fp16 \(auto, as in the run so far\)' "$PLAIT" plan recipe.yaml precision=auto run.dir=scaled
expect 0 "precision +$here \(auto, on this machine\)" "$PLAIT" plan recipe.yaml precision=auto
expect 0 '^loss' "$PLAIT" eval auto precision=auto
expect 0 . "$PLAIT" generate auto precision=auto --prompt ba --max-tokens 2
finish
