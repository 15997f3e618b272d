#!/bin/bash
# tier 1; rooms infer cmd foresight
# plait plan MODEL: the memory of generation by its parts, for keys of mesh, precision and infer, as the engine then has it.
. "$SOURCE/tests/train/harness.sh" || exit 1
model=$SOURCE/tests/model/golden/llama-tied # 2 layers, 2 key-value heads × 8: 256 bytes of cache a token in fp32

number() { grep -o "\"$1\": [0-9.]*" plan.json | head -1 | sed 's/.*: //'; }
plan() { "$PLAIT" plan "$model" --json "$@" >plan.json 2>log || fail "plan $*: $(cat log)"; }
same() { [ "$2" = "$3" ] || fail "$1 is $2, not $3"; }

plan infer.context=100 infer.requests=5
same "a token" "$(number cache_token_bytes)" 256
same "pages: 5 requests of 4 pages of 32" "$(number pages)" 20
same "the cache" "$(number cache)" $((20 * 32 * 256))
whole=$(number weights)
plan infer.context=100 infer.requests=5 infer.page=10 mesh.tp=2 precision=fp64
same "a token in fp64" "$(number cache_token_bytes)" 512
same "half of the heads" "$(number cache)" $((5 * 100 * 256))
same "weights of one of two ranks, in fp64, but for norms" "$((2 * whole / $(number weights)))" 1
plan mesh.dp=2 infer.context=32 infer.kv_memory=30kB precision=bf16
same "a token in bf16" "$(number cache_token_bytes)" 128
same "pages in 30 kB: room for one more request is not needed" "$(number pages)" 7
same "data ranks" "$(number data_ranks)" 2
plan precision=fp64 infer.kv_dtype=bf16 infer.context=100 infer.requests=5
same "a token of a cache in bf16" "$(number cache_token_bytes)" 128
same "that cache" "$(number cache)" $((20 * 32 * 128))
plan mesh.dp=2 infer.context=32 infer.kv_memory=30kB precision=bf16
awk "BEGIN { exit !($(number weights) < 0.6 * $whole) }" || fail "weights in bf16: $(number weights) of $whole"
awk "BEGIN { exit !($(number tokens_per_s) > 0) }" || fail "no speed: $(cat plan.json)"
sum=$(($(number weights) + $(number cache) + $(number working) + $(number bound_instructions) + $(number ticks_in_flight)))
same "the sum of the parts" "$(number total)" "$sum"

# ticks in flight: inputs of 16 tokens, 4 numbers each, and of 4 requests, 2 pages each and 3 numbers; of a row of logits 24 bytes
"$PLAIT" plan "$model" infer.in_flight=2 2>&1 >text | grep -q '^note: infer.in_flight is 2, but without mesh.pp ticks are computed one after the other' ||
  fail "in flight without stages: no note"
"$PLAIT" plan "$model" mesh.pp=2 infer.in_flight=2 2>&1 >text | grep note && fail "in flight with stages: a note"
small=(infer.context=64 infer.requests=4 infer.tokens=16)
plan "${small[@]}"
same "the inputs and rows of a tick" "$(number ticks_in_flight)" $((4 * (16 * 4 + 4 * 2 + 4 * 3) + 4 * 24))
plan "${small[@]}" mesh.tp=2 # 48 words of 97 are the other rank's
same "those of rank 0, and logits of two ranks" "$(number ticks_in_flight)" $((4 * (16 * 4 + 4 * 2 + 4 * 3) + 4 * 24 + 4 * 4 * (48 + 97)))
plan "${small[@]}" infer.in_flight=3 # rank 0 packs its own, too, with their greatest and sum
same "those of three ticks" "$(number ticks_in_flight)" $((3 * 4 * (16 * 4 + 4 * 2 + 4 * 3 + 4 * 99) + 4 * 24))

plan mesh.pp=2 infer.context=32
same "ticks in flight" "$(number in_flight)" 2
"$PLAIT" plan "$model" mesh.pp=2 infer.in_flight=3 infer.requests=7 >text 2>log || fail "in flight: $(cat log)"
grep -qx '  with 3 ticks in flight (infer.in_flight), if pipeline stages take equally long' text &&
  grep -qE '^  all together .* 7 requests at a time$' text || fail "in flight: $(cat text)"

"$PLAIT" plan "$model" infer.context=128 infer.requests=3 --bytes >text 2>log || fail "text: $(cat log)"
grep -q '^  cache  *98304   12 pages of 32 tokens$' text || fail "the cache: $(cat text)"
grep -qE '^  tokens of each  *128  *64  *32$' text && grep -qE '^  this cache holds  *3  *6  *12$' text || fail "requests: $(cat text)"
grep -qE '^  one request .* tokens/s' text || fail "speed: $(cat text)"

refuse 2 '^plait plan: infer.kv_memory: a cache of 1.00 kB has room for 0 tokens, and one request may have 64: that takes 16.4 kB$' \
  "$PLAIT" plan "$model" infer.kv_memory=1kB
refuse 2 '^plait plan: infer.kv_dtype is fp64, but keys and values are made in fp32, and only a narrower format saves memory; take auto or bf16$' \
  "$PLAIT" plan "$model" infer.kv_dtype=fp64
refuse 2 '^plait plan: 2200 requests of 1000000 tokens in pages of 1 are 2.2e.09 page numbers in each tick, and 268435456 are allowed; take fewer infer.requests, ' \
  "$PLAIT" plan "$model" infer.context=1000000 infer.requests=2200 infer.page=1 infer.kv_memory=300MB
refuse 2 '^plait plan: infer.kv_dtype is bf16, but keys and values are made in fp16, ' "$PLAIT" plan "$model" infer.kv_dtype=bf16 precision=fp16
refuse 2 'is a folder, whose generation is planned; only --bytes and --json are for that$' "$PLAIT" plan "$model" --search
refuse 2 '^plait plan: batch.global does nothing here; ' "$PLAIT" plan "$model" batch.global=2
{ cat recipe.yaml && echo 'infer: {page: 4}'; } >trains.yaml
refuse 2 '^plait plan: trains.yaml:[0-9:]* infer.page is for generation and not for training; plait generate takes it after the model$' \
  "$PLAIT" plan trains.yaml
finish
