#!/bin/bash
# tier 1 2; rooms compile data device op parallel recipe runtime setup train; numbers
# Checkpoints that plait of November 2026 (4b54137b) wrote load under every layout, and training continues with the bits that that plait
# itself had under the same layout (tests/checkpoint/old, written by scripts/old-checkpoints). In tier 1 two layouts of each.
# Where a change moves bits on purpose, RENEW=FOLDER makes this test write there what it finds, to be compared and copied. Renewed so far:
# zero3-bf16, whose sums of logits are relative to a block's greatest since the op LOGITS (losses 1e-9 off).
. "$SOURCE/tests/script.sh"
export PLAIT_SIMD=portable # the bits that every machine has
old=$SOURCE/tests/checkpoint/old
cp "$old"/corpus.* "$old"/*.json .

# numbers RUN: loss and gradient norm of the steps 4 to 6, as `continued` has them
numbers() { sed -n 's/^{"step": [456], "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | tr '\n' ' ' | sed 's/ $//'; }

# continues NAME LAYOUT NUMBERS: RUN continues under a layout with these numbers
continues() {
  local got
  got=$(numbers run)
  [ -z "${RENEW:-}" ] || { mkdir -p "$RENEW/$1" && echo "$2 | $got" >>"$RENEW/$1/continued"; }
  [ "$got" = "$3" ] && return
  # The portable kernels of other CPUs fuse products and sums, and round once where these round twice.
  if [ "$(uname -m)" != x86_64 ]; then
    awk -v a="$got" -v b="$3" 'BEGIN { n = split(a, x); if (n != 6 || split(b, y) != 6) exit 1
      for (i = 1; i <= 6; i++) { d = x[i] - y[i]; if (!((d < 0 ? -d : d) <= 1e-4 * y[i])) exit 1 } }' && return
  fi
  fail "$1 under \"$2\": loss and norm of the steps 4 to 6 are $got; 4b54137b had $3"
}

runs=0
for folder in "$old"/*/; do
  name=$(basename "$folder")
  sed "s#/tmp/plait-old-checkpoints#$work#" "$folder/recipe.yaml" >"$name.yaml"
  lines=0
  while IFS='|' read -r layout expected; do
    layout=${layout% } expected=${expected# } lines=$((lines + 1))
    [ "$tier" -gt 1 ] || [ $lines = 1 ] || [ $lines = 5 ] || continue
    rm -rf run "$name"
    if [ "$layout" = 'as it was' ]; then # the run's own folder, and its own recipe
      mkdir -p "$name/checkpoints"
      cp -r "$folder/step-3" "$name/checkpoints"
      cp "$name.yaml" "$name/recipe.yaml"
      expect 0 "resuming from .*$name/checkpoints/step-3\$" "$PLAIT" train "$name/recipe.yaml"
      grep -q '^changed: .*\(mesh\|parallel\|precision\|optimizer\|schedule\|batch\)' output && fail "$name: nothing has changed, but: $(grep ^changed: output)"
      [ -d "$name/checkpoints/step-6" ] || fail "$name has no checkpoint of step 6"
      mv "$name" run
    else
      read -ra keys <<<"$layout"
      expect 0 'resuming from .*/step-3$' "$PLAIT" train "$name.yaml" run.dir=run checkpoint.resume="$folder/step-3" "${keys[@]}"
    fi
    continues "$name" "$layout" "$expected"
    runs=$((runs + 1))
  done <"$folder/continued"

  # eval, generate and export of the run as it was left
  [ "$tier" -gt 1 ] || continue
  mkdir -p "$name/checkpoints"
  cp -r "$folder/step-3" "$name/checkpoints"
  cp "$name.yaml" "$name/recipe.yaml"
  cp tokenizer.json "$name"
  {
    "$PLAIT" eval "$name" --data corpus --json 2>log | sed 's/.*"loss": \([^,]*\),.*/eval: loss \1/'
    "$PLAIT" generate "$name" --prompt 'ba do' --temperature 0 --max-tokens 20 2>log | sed 's/^/generate: /'
    "$PLAIT" export "$name" --out "$name.export" >log 2>&1
    (cd "$name.export" && sha256sum config.json model.safetensors)
  } >used
  [ -z "${RENEW:-}" ] || cp used "$RENEW/$name"
  [ "$(uname -m)" != x86_64 ] || cmp "$folder/used" used || fail "$name: eval, generate and export are not what they were: $(cat used)"
done
[ "$tier" -gt 1 ] && least=41 || least=6
[ $runs -ge $least ] || fail "only $runs layouts were run"
echo "$runs layouts"
finish
