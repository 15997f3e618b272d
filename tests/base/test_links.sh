#!/bin/bash
# Links in the repository's .md files lead to files and headings that exist, and docs/index.md links every page of docs/.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() { echo "FAIL: $*" >&2; failures=$((failures + 1)); }

# Links of a page, one a line, without those in code.
links() {
  awk '/^ *```/ { code = !code; next } !code { gsub(/`[^`]*`/, "x"); print }' "$1" | grep -oE '\]\([^)]+\)' | sed -E 's/^\]\((.*)\)$/\1/'
}

# Its headings as GitHub names them in links: small letters, no punctuation, spaces as hyphens.
anchors() {
  awk '/^ *```/ { code = !code; next } !code && /^#+ / { sub(/^#+ /, ""); print }' "$1" |
    sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g' | tr 'A-Z' 'a-z' | tr -d '`*.,:;()[]/?!"'"'"'+&=%<>→×·' | tr ' ' '-'
}

check() {
  local page=$1 link path target
  while IFS= read -r link; do
    case $link in http://* | https://* | mailto:*) continue ;; esac
    path=${link%%#*}
    target=$page
    [ -z "$path" ] || target=$(dirname "$page")/$path
    [ -e "$target" ] || { echo "$page: $link does not exist"; continue; }
    case $link in *.md#* | '#'*) anchors "$target" | grep -qxF -- "${link#*#}" || echo "$page: $link has no such heading" ;; esac
  done < <(links "$page")
}

count=0
while IFS= read -r page; do
  count=$((count + 1))
  wrong=$(check "$page")
  [ -z "$wrong" ] || fail "$wrong"
done < <(find "$SOURCE" -name .git -prune -o -path "$SOURCE/build*" -prune -o -path "$SOURCE/runs" -prune -o -path "$SOURCE/data" -prune -o \
  -name '*.md' -print)
[ "$count" -ge 20 ] || fail "only $count pages were found"

for page in "$SOURCE"/docs/*.md; do
  name=${page##*/}
  [ "$name" = index.md ] || links "$SOURCE/docs/index.md" | grep -qxF "$name" || fail "docs/index.md does not link $name"
done

# wrong links are noticed
printf '# A heading: here\n[a](there.md) [b](#a-heading-here) [c](#nowhere) `[d](code.md)`\n```\n[e](fence.md)\n```\n[f](https://example.org/)\n' > "$folder/page.md"
[ "$(check "$folder/page.md" | sed "s#$folder/##")" = "$(printf 'page.md: there.md does not exist\npage.md: #nowhere has no such heading')" ] ||
  fail "links of a wrong page: $(check "$folder/page.md")"
exit $((failures > 0))
