#!/bin/bash
# tier 1; rooms infer cmd runtime
# plait generate --prompts: a file of prompts has the answers that each has alone, whatever runs beside it, on threads and processes; it
# resumes; and what is wrong in a line is said in its answer.
. "$SOURCE/tests/train/harness.sh" || exit 1

"$PLAIT" train recipe.yaml run.dir=run schedule.steps=8 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no run"; }
for ((i = 0; i < 20; i++)); do
  echo "{\"prompt\": \"ba do ki ${i:0:1}\", \"id\": \"n$i\", \"max_tokens\": $((5 + i % 4 * 9)), \"seed\": $i, \"temperature\": $((i % 2))}"
done >prompts.jsonl
generate() { "$PLAIT" generate run --prompts prompts.jsonl "$@" 2>log || fail "generate $*: $(cat log)"; }

generate --out one.jsonl infer.requests=1 --logprobs 2
[ "$(wc -l <one.jsonl)" -eq 20 ] && grep -q '^{"line":1,"prompt":"ba do ki 0","id":"n0","text":".*","tokens":5,"end":"length","logprobs":\[{"id":.*"top":{' one.jsonl ||
  fail "answers: $(head -2 one.jsonl)"
grep -q '^20 of 20 prompts, [0-9]* tokens, ' log || fail "progress: $(cat log)"
for options in 'infer.requests=8' 'infer.requests=20 infer.kv_memory=200kB' 'infer.requests=3 infer.speculate=4' 'infer.requests=20 infer.context=20'; do
  # shellcheck disable=SC2086 # words on purpose
  generate --out "many.jsonl" --logprobs 2 $options
  if [[ $options = *context* ]]; then
    # shellcheck disable=SC2086
    generate --out alone.jsonl infer.requests=1 --logprobs 2 infer.context=20
    cmp alone.jsonl many.jsonl || fail "$options: other answers"
  else
    cmp one.jsonl many.jsonl || fail "$options: other answers"
  fi
  rm many.jsonl
done
# The text of a prompt alone.
[ "$("$PLAIT" generate run --prompt 'ba do ki 2' --max-tokens 23 --temperature 0)" = "ba do ki 2$(sed -n '3s/.*"text":"\(.*\)","tokens".*/\1/p' one.jsonl)" ] ||
  fail "alone: another text than $(sed -n 3p one.jsonl | cut -c 1-100)"

# The example over plait/infer.h, several prompts at once.
example=$(dirname "$PLAIT")/examples/generate
if [ -x "$example" ]; then
  "$example" run tokenizer.json 'ba do' 'ki' >many.txt 2>log || fail "the example: $(cat log)"
  for prompt in 'ba do' ki; do "$PLAIT" generate run --prompt "$prompt" --max-tokens 40 --temperature 0; done >alone.txt
  cmp alone.txt many.txt || fail "the example prints $(cat many.txt), alone $(cat alone.txt)"
  "$example" run tokenizer.json '' 2>log && fail "the example takes an empty prompt"
  grep -qx 'the prompt has no tokens' log || fail "an empty prompt: $(cat log)"
fi

# Processes: one rank's texts, up to rounding of log-probabilities.
texts() { sed 's/,"logprobs".*//; s/}$//' "$1"; }
for keys in 'infer.requests=4 mesh.dp=2' 'infer.requests=6 mesh.pp=2' 'infer.requests=6 mesh.pp=2 infer.in_flight=4 infer.speculate=3'; do
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" launch --nproc-per-node 2 -- "$PLAIT" generate run --prompts prompts.jsonl --out two.jsonl $keys >log 2>&1 || fail "two processes, $keys: $(cat log)"
  diff <(texts one.jsonl) <(texts two.jsonl) >difference || fail "two processes, $keys: $(head -4 difference)"
  rm -f two.jsonl
done

# Answers of an earlier run stay, and half a line goes.
{ head -7 one.jsonl && sed -n 8p one.jsonl | cut -c 1-30 | tr -d '\n'; } >rest.jsonl
generate --out rest.jsonl infer.requests=5 --logprobs 2
cmp one.jsonl rest.jsonl || fail "resumed: other answers"
generate --out rest.jsonl infer.requests=5 --logprobs 2
cmp one.jsonl rest.jsonl || fail "with nothing left to do: other answers"
sed '7s/ba do/bo da/' prompts.jsonl >others.jsonl
head -7 one.jsonl >seven.jsonl
refuse 2 '^plait generate: seven.jsonl: line 7 answers another prompt than line 7 of others.jsonl has$' "$PLAIT" generate run --prompts others.jsonl --out seven.jsonl
sed '3s/ba do/bo da/' prompts.jsonl >others.jsonl
refuse 2 '^plait generate: seven.jsonl: line 3 answers another prompt than line 3 of others.jsonl has$' "$PLAIT" generate run --prompts others.jsonl --out seven.jsonl
head -5 prompts.jsonl >five.jsonl
refuse 2 '^plait generate: seven.jsonl has more answers than five.jsonl has prompts$' "$PLAIT" generate run --prompts five.jsonl --out seven.jsonl
refuse 2 '^plait generate: --prompts and --out are the same file, prompts.jsonl$' "$PLAIT" generate run --prompts prompts.jsonl --out prompts.jsonl
printf 'my notes' >notes.txt
for out in others.jsonl notes.txt; do
  cp $out before
  refuse 2 "^plait generate: $out: line 1 is not an answer to line 1 of a file of prompts; give --out another name\$" "$PLAIT" generate run --prompts prompts.jsonl --out $out
  cmp before $out || fail "a refused file has changed: $out"
done
refuse 2 '^plait generate: --out /dev/null is not a file$' "$PLAIT" generate run --prompts prompts.jsonl --out /dev/null
: >empty.jsonl
refuse 2 '^plait generate: --prompts empty.jsonl has no prompts: it is empty$' "$PLAIT" generate run --prompts empty.jsonl --out o.jsonl
[ ! -e o.jsonl ] || fail "an empty file of prompts has a file of answers"
refuse 2 '^plait generate: --prompts /dev/null is not a file$' "$PLAIT" generate run --prompts /dev/null --out o.jsonl
diff <(head -7 one.jsonl) seven.jsonl || fail "a refused file has changed"
exec 9<seven.jsonl
flock 9
refuse 2 '^plait generate: another plait generate writes seven.jsonl$' "$PLAIT" generate run --prompts prompts.jsonl --out seven.jsonl
exec 9<&-

# Wrong lines are answered with what is wrong; the others as ever.
{
  sed -n 1p prompts.jsonl
  echo '{"prompt": "ba", "temprature": 1}'
  echo 'ba do'
  echo '{"prompt": "ba", "top_p": 2}'
  echo '{"prompt": 3}'
  echo '["ba"]'
  sed -n 2p prompts.jsonl
  echo '{"prompt": "ba", "top_p": 0}'
  echo '{"prompt": "ba", "seed": -3}'
  echo '{"prompt": "ba", "max_tokens": 1.5}'
  echo '{"prompt": "ba\u0000do", "max_tokens": 1.0, "temperature": 0}'
} >wrong.jsonl
for again in 1 2; do
  refuse 2 '^plait generate: 8 of the prompts in wrong.jsonl have no answer; answers.jsonl says why$' "$PLAIT" generate run --prompts wrong.jsonl --out answers.jsonl
done
[ "$(sed -n 's/^{"line":\([0-9]*\).*"error":"\([^"]*\).*/\1 \2/p' answers.jsonl | cut -c 1-60)" = "2 temprature is not a key of a prompt; keys: prompt, id, max
3 it is not valid JSON
4 top_p is 2; allowed: above 0, to 1
5 it has no text under the key prompt
6 it is not a JSON object
8 top_p is 0; allowed: above 0, to 1
9 seed is -3; allowed: 0 or more
10 max_tokens is not a whole number of at most 2^53" ] || fail "wrong lines: $(cat answers.jsonl)"
diff <(texts one.jsonl | sed -n '1p;2s/"line":2/"line":7/p') <(texts answers.jsonl | sed -n '1p;7p') || fail "beside wrong lines: other answers"

refuse 2 '^plait generate: infer.kv_memory: a cache of 10\.0 kB has room for [0-9]* tokens, and one request may have 40: that takes [0-9.]* kB$' \
  "$PLAIT" generate run --prompt a infer.context=40 infer.kv_memory=10kB
refuse 2 '^plait generate: give one of --prompt TEXT and --prompts FILE$' "$PLAIT" generate run
refuse 2 '^plait generate: give one of --prompt TEXT and --prompts FILE$' "$PLAIT" generate run --prompt a --prompts b --out c
refuse 2 '^plait generate: --prompts FILE and --out FILE need each other$' "$PLAIT" generate run --prompts prompts.jsonl
refuse 2 '^plait generate: --logprobs is for --prompts: they stand in the file of answers$' "$PLAIT" generate run --prompt a --logprobs 2
refuse 2 '^plait generate: infer.kv_memory: a cache of 10.0 kB has room for ' "$PLAIT" generate run --prompts prompts.jsonl --out refused.jsonl infer.kv_memory=10kB
[ ! -e refused.jsonl ] || fail "a run that is refused leaves a file of answers"
refuse 1 '^plait generate: nowhere.jsonl: cannot be read: No such file or directory$' "$PLAIT" generate run --prompts nowhere.jsonl --out o.jsonl
finish
