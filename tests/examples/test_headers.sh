#!/bin/bash
# tier 1
# Every public header compiles alone, twice in one file, in C17 and in C++17, without a warning.
# CC and CXX: the compilers to try, cc and c++ when not set. SOURCE: the repository.
set -u
failures=0
try() { # COMPILER STANDARD LANGUAGE HEADER
  local output
  output=$(printf '#include <plait/%s>\n#include <plait/%s>\nextern int something;\n' "$4" "$4" |
    "$1" -std="$2" -Wall -Wextra -pedantic -Werror -I"$SOURCE/include" -fsyntax-only -x "$3" - 2>&1) && return
  printf 'FAILED: plait/%s as %s with %s\n%s\n' "$4" "$2" "$1" "$output"
  failures=$((failures + 1))
}
count=0
for path in "$SOURCE"/include/plait/*.h; do
  try "${CC:-cc}" c17 c "${path##*/}"
  try "${CXX:-c++}" c++17 c++ "${path##*/}"
  count=$((count + 1))
done
echo "$count headers, $failures failures"
[ "$count" -ge 4 ] && [ "$failures" -eq 0 ]
