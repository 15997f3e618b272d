#!/bin/bash
# A model family is named in its file and in families.def, and nowhere else: what others want to know of a model they ask its config
# and its graph. Comments may name families, and llama.cpp is a program. SOURCE: the repository.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
table=$SOURCE/src/model/families.def
families=$(sed -nE 's/^FAMILY\(([a-z0-9_]+)\)$/\1/p' "$table")
[ "$(wc -w <<<"$families")" -ge 6 ] || { echo "FAILED: the table was not read: $families"; exit 1; }
words=$(sed -E 's,(gpt)_?,\1[-_ ]?,' <<<"$families" | paste -sd'|')
files=$(sed 's,^,^src/model/families/,; s,$,\\.c,' <<<"$families" | paste -sd'|')

# Lines of code that have the name of a family as a word, or after family_ or MODEL_, whatever the case.
named() {
  (cd "$1" && find src include -name '*.[ch]' -o -name '*.def' | sort | grep -vE "$files|^src/model/families\.def$" |
    xargs grep -niE "(\\b|family_|model_)($words)\\b" /dev/null | sed -E 's,//.*,,; s,llama\.cpp,,' | grep -iE ":.*(\\b|family_|model_)($words)\\b")
}
# A family that includes another one's file.
includes() { (cd "$1" && grep -nE "#include \"model/families/" src/model/families/*.c); }

failures=0
if found=$(named "$SOURCE"); then
  printf 'FAILED: families that are named outside their file:\n%s\n' "$found"
  failures=1
fi
if found=$(includes "$SOURCE"); then
  printf 'FAILED: a family that another one includes:\n%s\n' "$found"
  failures=1
fi
for family in $families; do # and each file has its family
  grep -q "\.model_type = \"$family\"" "$SOURCE/src/model/families/$family.c" || { echo "FAILED: src/model/families/$family.c has no model_type $family"; failures=1; }
done
for file in "$SOURCE"/src/model/families/*; do
  grep -qx "$(basename "$file" .c)" <<<"$families" || { echo "FAILED: $file is not in families.def"; failures=1; }
done

# The search itself can fail: each of these lines is found, and none of those.
expect_found() {
  mkdir -p "$work/src/train" "$work/include" && printf '%s\n' "$2" >"$work/src/train/planted.c"
  if named "$work" >/dev/null; then [ "$1" = yes ]; else [ "$1" = no ]; fi || {
    printf 'FAILED: found should be %s: %s\n' "$1" "$2"
    failures=1
  }
}
expect_found yes '  if (c->family == MODEL_GPT2) return 1;'
expect_found yes '  if (!strcmp(model_family_name(c->family), "llama")) return 1;'
expect_found yes '  return c->family == &family_gpt_neo; // a comment'
expect_found yes 'int qwen3 = 1;'
expect_found yes '  .doc = "the positions of GPT-2";'
expect_found no '  return 1; // as llama has it'
expect_found no 'const char SPLIT_GPT2[] = "the expression of a tokenizer";'
[ $failures = 0 ] && echo "no family is named outside its file"
exit $failures
