#!/bin/bash
# tier 3
# plait serve and clients that are slow or silent, in real time: running streams do not wait for them, and they are ended.
. "$SOURCE/tests/serve/harness.sh" || exit 1
limit=$((300 * patience))
ulimit -n "$(ulimit -Hn)"
serve
client slow "$port"
stop 0
finish
