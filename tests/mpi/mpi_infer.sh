#!/bin/bash
# tier 3; rooms comm cmd; numbers
# plait eval and plait generate as processes: one rank's loss and text, printed once; what cannot be is refused in one sentence.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/mpi/environment.sh" || exit 1

"$PLAIT" train recipe.yaml schedule.steps=8 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no run"; }
one=$("$PLAIT" eval run) text=$("$PLAIT" generate run --prompt 'ba do ' --max-tokens 30 --temperature 0)
sampled=$("$PLAIT" generate run --prompt 'ki' --max-tokens 30 --seed 5)
without_time() { sed -E 's/, [0-9.]+ s\)//' <<<"$1"; }

for keys in 'mesh.tp=2' 'mesh.pp=2' 'mesh.dp=2' 'mesh.dp=2 parallel.zero=3'; do
  # shellcheck disable=SC2086 # words on purpose
  got=$(ranks 2 "$PLAIT" eval run $keys 2>log) || fail "eval $keys: $(cat log)"
  [ "$(without_time "$got" | cut -c 1-9)" = "$(without_time "$one" | cut -c 1-9)" ] || fail "eval $keys prints $got, one rank $one"
  [ "$(sed -E 's/.*\(//; s/,[^,]*$//' <<<"$got")" = "$(sed -E 's/.*\(//; s/,[^,]*$//' <<<"$one")" ] || fail "eval $keys counts other tokens or bytes: $got"
  # shellcheck disable=SC2086
  [ "$(ranks 2 "$PLAIT" generate run --prompt 'ba do ' --max-tokens 30 --temperature 0 $keys 2>log)" = "$text" ] || fail "generate $keys: another text: $(cat log)"
  # shellcheck disable=SC2086
  [ "$(ranks 2 "$PLAIT" generate run --prompt 'ki' --max-tokens 30 --seed 5 $keys 2>log)" = "$sampled" ] || fail "generate $keys draws another text: $(cat log)"
done

ranks 2 "$PLAIT" eval run mesh.tp=4 >output 2>&1
[ $? -eq 2 ] && grep -q 'tp 4 is 4 ranks, but 2 processes were started; start 4' output && [ "$(grep -c '^plait eval' output)" -eq 1 ] || { fail "4 ranks as 2 processes"; cat output; }
ranks 2 "$PLAIT" generate nowhere --prompt x mesh.tp=2 >output 2>&1
[ $? -eq 2 ] && [ "$(grep -c '^plait generate' output)" -eq 1 ] || { fail "a folder that is not there"; cat output; }
ranks 2 "$PLAIT" eval run >output 2>&1
[ $? -eq 2 ] && grep -q '1 rank, but 2 processes were started' output || { fail "one rank as 2 processes"; cat output; }
finish
