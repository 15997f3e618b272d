#!/bin/bash
# tier 2; rooms serve chat grammar cmd
# plait serve with templates whose calls of tools are XML; values of its options that are none.
. "$SOURCE/tests/serve/harness.sh" || exit 1
cp chat.jinja plain.jinja
for form in '<function={{ c.function.name }}>{% for k, v in c.function.arguments | items %}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}</function>' \
  '{{ c.function.name }}{% for k, v in c.function.arguments | items %}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>{% endfor %}'; do
  sed "s|{{ c.function . tojson }}|${form//|/\\|}|" plain.jinja >chat.jinja
  grep -qF "$form" chat.jinja || die "a template is not what it should be: $(cat chat.jinja)"
  serve
  client xml_calls "$port"
  stop 0
done

for wrong in foo example.org https:// https://a.example/ 'https://a.example b' 'https://a@b' null; do
  refuse 2 "^plait serve: --allow-origin $wrong is not an origin: give \* or a scheme and a host, as https://example.org\$" "$PLAIT" serve run --allow-origin "$wrong"
done
refuse 2 '^plait serve: --alias needs a value, NAME, and "" is none ' "$PLAIT" serve run --alias ''
finish
