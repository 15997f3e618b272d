#!/bin/bash
# What a rank holds of a dim may be several runs. Only those who make IndexMaps and go through them read the runs; everyone else goes
# through boxes (sharding/shard.h) or maps one index (op/op.h).
cd "$SOURCE/src" || exit 1
allowed='check/op_variant.c
sharding/placement.c
sharding/shard.c
device/cuda/attention_library.c
device/cuda/launch.c
device/cuda/ops_router.c
op/op.h
op/capacity.c'
found=$(grep -rlE --include='*.[ch]' '[.>](run\[|runs\b)|\.run =' . | sed 's|^\./||' | LC_ALL=C sort)
found=$(for file in $found; do [ "$file" = op/op.h ] || grep -q IndexMap "$file" && echo "$file"; done)
difference=$(diff <(LC_ALL=C sort <<<"$allowed") <(echo "$found")) && exit 0
echo "files that read the runs of an IndexMap (>), or do no longer (<):"
echo "$difference"
exit 1
