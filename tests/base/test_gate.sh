#!/bin/bash
# What .ci/run decides by: which rooms have changed (scripts/changed-rooms), and which red test is forgiven (scripts/unsteady).
set -u
command -v git >/dev/null && command -v ctest >/dev/null || { echo "no git or no ctest here: not tested"; exit 77; }
unset "${!GIT_@}" # of a hook that started this
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}
cd "$work" || exit 1
mkdir -p scripts cmake src/comm src/data src/elastic tests/net .ci
cp "$SOURCE"/scripts/{changed-rooms,unsteady} scripts/
grep '^set(rooms_' "$SOURCE/cmake/tests.cmake" >cmake/tests.cmake
seq 50 >src/comm/a.c; seq 50 >src/data/b.c; seq 60 >src/elastic/c.c; seq 9 >tests/net/net_a.sh
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a
git init -q . && git add -A && git commit -qm first || exit 1
first=$(git rev-parse HEAD)
rooms_are() { # EXPECTED COMMIT WHAT
  [ "$(scripts/changed-rooms $2 | tr '\n' ' ')" = "$1" ] || fail "$3: $(scripts/changed-rooms $2 | tr '\n' ' ')"
}
rooms_are '' "$first" "nothing has changed"
rooms_are 'comm data elastic ' '' "no commit: all rooms"
rooms_are 'comm data elastic ' 0123456789012345678901234567890123456789 "a commit that this clone lacks: all rooms"
git mv src/elastic/c.c src/data/c.c && git commit -qm moved
rooms_are '' "$first" "a moved file has not changed"
echo 51 >>src/data/b.c && git commit -qam edited
rooms_are 'data ' "$first" "a file of data"
echo 51 >>tests/net/net_a.sh && git commit -qam tests
rooms_are 'comm data ' "$first" "tests/net tests comm"
[ "$(scripts/changed-rooms --files HEAD~1)" = tests/net/net_a.sh ] || fail "changed files: $(scripts/changed-rooms --files HEAD~1)"
echo >>cmake/tests.cmake && git commit -qam cmake
rooms_are 'comm data elastic ' HEAD~1 "how all are built: all rooms"

# A build folder with a test that is red as often as the file `times` says.
mkdir build
cat >build/CTestTestfile.cmake <<EOF
add_test(unlucky "$work/unlucky")
set_tests_properties(unlucky PROPERTIES LABELS "tier1;room:comm")
add_test(sums "$work/unlucky")
set_tests_properties(sums PROPERTIES LABELS "tier1;room:comm;numbers")
EOF
printf '#!/bin/bash\nn=$(cat "%s/times")\necho $((n - 1)) >"%s/times"\n[ -z "${SAYS-}" ] || echo "$SAYS"\n[ -z "${DIES-}" ] || kill -ABRT $$\n[ "$n" -le 0 ]\n' "$work" "$work" >unlucky
chmod +x unlucky
# judged EXPECTED-STATUS PATTERN TIMES TESTS…: they were red once, and will be TIMES times more
judged() {
  local status=$1 pattern=$2 times=$3 got
  shift 3
  rm -rf build/red && mkdir build/red
  echo 1 >times
  (cd build && ctest -R "^($(tr ' ' '|' <<<"$*"))\$") >ctest.log 2>&1
  cp build/Testing/Temporary/LastTest.log build/red/1.log
  cp ctest.log build/red/1.console
  echo "$times" >times
  printf 'build %s\n' "$@" >red
  scripts/unsteady red >verdict 2>&1
  got=$?
  [ $got = "$status" ] && grep -qE "$pattern" verdict || { fail "$* red, then $times times: status $got, not $status and \"$pattern\""; cat verdict; }
}
judged 0 'unsteady: unlucky in build was red, and passed three times' 0 unlucky
judged 1 'red again, by itself \(try 1\)' 1 unlucky
judged 1 '2 tests are red: build sums, build unlucky' 0 unlucky sums
judged 1 'sums in build is red: numbers differ' 0 sums
export SAYS='ERROR: AddressSanitizer: heap-use-after-free'
judged 1 "a sanitizer's report" 0 unlucky
export SAYS='line 3: 12 Segmentation fault (core dumped)'
judged 1 "a crash" 0 unlucky
unset SAYS
export DIES=1
judged 1 'a crash' 0 unlucky
unset DIES
export CHANGED='data comm'
judged 1 'red, and tests comm, which has changed' 0 unlucky
CHANGED=data
judged 0 'unsteady: unlucky' 0 unlucky
echo "unlucky 1234567 a port was taken" >.ci/unsteady
judged 1 'for the second time \(unlucky 1234567 a port was taken\)' 0 unlucky
echo "$failures failures"
[ "$failures" -eq 0 ]
