#!/bin/bash
# tier 1
# `make help` lists every target and every setting; `make` alone builds the command and nothing else, `make install` no tests.
set -u
command -v make >/dev/null || { echo "no make here: not tested"; exit 77; }
cd "$SOURCE" || exit 1
unset MAKEFLAGS MAKELEVEL BUILD PREFIX DESTDIR
failures=0
fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}
help=$(make -s help) || fail "make help fails"
targets=$(sed -n 's/^\.PHONY: //p' Makefile)
[ "$(wc -w <<<"$targets")" -ge 10 ] || fail "no targets in .PHONY"
for target in $targets; do
  case $target in configure | dependencies) continue ;; esac # steps of the others
  grep -qE "^make $target +[a-z].{15}" <<<"$help" || fail "make help does not list $target"
done
for setting in $(sed -nE 's/^([A-Z_]+) \?=.*/\1/p' Makefile); do
  grep -q "\b$setting\b" <<<"$help" || fail "make help does not list $setting"
done
grep -E '.{101}' <<<"$help" && fail "a line of make help is longer than 100 columns"
builds() { make -n BUILD=nowhere "$@" 2>&1 | grep -F 'cmake --build nowhere'; } # nothing is run
[ "$(builds | sed 's/.*--target //')" = plait ] || fail "make builds: $(builds)"
[ "$(builds install | sed 's/.*--target //')" = installed ] || fail "make install builds: $(builds install)"
[ "$(builds test | sed 's/.*--target //')" = tier1 ] || fail "make test builds: $(builds test)"
builds check | grep -q -- --target && fail "make check does not build everything: $(builds check)"
runs() { make -n BUILD=nowhere "$@" 2>&1 | grep -o 'ctest .*'; }
runs test | grep -q -- "-L '^tier1\$'" || fail "make test runs: $(runs test)"
runs check | grep -q -- "-L '^tier\[12\]\$' -LE '^sampled\$'" || fail "make check runs: $(runs check)"
runs check ROOM=data | grep -q -- "-L '^(tier1|room:data)\$' -LE '^tier3\$'" || fail "make check ROOM=data runs: $(runs check ROOM=data)"
make -n check ROOM=nothing 2>&1 | grep -q 'src/ has no room "nothing"' || fail "a wrong ROOM: $(make -n check ROOM=nothing 2>&1 | tail -1)"
[ ! -e nowhere ] || fail "make -n made a folder"
echo "$failures failures"
[ "$failures" -eq 0 ]
