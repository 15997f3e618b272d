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
builds test | grep -q -- --target && fail "make test does not build everything: $(builds test)"
[ ! -e nowhere ] || fail "make -n made a folder"
echo "$failures failures"
[ "$failures" -eq 0 ]
