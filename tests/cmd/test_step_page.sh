#!/bin/bash
# tier 2; rooms machine recipe compile program
# docs/step.md, docs/recompute.md and others show what plait prints now, and every file and function that they name exists.
. "$SOURCE/tests/script.sh" || exit 1

# ---- printed blocks
for page in step troubleshooting parallelism foresight recompute; do
  cp "$SOURCE/docs/$page.md" "$work/$page.md"
  PLAIT=$PLAIT "$SOURCE/scripts/step-page" "$work/$page.md" || fail "scripts/step-page on docs/$page.md"
  diff "$SOURCE/docs/$page.md" "$work/$page.md" || fail "docs/$page.md shows what plait no longer prints; scripts/step-page writes it anew"
  [ "$(grep -c '^<!-- prints: ' "$work/$page.md")" -ge 2 ] || fail "docs/$page.md has hardly any printed blocks"
done

for page in parallelism foresight recompute; do
  grep -E '^(plait( [a-z]+)?|bash|environment): ' "$SOURCE/docs/$page.md" | grep -v '^plait plan: nothing fits on ' && fail "a command of docs/$page.md is refused"
done

# a block that is out of date is noticed, and one that is not closed is an error
printf '<!-- prints: echo now -->\n```\n$ echo now\nbefore\n```\n<!-- end -->\nafter\n' > "$work/old.md"
"$SOURCE/scripts/step-page" "$work/old.md"
grep -qx now "$work/old.md" && ! grep -qx before "$work/old.md" && grep -qx after "$work/old.md" || fail "an old block stays: $(cat "$work/old.md")"
printf '<!-- prints: echo now -->\n' > "$work/open.md"
"$SOURCE/scripts/step-page" "$work/open.md" 2> /dev/null && fail "a block without an end is accepted"

# a page that runs an example where none are built stays as it is, and so does every other page
mkdir bare && printf '#!/bin/sh\necho Usage\n' > bare/plait && chmod +x bare/plait
printf '<!-- prints: echo now -->\n<!-- end -->\n' > first.md
printf '<!-- prints: echo 1 | by_hand_one 4 -->\nbefore\n<!-- end -->\n' > example.md
printf '<!-- prints: plait train --help | head -3 -->\n<!-- end -->\n' > command.md # the name of an example, too
cp first.md first.before && cp example.md example.before
PLAIT=$work/bare/plait expect 1 '^step-page: example.md runs the example by_hand_one, which is not built here: make examples$' "$SOURCE/scripts/step-page" first.md example.md
PLAIT=$work/bare/plait "$SOURCE/scripts/step-page" command.md && grep -qx Usage command.md || fail "plait train is taken for the example train: $(cat command.md)"
cmp first.md first.before && cmp example.md example.before || fail "a page was written without its examples"

# ---- *Code:* lists: [file.c](../path/file.c) `function`, `function`; …
missing() {
  awk 'BEGIN { RS = "" } /^\*Code:\*/ { gsub("\n", " "); print }' "$1" | grep -oE '\[[^]]*\]\(\.\./[^)]*\)[^[]*' | while IFS= read -r item; do
    path=${item#*](../}
    path=${path%%)*}
    [ -f "$SOURCE/$path" ] || { echo "$path"; continue; }
    for name in $(grep -oE '`[a-z_0-9]+`' <<< "${item#*)}" | tr -d '`'); do
      grep -qE "^[a-zA-Z].*[ *]$name\(" "$SOURCE/$path" || echo "$name in $path"
    done
  done
}
named=$(grep -c '^\*Code:\*' "$SOURCE/docs/step.md")
[ "$named" -ge 15 ] || fail "docs/step.md: only $named lists of code"
lost=$(missing "$SOURCE/docs/step.md")
[ -z "$lost" ] || fail "docs/step.md names what does not exist: $lost"
printf '*Code:* [a.c](../src/compile/zero.c) `pass_zero`, `no_such`; [b.c](../src/no.c) `x`.\n' > "$work/code.md"
[ "$(missing "$work/code.md" | tr '\n' ';')" = "no_such in src/compile/zero.c;src/no.c;" ] || fail "names that do not exist pass: $(missing "$work/code.md")"

# ---- every pass has its place, in order
passes=$(sed -nE 's/^PASS\(([a-z]+),.*/\1/p' "$SOURCE/src/compile/passes.def")
told=$(sed -nE 's/^### 3\.[0-9]+ ([a-z]+):.*/\1/p' "$SOURCE/docs/step.md")
[ "$passes" = "$told" ] || fail "docs/step.md tells the passes $told; passes.def has $passes"
finish
