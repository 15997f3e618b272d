# What the shell tests share: a folder of their own, $work, which is removed at the end, failures that are counted, and commands whose
# status and words are compared. Sourced by bash. PLAIT: the binary, SOURCE: the repository.
set -u
work=$(mktemp -d) || exit 1
tier=${PLAIT_TIER:-2}         # 1: a sample that takes seconds; 2: make check; 3: all of it (tests/tier.h)
patience=${PLAIT_PATIENCE:-1} # how many times longer than on a quiet machine, without sanitizers, anything may take
failures=0 running='' mounted='' limit=$((60 * patience))

# A build with sanitizers is about ten times slower, and its memory is not that of plait.
sanitized() { grep -qa -e __asan_init -e __tsan_init "$PLAIT"; }

clean_up() {
  [ "$BASHPID" = "$$" ] || return # a child that a signal meets before it has become plait
  [ -n "$running" ] && kill -9 "$running" 2>/dev/null && wait "$running" 2>/dev/null
  [ -n "$mounted" ] && umount "$mounted"
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

die() {
  fail "$@"
  exit 1
}

finish() {
  [ "$failures" -eq 0 ] || exit 1
  exit 0
}

# expect STATUS PATTERN COMMAND…: the exit status within $limit seconds, and an extended regular expression in the output
expect() {
  local status=$1 pattern=$2 got
  shift 2
  timeout -s KILL "$limit" "$@" >"$work/output" 2>&1
  got=$?
  if [ "$got" -ne "$status" ] || ! grep -qE -e "$pattern" "$work/output"; then
    fail "$*"
    printf '  status %s, expected %s; expected to match: %s\n' "$got" "$status" "$pattern"
    sed 's/^/  | /' "$work/output" | tail -"$(sanitized && echo 100 || echo 20)" # a sanitizer's report is long
  fi
}

# The same, and the complaint is one sentence of plait's on a line of its own.
refuse() {
  expect "$@"
  [ "$(grep -c '^plait' "$work/output")" -eq 1 ] || fail "not one sentence: $(tail -3 "$work/output")"
}

cd "$work" || exit 1
