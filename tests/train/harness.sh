# What the shell tests of training share: a corpus, a model and a recipe that train in seconds. Sourced by bash.
# PLAIT: the binary, SOURCE: the repository. All happens in a folder of its own, $work, which is removed at the end.
set -u
work=$(mktemp -d) || exit 1
failures=0 running='' mounted='' limit=60

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

# What a run must repeat to the bit: all lines of steps, without what a clock or the system says.
steady() { sed '/^{"summary"/d; /"checkpoint_seconds"/d; s/, "tokens_per_s".*/}/' "$1/metrics.jsonl"; }

# same_run A B: every metrics line, and every file of tensors of the checkpoints that B holds
same_run() {
  diff <(steady "$1") <(steady "$2") >"$work/difference" || { fail "$2: metrics are not those of $1"; head -5 "$work/difference"; }
  local part
  for part in "$2"/checkpoints/step-*/part-*; do
    case $part in */step-*.tmp/*) continue ;; esac # what a killed run was writing
    cmp "$1${part#"$2"}" "$part" || fail "$part is not that of $1"
  done
}

# wait_for CONDITION…: until the command succeeds, at most a minute
wait_for() {
  local end=$((SECONDS + 60))
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.01
  done
}

# start ARGUMENTS…: plait train in the background, its id in $running, its output in "$work/log"
start() {
  : >"$work/log" # here: what an earlier run said must not be taken for this one's
  "$PLAIT" train "$@" >"$work/log" 2>&1 &
  running=$!
}

cd "$work" || exit 1
# Text that is the same for ever: which step meets which token is part of what is tested.
awk 'function draw(n) { x = x * 16807 % 2147483647; return x % n }
  BEGIN {
    x = 42
    split("ba do ki lu me no pa ra si tu ve zo", syllable, " ")
    for (document = 0; document < 40; document++) {
      file = sprintf("text-%02d.txt", document)
      for (line = 0; line < 100; line++) {
        text = ""
        for (word = draw(9) + 3; word > 0; word--) {
          for (part = draw(3) + 1; part > 0; part--) text = text syllable[int((draw(12) * draw(12)) / 12) + 1]
          text = text (word > 1 ? " " : draw(4) ? "." : "?")
        }
        print text > file
      }
      close(file)
    }
  }'
"$PLAIT" tokenize --train --vocab-size 300 --out tokenizer.json text-*.txt >log 2>&1 || { cat log; exit 1; }
"$PLAIT" tokenize --tokenizer tokenizer.json --out corpus text-[0-3]?.txt >log 2>&1 || { cat log; exit 1; }
"$PLAIT" tokenize --tokenizer tokenizer.json --out valid text-00.txt >log 2>&1 || { cat log; exit 1; }
sed 's/"vocab_size": 512/"vocab_size": 300/; s/pdrop": 0.0/pdrop": 0.1/' "$SOURCE/models/gpt-tiny.json" >model.json
cat >recipe.yaml <<'RECIPE'
model:      {config: model.json}
data:       {train: corpus, valid: valid, tokenizer: tokenizer.json, seq_len: 32}
mesh:       {dp: 2}
parallel:   {zero: 1}
batch:      {global: 8, micro: 2}
optimizer:  {lr: 3e-3}
schedule:   {warmup: 5, steps: 40}
checkpoint: {every: 2, keep: 3}
eval:       {every: 4, batches: 1}
run:        {dir: run, seed: 7, log_every: 1}
RECIPE
