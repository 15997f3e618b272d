#!/bin/bash
# tier 2; rooms base
# Started without standard input, output or error (by a daemon, by cron, or with >&-), plait does its work, and what it prints
# lands in none of the files that it writes.
. "$SOURCE/tests/train/harness.sh" || exit 1
steps='schedule.steps=12 checkpoint.keep=0 run.tensorboard=true'

# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml run.dir=whole $steps >log 2>&1 || { cat log; die "the run with all descriptors"; }

# closed NAME COMMAND…: with that closed
closed() {
  local which=$1
  shift
  case $which in
  in) "$@" <&- >log 2>&1 ;;
  out) "$@" >&- 2>log ;;
  error) "$@" 2>&- >log ;;
  out-error) "$@" >&- 2>&- ;;
  all) "$@" <&- >&- 2>&- ;;
  esac
}

for which in in out error out-error all; do
  : >log
  # shellcheck disable=SC2086
  closed $which timeout -s KILL "$limit" "$PLAIT" train recipe.yaml run.dir=$which $steps || { cat log; fail "$which closed: status $?"; }
  same_run whole $which
  grep -vE '^\{"(step|summary)": .*\}$' $which/metrics.jsonl && fail "$which closed: these lines stand in metrics.jsonl"
  grep -qvx '[0-9]*' $which/lock && fail "$which closed: lock holds $(cat $which/lock)"
  cmp <(sed 's/dir: .*//' whole/recipe.yaml) <(sed 's/dir: .*//' $which/recipe.yaml) || fail "$which closed: recipe.yaml"
  grep -aq 'tok/s' $which/events.out.* && fail "$which closed: progress in the events"
  grep -q . log || [ $which = out ] || [ $which = out-error ] || [ $which = all ] || fail "$which closed: nothing was printed"
done

# Other commands: the same status, and what is open is still written to.
closed out "$PLAIT" plan nothere.yaml
[ $? -eq 2 ] && grep -q '^plait plan: .*nothere.yaml' log || fail "plan of a missing recipe, output closed: $(cat log)"
closed all "$PLAIT" plan nothere.yaml
[ $? -eq 2 ] || fail "plan of a missing recipe, all closed"
closed error "$PLAIT" plan recipe.yaml && grep -q '^= total' log || fail "plan, error closed: $(cat log)"
closed all "$PLAIT" tokenize --tokenizer tokenizer.json --out again text-[0-3]?.txt || fail "tokenize, all closed: status $?"
cmp corpus.bin again.bin && cmp corpus.idx again.idx || fail "tokenize, all closed: other files"
closed all "$PLAIT" export whole --out exported || fail "export, all closed: status $?"
"$PLAIT" export whole --out exported-open >log 2>&1 || fail "export: $(cat log)"
diff -r exported exported-open || fail "export, all closed: other files"
closed in "$PLAIT" tokenize --tokenizer tokenizer.json --out none --files-from -
[ $? -eq 2 ] && grep -q 'no FILES are given' log || fail "a list from a standard input that is closed: $(cat log)"
finish
