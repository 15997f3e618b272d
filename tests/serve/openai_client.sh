# PyPI's openai against plait serve; run by scripts/serve-client, which sets CLIENT to a Python that has it.
. "$SOURCE/tests/serve/harness.sh" || exit 1
printf 'a key\n' >keys
serve --api-key-file keys
timeout -s KILL "$limit" "$CLIENT" "$SOURCE/tests/serve/openai_client.py" "$port" 'a key' || fail "PyPI's openai"
stop 0
finish
