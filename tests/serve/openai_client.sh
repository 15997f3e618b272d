# PyPI's openai against plait serve; run by scripts/serve-client, which sets CLIENT to a Python that has it.
. "$SOURCE/tests/serve/harness.sh" || exit 1
cat >chat.jinja <<'TEMPLATE'
{% if tools %}{% for t in tools %}<tool_call>{{ t | tojson }}{% endfor %}{% endif %}
{% for m in messages %}{{ m.role + ": " + (m.content or "") }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}{{ "assistant: " }}{% endif %}
TEMPLATE
printf 'a key\n' >keys
serve --api-key-file keys
timeout -s KILL "$limit" "$CLIENT" "$SOURCE/tests/serve/openai_client.py" "$port" 'a key' || fail "PyPI's openai"
stop 0
finish
