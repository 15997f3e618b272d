#!/bin/sh
# tier 3; rooms cmd data
# The demo, shortened: every part runs, the score and the samples are there, and a second run skips what is done.
set -eu
scratch=$(mktemp -d "${TMPDIR:-/tmp}/plait-test-demo.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
fail() { echo "test_demo: $1" >&2; cat "$scratch"/log* >&2; exit 1; }
if [ ! -e "${PLAIT_INCLUDE:-/usr/include}/linux/types.h" ]; then echo "no kernel headers here: nothing to make a corpus of"; exit 77; fi

demo() { DEMO_DATA=$scratch/data DEMO_RUN=$scratch/run DEMO_STEPS=4 "$SOURCE/scripts/demo"; }
demo >"$scratch/log1" 2>&1 || fail "the demo failed"
grep -q '^  plait  *[0-9.]* bits per byte' "$scratch/log1" || fail "no bits per byte"
grep -q '^  gzip -9  *2\.[0-9]*$' "$scratch/log1" || fail "gzip's bits per byte are not what C headers have"
[ "$(grep -c '^struct \|^extern int ' "$scratch/log1")" -ge 2 ] || fail "no samples"
[ -e "$scratch/run/checkpoints/step-4/checkpoint.json" ] || fail "no checkpoint at the end"

demo >"$scratch/log2" 2>&1 || fail "the second demo failed"
[ "$(grep -c ' is there$' "$scratch/log2")" -eq 4 ] || fail "the second run did not skip what was done"
grep '^  plait  *[0-9.]* bits per byte' "$scratch/log1" >"$scratch/score1"
grep '^  plait  *[0-9.]* bits per byte' "$scratch/log2" >"$scratch/score2"
cmp -s "$scratch/score1" "$scratch/score2" || fail "the second run has another score"

# Without a number of steps it says how many fit: here the fewest, which a third run finds again.
measured() { DEMO_DATA=$scratch/data DEMO_RUN=$scratch/sized DEMO_SECONDS=1 "$SOURCE/scripts/demo"; }
measured >"$scratch/log4" 2>&1 || fail "the demo that measures failed"
grep -q '^a step takes [0-9]* ms here, and -*[0-9]* seconds are left: 50 steps (the recipe has 3400, ' "$scratch/log4" || fail "it does not say how many steps fit"
[ -e "$scratch/sized/checkpoints/step-50/checkpoint.json" ] || fail "it does not train 50 steps"
measured >"$scratch/log5" 2>&1 || fail "the demo that has measured failed"
grep -q 'sized is there, of 50 steps$' "$scratch/log5" || fail "the next run measures again"

# The corpus is the same when it is made again, holds out every 20th file, and spares folders that are not its own.
"$SOURCE/scripts/make-corpus" "$scratch/again" >"$scratch/log3"
diff -r "$scratch/again" "$scratch/data/text" >/dev/null || fail "another corpus the second time"
files=$(find "$scratch/again/train" "$scratch/again/valid" -type f | wc -l)
held=$(find "$scratch/again/valid" -type f | wc -l)
[ "$held" -eq $((files / 20)) ] || fail "$held of $files files are held out"
mkdir -p "$scratch/mine/train" && echo mine >"$scratch/mine/train/file"
if "$SOURCE/scripts/make-corpus" "$scratch/mine" 2>/dev/null; then fail "a foreign folder was emptied"; fi
[ -e "$scratch/mine/train/file" ] || fail "a foreign file is gone"
