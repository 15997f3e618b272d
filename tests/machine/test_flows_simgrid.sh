#!/bin/bash
# tier 3
# Flows on shared links against SimGrid (Debian: libsimgrid-dev), where it is installed.
pkg-config --exists simgrid 2>/dev/null || { echo 'skipped: there is no SimGrid (libsimgrid-dev)'; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${CC:-cc}" -std=c17 -D_GNU_SOURCE -O1 -I"$SOURCE/src" -I"$SOURCE/include" -I"$SOURCE/tests/plan" \
  "$SOURCE"/tests/machine/simgrid/oracle.c "$SOURCE"/tests/machine/machines.c "$SOURCE"/src/machine/flows.c \
  "$SOURCE"/src/base/philox.c "$SOURCE"/src/base/error.c $(pkg-config --cflags --libs simgrid) -lm -lpthread \
  -o "$folder/oracle" || exit 1
"$folder/oracle" "$folder/platform.xml" --log=root.thresh:error --cfg=network/model:CM02 --cfg=network/TCP-gamma:1e30 \
  --cfg=network/crosstraffic:0 --cfg=network/latency-factor:1 --cfg=network/bandwidth-factor:1 --cfg=network/weight-S:0
