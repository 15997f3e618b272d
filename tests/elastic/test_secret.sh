#!/bin/bash
# tier 2; rooms comm; numbers
# plait launch with a secret: the run of threads to the bit; secrets that others may read, and files that are none, are refused before
# anything starts. Needs GnuTLS.
. "$SOURCE/tests/elastic/environment.sh" || exit 1

"$PLAIT" launch --make-secret key || die "--make-secret"
[ "$(stat -c '%a %s' key)" = '600 32' ] || fail "key is $(stat -c '%a %s' key)"
"$PLAIT" launch --make-secret key 2>log && fail "a secret is written over"
grep -q -- '--make-secret key: File exists; remove it first, or give another name' log || fail "$(cat log)"

"$PLAIT" launch --nproc-per-node 2 --secret key recipe.yaml run.dir=secret >log 2>&1
if grep -q 'this plait was built without GnuTLS; install it (on Debian libgnutls28-dev)' log; then
  echo "skipped: a build without GnuTLS"
  exit 77
fi
"$PLAIT" train recipe.yaml run.dir=threads >log2 2>&1 || { cat log2; die "the run of threads"; }
same_run threads secret || cat log

# refused FILE WORDS
refused() {
  "$PLAIT" launch --nproc-per-node 2 --secret "$1" recipe.yaml run.dir=refused >log 2>&1
  [ $? -eq 2 ] || fail "$1: another status"
  grep -q -- "$2" log || fail "$1: $(cat log)"
  [ ! -e refused ] || fail "$1: something has started"
}
cp key shared && chmod 640 shared
refused shared 'plait launch: --secret shared: its mode is 640, so others than its owner may use it; it must be 600: chmod 600 shared'
head -c 31 key >short && chmod 600 short
refused short 'short has 31 bytes; it must have 32 random ones: plait launch --make-secret FILE'
refused not-there 'plait launch: --secret not-there: No such file or directory'
mkdir folder
refused folder 'folder is not a file'
"$PLAIT" launch >log 2>&1
[ $? -eq 2 ] && grep -q 'a recipe is missing' log || fail "no recipe: $(cat log)"
finish
