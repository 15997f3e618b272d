#!/bin/bash
# tier 3
# The page of plait serve in headless Chromium, in a wide window and a narrow one: it streams, stops, edits, retries and reloads.
. "$SOURCE/tests/serve/harness.sh" || exit 1
for browser in "${CHROMIUM-}" chromium chromium-browser google-chrome ''; do
  [ -n "$browser" ] && command -v "$browser" >/dev/null && break
done
[ -n "$browser" ] || { echo "skipped: no Chromium (Debian: apt-get install chromium)"; exit 77; }
serve
for size in 1200,800 360,640; do
  rm -f proxy.port
  python3 "$PYTHONPATH/page_proxy.py" "$port" "$PYTHONPATH/page_test.js" proxy.port >page.log &
  proxy=$!
  wait_for test -s proxy.port || die "no proxy"
  HOME=$work "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile-$size" --window-size="$size" \
    --remote-debugging-port=0 "http://127.0.0.1:$(cat proxy.port)/" >browser.log 2>&1 &
  browser_process=$!
  wait "$proxy" || fail "a window of $size: $(cat page.log) $(grep -v dbus browser.log | tail -3)"
  kill "$browser_process" 2>/dev/null
  wait "$browser_process" 2>/dev/null
done
stop 0
finish
