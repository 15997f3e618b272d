#!/bin/bash
# Comments, messages and pages say things in plain English: no habit of ours that readers stumble over. Each is a regular
# expression of Perl, and what to write instead. Rooms that have not been gone through yet may have as many as they have.
cd "$SOURCE" || exit 1
export LC_ALL=C.UTF-8
echo x | grep -qP 'x(?! )' 2>/dev/null || { echo "grep has no -P"; exit 77; }
not_yet='^(src|tests)/(comm|elastic|net)/|^src/runtime/(session|launch|rank\.c)|^src/cmd/launch\.c|^src/base/error\.|^docs/(launch|net|stores)\.md'
places() {
  find src include tests bench examples scripts cmake docs README.md CONTRIBUTING.md -type f ! -path '*/golden/*' \
    ! -path '*/fuzz/seeds/*' ! -name test_words.sh | sort
}

# hits REGEX ROOT: FILE:LINE:TEXT of each place below ROOT
hits() {
  (cd "$2" && places | tr '\n' '\0' | xargs -0 grep -nIHP -- "$1")
}

# tic ROOT NOT_YET REGEX INSTEAD [EXCEPTION]: 0 elsewhere, and at most NOT_YET in the rooms above
tic() {
  local all mine theirs
  all=$(hits "$3" "$1")
  [ -z "${5:-}" ] || all=$(grep -vF -- "$5" <<<"$all")
  mine=$(grep -vP "$not_yet" <<<"$all" | grep .)
  theirs=$(grep -cP "$not_yet" <<<"$all")
  if [ "$mine" ]; then
    cut -c1-180 <<<"$mine"
    echo "/$3/ $(wc -l <<<"$mine") times: $4"
  fi
  [ "$theirs" -le "$2" ] || echo "/$3/ $theirs times in rooms that had it $2 times: $4"
}

# tics ROOT: prints what is wrong
tics() {
  tic "$1" 21 '(?<!far )\b[Bb]ehind\b(?! (a vtable|links)\b)' 'say after, below, or which waits for which'
  tic "$1" 40 '\b[Gg](o|oes|oing|one) on\b|\bwent on\b' 'say continues'
  tic "$1" 6 '(?<!here )\b(is|are|was|were|be) no\b(?! (more|longer|larger|less|later|greater|better|fewer|older)\b)' 'say is not a …'
  tic "$1" 40 '\b[Ss]o many\b' 'say which number'
}
found=$(tics .)
[ -z "$found" ] || echo "$found"

# sentences of comments that begin with "What": a ceiling, which may only come down
what() { hits '(// |\* |^ *//.*[.;:] |^ *# )What .*' "$1" | grep -vcP '\?'; }
most=312
now=$(what .)
[ "$now" -le $most ] || { found=1; echo "$now sentences of comments begin with \"What\", where there were $most: name the thing instead"; }

# and each is found where it is planted
planted=$(mktemp -d) && trap 'rm -rf "$planted"' EXIT
mkdir -p "$planted"/{src,include,tests,bench,examples,scripts,cmake,docs} && touch "$planted"/{README,CONTRIBUTING}.md
for text in '// It stands behind the other.' '// The run goes on.' '// This is no number.' '// So many ranks have it.'; do
  echo "$text" >"$planted/src/a.h"
  tics "$planted" | grep -qF "src/a.h:1:$text" || { found=1; echo "not found: $text"; }
done
echo '// What is done is done.' >"$planted/src/a.h"
[ "$(what "$planted")" = 1 ] || { found=1; echo 'a planted "What" is not found'; }
[ -z "$found" ]
