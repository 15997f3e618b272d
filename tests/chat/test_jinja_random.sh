#!/bin/bash
# tier 1 2; rooms chat
# needs test_jinja
# Random templates come out as Python's jinja2 makes them: 200, or in tier 2 2000.
. "$SOURCE/tests/script.sh" || exit 1
python=
for candidate in python3 /usr/bin/python3; do
  "$candidate" -c 'import jinja2' 2>/dev/null && python=$candidate && break
done
[ "$python" ] || { echo "skipped: no python3 with jinja2 (Debian: python3-jinja2)"; exit 77; }
count=200
[ "$tier" -gt 1 ] && count=2000
"$python" "$SOURCE/scripts/golden_jinja.py" --random "$count" 7 "$FOLDER/test_jinja" >log 2>&1 || fail "$(tail -40 log)"
grep -q "^0 of $count differ; jinja2 fails in [0-9]* of them all$" log || fail "$(tail -3 log)"
# The goldens are what this jinja2 makes.
cp -r "$SOURCE/tests/chat" copy && mkdir scripts && cp "$SOURCE/scripts/golden_jinja.py" scripts/
mkdir -p tests && mv copy tests/chat && "$python" scripts/golden_jinja.py --write && cmp tests/chat/golden.json "$SOURCE/tests/chat/golden.json" ||
  fail "tests/chat/golden.json is not what scripts/golden_jinja.py --write makes"
finish
