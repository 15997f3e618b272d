#!/bin/bash
# Lines of C have at most 120 columns, no tabs, and no spaces at their ends; no line of a comment has one word where the
# comment continues below it, as bad filling leaves. scripts/format breaks lines that are too long, and leaves columns and
# dividers of comments alone. bash reads each of its scripts to the end: a quote that is not closed is found here.
cd "$SOURCE" || exit 1
export LC_ALL=C.UTF-8
files=$(find src include tests bench examples -name '*.[ch]' -o -name '*.def')
[ "$(wc -w <<<"$files")" -gt 300 ] || { echo "the test looks in the wrong place"; exit 1; }
red=0
# shellcheck disable=SC2086 # words on purpose
if found=$(grep -nE "^.{121,}|$(printf '\t')| +\$" $files); then
  echo "$found" | cut -c1-150 | head -40
  echo "$(wc -l <<<"$found") lines are longer than 120 columns, or have tabs or spaces at their ends; scripts/format breaks long ones"
  red=1
fi

parse() { local f bad=0; for f; do bash -n "$f" || bad=1; done; return $bad; }
mapfile -t scripts < <(grep -rlIE -m1 '^#!/bin/bash|^#!/usr/bin/env bash' scripts .ci tests bench examples)
[ "${#scripts[@]}" -gt 100 ] || { echo "the test finds ${#scripts[@]} scripts only"; exit 1; }
parse "${scripts[@]}" || red=1

# lonely FILE…: lines of a comment with one word, followed by a line of the same comment. A line that begins a paragraph is
# none (the line before it is not of the comment, or empty), nor is one of a list or of code, which is indented.
lonely() {
  awk 'FNR == 1 { before = last = "" }
    /^ *\/\/ [^ ]/ && last ~ /^ *\/\/ [^ ]+$/ && before ~ /^ *\/\/ [^ ]/ { print FILENAME ":" FNR - 1 ":" last }
    { before = last; last = $0 }' "$@"
}
# shellcheck disable=SC2086
found=$(lonely $files)
if [ "$found" ]; then
  echo "$found" | head -40
  echo "these lines of comments have one word; fill the paragraph"
  red=1
fi
planted=$(mktemp -d) && trap 'rm -rf "$planted"' EXIT
printf '// The dim that is gathered can be taken in blocks (e is the cut\n// dim):\n// and so on.\nint x;\n// One.\n// two words\n' \
  >"$planted/a.h"
[ "$(lonely "$planted/a.h")" = "$planted/a.h:2:// dim):" ] || { echo "a planted line of one word is not found"; red=1; }
printf "#!/bin/bash\nlegs='of PyPI's client'\n(\n" >"$planted/c"
parse "$planted/c" 2>/dev/null && { echo "a planted quote that is not closed is not found"; red=1; }

command -v python3 >/dev/null || exit $red
python3 - "$planted" <<'EOF' || red=1
import importlib.machinery, importlib.util, os, sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("format", "scripts/format")
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("format", loader))
loader.exec_module(module)
module.ROOT = sys.argv[1]
words = "word " * 24
fixed = ["// ---- a divider with a long title " + "-" * 84,
         "// This line is a paragraph.",
         "//   name        a row of columns that is nearly as long as a line may be, so that the next one could continue it",
         "//   other name  another row",
         "//   a name of several words  " + words + "that is too long to stay in one line",
         "// key  one more row"]
with open(os.path.join(module.ROOT, "b.h"), "w") as file:
    file.write("\n".join(fixed + ["// " + words + "one two", "// three"]))
module.wrap_comments("b.h")
lines = module.lines_of("b.h")
if lines[:len(fixed)] != [line[:120] if "divider" in line else line for line in fixed]:
    sys.exit("scripts/format changes columns or dividers:\n" + "\n".join(lines))
if lines[len(fixed):] != ["// " + ("word " * 23).strip(), "// word one two three"]:
    sys.exit("scripts/format does not fill a paragraph:\n" + "\n".join(lines))
EOF
exit $red
