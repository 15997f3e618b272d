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
