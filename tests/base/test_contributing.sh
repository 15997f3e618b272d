#!/bin/bash
# tier 1; rooms ir device runtime train parallel recipe
# The code that CONTRIBUTING.md shows: a block that begins with the name of a file is compiled, a row of a table with everything that
# includes the table, and a new file by itself; blocks that add a row do not see one another.
cd "$SOURCE" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
failed() { echo "FAILED: $1"; failures=1; }
flags="-std=gnu17 -D_GNU_SOURCE -fsyntax-only -w -Iinclude"
compiler=${CC:-cc}

# blocks FILE: each to $work/block.N, without its fences
blocks() {
  awk -v to="$work/block." '/^```c$/ { n++; inside = 1; next } /^```/ { inside = 0 } inside { print > (to n) }' "$1"
}
# compiles BLOCK: its first line names the file
compiles() {
  local file over users header
  file=$(sed -n '1s#^// src/##p' "$1")
  over=$work/over
  rm -rf "$over"
  mkdir -p "$over/$(dirname "$file")"
  if [ -e "src/$file" ]; then # a row more, in a table
    { grep -v '^#undef' "src/$file"; tail -n +2 "$1"; grep '^#undef' "src/$file"; } >"$over/$file"
    grep -q "^$(sed -n '2s/(.*//p' "$1")(" "src/$file" || { echo "$file has no such rows"; return 1; }
    users=$(grep -rl "\"$file\"" src --include=*.c)
    for header in $(grep -rl "\"$file\"" src --include=*.h); do
      case $header in src/recipe/recipe_transforms.h) users="$users src/recipe/recipe_keys.c" ;; *)
        printf '#include "%s"\n' "${header#src/}" >"$work/$(basename "$header").c" && users="$users $work/$(basename "$header").c" ;;
      esac
    done
  else
    tail -n +2 "$1" >"$over/$file"
    users=$over/$file
    # the row that goes with it, of the block before
    [ ! -e "$work/row" ] || { mkdir -p "$over/$(dirname "$(cat "$work/row.file")")" && cp "$work/row" "$over/$(cat "$work/row.file")"; }
  fi
  # shellcheck disable=SC2086 # words on purpose
  for user in $users; do
    $compiler $flags -I"$over" -Isrc "$user" 2>&1 | head -n 5 >"$work/said"
    [ ! -s "$work/said" ] || { cat "$work/said"; return 1; }
  done
  [ ! -e "src/$file" ] || { cp "$over/$file" "$work/row"; echo "$file" >"$work/row.file"; }
}

blocks CONTRIBUTING.md
tried=0
for block in "$work"/block.*; do
  head -n 1 "$block" | grep -q '^// src/' || continue
  lines=$(wc -l <"$block")
  [ "$lines" -le 15 ] || failed "a block of $lines lines: $(head -n 1 "$block")"
  compiles "$block" || failed "this does not compile: $(cat "$block")"
  tried=$((tried + 1))
done
[ $tried -ge 7 ] || failed "only $tried blocks name their file"
# a wrong row is found
printf '%s\n' '// src/runtime/roles.def' 'JOB_ROLE(score, NO_SUCH_MODE, EVALUATION, "")' >"$work/wrong"
compiles "$work/wrong" >"$work/told" && failed "a wrong row compiles"
grep -q NO_SUCH_MODE "$work/told" || failed "the wrong row is not named: $(cat "$work/told")"
exit $failures
