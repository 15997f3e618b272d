#!/bin/bash
# tier 1 2; rooms cli cmd compile comm foresight infer recipe runtime train
# What plait of November 2026 (4b54137b, tests/api/old) offered is still there, line by line (scripts/interfaces): the functions, types and
# constants of plait/*.h, commands and options, recipes with every default, keys, their values and older names. In tier 2 also all keys of
# JSON with their types, and what the programs of its examples/ print when today's headers and library build them.
. "$SOURCE/tests/script.sh"
command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
old=$SOURCE/tests/api/old
build=$(dirname "$PLAIT")
commit=4b54137b

# Lines that are gone, each for a reason.
# document_end: what ends documents is in a record beside the data now, and in the checkpoint as "documents". A checkpoint of data without a
# record has document_end as before, and it is read.
gone='checkpoint.json.extra.document_end number'

# still PART SOURCE: today's plait prints every line of the old one; lines that it prints besides are new
still() {
  "$SOURCE/scripts/interfaces" "$1" "$build" "$2" >"$1" 2>log || { fail "$1: $(cat log)"; return; }
  # with a line that no plait ever had: the comparison finds what is missing
  { grep -vxF "$gone" "$old/$1" && echo '~ invented'; } | sort -u >before
  [ "$(wc -l <before)" -gt 50 ] || fail "there are no old $1"
  sort -u "$1" | comm -23 before - >missing
  [ "$(cat missing)" = '~ invented' ] || fail "$1 that are no longer as they were: $(cat missing)"
}

still declarations "$SOURCE"
still commands "$SOURCE"
mkdir of-old && cp -r "$old/source/recipes" of-old && cp -r "$SOURCE/models" "$SOURCE/clusters" of-old
still recipes "$work/of-old"
[ "$tier" -gt 1 ] || finish

still json "$SOURCE"
if sanitized || [ ! -e "$build/libplait.so" ]; then
  echo 'no examples: they are linked with libplait.so of a build without sanitizers'
elif ! git -C "$SOURCE" archive $commit examples 2>log | tar x -C of-old 2>>log; then
  echo "no examples: this clone has no commit $commit"
else
  cp -r "$SOURCE/include" of-old
  [ "$(uname -m)" = x86_64 ] || echo 'bits of losses may differ on another CPU'
  still examples "$work/of-old"
  cmp examples "$old/examples" || fail "the examples print something else: $(diff "$old/examples" examples | head -20)"
fi
finish
