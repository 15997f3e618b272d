#!/bin/bash
# tier 2
# Help and man pages: wrapped to the width that is given, complete, without a complaint by man; and what make install would put where.
. "$SOURCE/tests/script.sh" || exit 1
export LC_ALL=C.UTF-8
commands=$("$PLAIT" --help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')

# ---- --help: no line is wider than COLUMNS (80 where nothing says), but for examples and words that are longer; options are aligned ----
for columns in 40 60 80 132; do
  for command in $commands; do
    COLUMNS=$columns "$PLAIT" "$command" --help | sed '/^examples:/,$d' >help
    wide=$(awk -v most=$columns 'length > most && NF > 2' help)
    [ -z "$wide" ] || fail "$command --help is wider than $columns: $wide"
  done
done
"$PLAIT" generate --help </dev/null | cat >piped
COLUMNS=80 "$PLAIT" generate --help | cmp -s - piped || fail "help to a pipe is not 80 columns wide"
[ "$(COLUMNS=200 "$PLAIT" explain --help | wc -l)" -lt "$(COLUMNS=60 "$PLAIT" explain --help | wc -l)" ] || fail "COLUMNS does nothing"
if command -v script >/dev/null; then # a terminal of 50 columns
  script -qec "stty cols 50; env -u COLUMNS '$PLAIT' explain --help" /dev/null </dev/null | tr -d '\r' | sed '/^examples:/,$d' >terminal
  COLUMNS=50 "$PLAIT" explain --help | sed '/^examples:/,$d' | cmp -s - terminal || fail "help does not follow the terminal: $(cat terminal)"
fi
columns=$(COLUMNS=60 "$PLAIT" explain --help | sed -n '/^options:/,/^$/p' | grep -oE '^ +(--[a-z-]+( [A-Za-z.]+)? +)?' | awk '{ print length }' | sort -n | uniq -c | sort -n | tail -1 | awk '{ print $2 }')
[ "${columns:-0}" -gt 20 ] || fail "the texts of options are not aligned"

# ---- man pages ----
"$PLAIT" docs write share || fail "docs write"
pages='plait.1 plait-recipe.5'
for command in $commands; do pages="$pages plait-$command.1"; done
[ "$(find share/man -type f | wc -l)" -eq "$(wc -w <<<"$pages")" ] || fail "pages: $(find share/man -type f)"
for page in $pages; do
  file=share/man/man${page##*.}/$page
  "$PLAIT" docs man "$page" | cmp - "$file" || fail "$page"
  if command -v man >/dev/null; then
    complaints=$(man --warnings -E UTF-8 -l -Tutf8 -Z "$file" 2>&1 >/dev/null)
    [ -z "$complaints" ] || fail "man on $page: $complaints"
  fi
done
command -v man >/dev/null || echo "man is not here: its warnings are not looked at"
find share -name '*.tmp*' | grep . && fail "files are left over"
grep -q '^\.TH PLAIT-TRAIN 1 ' share/man/man1/plait-train.1 || fail "the head of plait-train.1"
if command -v man >/dev/null; then
  MANWIDTH=100 man -l share/man/man5/plait-recipe.5 2>/dev/null | col -b >keys 2>/dev/null || MANWIDTH=100 man -l share/man/man5/plait-recipe.5 >keys
  for key in $("$PLAIT" recipe --docs | sed -n 's/^| `\([a-z_.]*\)`.*/\1/p'); do
    grep -qF "$key" keys || fail "plait-recipe.5 lacks $key"
  done
  MANWIDTH=100 man -l share/man/man1/plait-generate.1 >generate 2>/dev/null
  grep -q -- '--top-k' generate || fail "plait-generate.1 lacks --top-k"
fi
"$PLAIT" docs man plait-nothing.1 2>message && fail "a page of nothing"
grep -q 'there is no man page "plait-nothing.1"; the pages are plait.1, plait-recipe.5, plait-train.1' message || fail "$(cat message)"
for name in train plait-train train.1; do "$PLAIT" docs man $name | cmp - share/man/man1/plait-train.1 || fail "the page $name"; done
"$PLAIT" docs man plait | cmp - share/man/man1/plait.1 || fail "the page plait"
"$PLAIT" docs man recipe.5 | cmp - share/man/man5/plait-recipe.5 || fail "the page recipe.5"
for name in train.5 train.1x nothing '' recipe.; do "$PLAIT" docs man "$name" 2>/dev/null >&2 && fail "the page '$name'"; done
"$PLAIT" docs man plait-train.5 2>/dev/null && fail "plait-train.5"
for file in bash-completion/completions/plait zsh/site-functions/_plait fish/vendor_completions.d/plait.fish; do
  [ -s "share/$file" ] || fail "share/$file is not there"
done
if [ -e /dev/full ] && [ "$(id -u)" -ne 0 ]; then
  "$PLAIT" docs write /proc/nowhere 2>message && fail "writes into /proc"
fi

finish
