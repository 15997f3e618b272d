#!/bin/bash
# tier 1
# What pages count is what scripts/counts counts. README stays a first look: at most 150 lines, blocks of at most 20, and its transcript
# consists of lines of docs/first-hour.md's.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() { printf 'FAILED: %s\n' "$*"; failures=$((failures + 1)); }

wrong=$("$SOURCE/scripts/counts" --check 2>&1) || fail "$wrong"
for page in README.md docs/what-works.md; do
  grep -q '<!--count:' "$SOURCE/$page" || fail "$page has no number that is counted"
done

# The longest block of code of a page, in lines.
longest() { awk '/^```/ { inside = !inside; n = 0; next } inside && ++n > most { most = n } END { print most + 0 }' "$1"; }
[ "$(wc -l < "$SOURCE/README.md")" -le 150 ] || fail "README.md has $(wc -l < "$SOURCE/README.md") lines; 150 are what one reads"
[ "$(longest "$SOURCE/README.md")" -le 20 ] || fail "README.md has a block of $(longest "$SOURCE/README.md") lines; the rest belongs into docs/"
awk '/^<!-- \/first-day/ { exit } inside && !/^```$/ { print } /^<!-- first-day/ { inside = 1 }' "$SOURCE/README.md" > "$folder/shown"
"$SOURCE/scripts/first-day" --excerpt > "$folder/excerpt" || fail "scripts/first-day --excerpt fails"
[ "$(wc -l < "$folder/shown")" -ge 10 ] || fail "README.md shows no transcript"
diff "$folder/shown" "$folder/excerpt" || fail "README.md's transcript is not that of docs/first-hour.md (scripts/first-day --write)"

# Wrong numbers are noticed, and written: in a copy with one more family, one line of C in its place, and no parity of fp64.
cp -r "$SOURCE/README.md" "$SOURCE/CONTRIBUTING.md" "$folder"
mkdir -p "$folder/docs" "$folder/src/base" "$folder/src/model" "$folder/tests"
cp "$SOURCE/docs/parity.md" "$SOURCE/docs/recipes.md" "$folder/docs"
cp "$SOURCE/src/base/faults.def" "$folder/src/base"
{ cat "$SOURCE/src/model/families.def" && echo 'FAMILY(new)'; } > "$folder/src/model/families.def"
seq 12000 > "$folder/src/a.c"
touch "$folder/tests/test_a.c" "$folder"/tests/test_{b,c,d,e,f,g}.sh
counts() { SOURCE=$folder "$SOURCE/scripts/counts" "$@" 2>&1; }
families=$(($(grep -c '^FAMILY(' "$SOURCE/src/model/families.def") + 1))
wrong=$(counts --check) && fail "wrong numbers pass"
grep -qF "README.md: $((families - 1)) families, but it is $families (" <<< "$wrong" || fail "another family: $wrong"
grep -q '^README.md: .* c-lines, but it is 12000 (' <<< "$wrong" || fail "fewer lines: $wrong"
grep -qE ' (keys|mutants|parity-runs),' <<< "$wrong" && fail "what is right is named: $wrong"
counts --write || fail "--write fails"
grep -qF '12,000<!--count:c-lines-->' "$folder/README.md" || fail "--write wrote: $(grep -o '[^ ]*<!--count:c-lines-->' "$folder/README.md")"
wrong=$(counts --check) || fail "after --write: $wrong"
for bad in '12,500<!--count:c-lines-->' 'many<!--count:keys-->' '7<!--count:nothing-->'; do # 4% off, no number, not counted
  echo "There are $bad here." > "$folder/docs/bad.md"
  wrong=$(counts --check) && fail "$bad passes"
  [ "$(grep -c '^docs/bad.md: ' <<< "$wrong")" = 1 ] || fail "$bad: $wrong"
done
rm "$folder/docs/bad.md"
sed -i 's/^| fp64 |/| fp65 |/' "$folder/docs/parity.md"
wrong=$(counts) && fail "a table without fp64 is counted"
grep -q 'cannot be counted' <<< "$wrong" || fail "a table without fp64: $wrong"
[ "$failures" -eq 0 ]
