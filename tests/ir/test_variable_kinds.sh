#!/bin/bash
# Whether a Variable is a parameter decides many things (ir/graph.h, variable_is_…): code outside of src/ir asks for the one that it
# means, so that a further kind of Variable is decided in one place. Only those who make parameters name their kind.
# SOURCE: the repository.
cd "$SOURCE/src" || exit 1
makers='api/graph_build.c
model/build.c'
found=$(grep -rlE '\bVARIABLE_PARAMETER\b' . --include='*.[ch]' --include='*.def' | sed 's,^\./,,' | grep -v '^ir/' | LC_ALL=C sort)
[ -n "$found" ] || { echo "nothing was found: the test looks in the wrong place"; exit 1; }
difference=$(diff <(echo "$makers") <(echo "$found")) && exit 0
echo "files that name VARIABLE_PARAMETER (>), or that no longer do (<):"
echo "$difference"
exit 1
