#!/bin/bash
# Each room of src/ has a README.md that can be read at a sitting: at most 150 lines, whose text has at most 120 columns. Tables, code
# and links that cannot be broken may be longer.
cd "$SOURCE/src" || exit 1
export LC_ALL=C # awk counts bytes: of a character only the first
failures=0
failed() { echo "FAILED: $1"; failures=1; }
# wide FILE: lines of text with more than 120 characters in which a blank stands before the 120th
wide() {
  awk '/^ *```/ { code = !code; next } code || /^ *\|/ || /^<!--/ { next }
    { gsub(/[\200-\277]/, ""); line = $0; sub(/^ *([-*]|[0-9]+\.)? */, "", line) }
    length($0) > 120 && index(line, " ") && index(line, " ") < 120 { print FILENAME ":" FNR }' "$1"
}
for room in */; do
  page=${room}README.md
  [ -s "$page" ] || { failed "src/${room%/} has no README.md"; continue; }
  lines=$(wc -l <"$page")
  [ "$lines" -le 150 ] || failed "src/$page has $lines lines: more than 150 belong into docs/"
  found=$(wide "$page")
  [ -z "$found" ] || failed "lines of more than 120 columns: $found"
done
# the search finds a long line, and only that one
probe=$(mktemp) || exit 1
trap 'rm -f "$probe"' EXIT
long=$(printf 'word %.0s' {1..30})
printf '%s\n' "$long" "| $long |" '```' "$long" '```' "- $(printf 'x%.0s' {1..130})" >"$probe"
[ "$(wide "$probe" | sed 's/.*://' | tr '\n' ' ')" = '1 ' ] || failed "the search for long lines is wrong: $(wide "$probe")"
exit $failures
