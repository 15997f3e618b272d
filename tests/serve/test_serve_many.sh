#!/bin/bash
# tier 3
# 100,000 short requests leave nothing in plait serve's memory.
. "$SOURCE/tests/serve/harness.sh" || exit 1
sanitized && { echo "skipped: memory is that of the sanitizer"; exit 77; }
limit=$((600 * patience))
serve
client many "$port" "$running" 100000
stop 0
finish
