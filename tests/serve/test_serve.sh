#!/bin/bash
# tier 1 2; rooms serve infer cmd chat; threads
# plait serve answers as OpenAI's clients expect: the texts of plait generate, alone and among others, whole and in pieces; what is wrong
# is refused by name; clients that leave leave nothing; SIGTERM ends it in order.
. "$SOURCE/tests/serve/harness.sh" || exit 1
for ((i = 0; i < 8; i++)); do
  echo "{\"prompt\": \"ba do ki ${i:0:1}\", \"id\": \"n$i\", \"max_tokens\": $((5 + i % 4 * 9)), \"seed\": $i, \"temperature\": $((i % 2))}"
done >prompts.jsonl
"$PLAIT" generate run --prompts prompts.jsonl --out answers.jsonl infer.context=2000 --top-p 1 >log 2>&1 || die "generate: $(cat log)"

serve
client answered "$port" answers.jsonl
client wrong "$port"
client leaving "$port"
client stopping "$port" "$running" whole
wait "$running" || fail "SIGTERM: status $?, $(cat server.log)"
running=''
serve --drain 0 infer.speculate=3
client stopping "$port" "$running" cut
wait "$running" || fail "SIGTERM with --drain 0: status $?, $(cat server.log)"
running=''

printf 'first key\nsecond\n' >keys
serve --api-key-file keys --alias other --queue 2 --allow-origin https://a.example infer.kv_memory=2MB
client access "$port"
stop 0

refuse 2 '^plait serve: --api-key-file nowhere cannot be read: No such file or directory$' "$PLAIT" serve run --api-key-file nowhere
printf '\n  \n' >empty
refuse 2 '^plait serve: --api-key-file empty holds no key$' "$PLAIT" serve run --api-key-file empty
refuse 2 '^plait serve: --host 192.0.2.1 --port 0: cannot listen there: ' "$PLAIT" serve run --host 192.0.2.1 --port 0
refuse 2 '^plait serve: --host no such host is not an address: ' "$PLAIT" serve run --host 'no such host'
serve
refuse 1 "^plait serve: --host 127.0.0.1 --port $port: cannot listen there: Address already in use\$" "$PLAIT" serve run --port "$port"
stop 0
finish
