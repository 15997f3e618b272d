#!/bin/bash
# Ops are named in src/op, src/device and the cases of src/check. Elsewhere code asks for traits (OpDef in src/op/op.h), with the exceptions below, which
# CONTRIBUTING.md explains.
cd "$SOURCE/src" || exit 1
allowed='sharding/redistribute.c OP_ALL_GATHER
sharding/redistribute.c OP_ALL_REDUCE
sharding/redistribute.c OP_ALL_TO_ALL
sharding/redistribute.c OP_BROADCAST
sharding/redistribute.c OP_GATHER_TO
sharding/redistribute.c OP_REDUCE_SCATTER
sharding/redistribute.c OP_REDUCE_TO
sharding/redistribute.c OP_SCATTER_FROM
sharding/redistribute.c OP_SLICE
cmd/check_device.c OP_COUNT
ir/graph.h OP_COUNT
machine/kernel_lines.c OP_COUNT
program/program.c OP_COUNT'
found=$(grep -rnoE --include='*.[ch]' --include='*.def' '\bOP_[A-Z][A-Z_]*' . | sed -E 's|^\./([^:]*):[0-9]*:|\1 |' |
  grep -vE '^(op|device|check)/' | LC_ALL=C sort -u)
[ -n "$found" ] || { echo "nothing was found: the test looks in the wrong place"; exit 1; }
difference=$(diff <(LC_ALL=C sort <<<"$allowed") <(echo "$found")) && exit 0
echo "ops that are named outside src/op, src/device and src/check (>), or are no longer (<):"
echo "$difference"
exit 1
