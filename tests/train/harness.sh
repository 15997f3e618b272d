# What the shell tests of training share: a corpus, a model and a recipe that train in seconds. Sourced by bash.
# PLAIT: the binary, SOURCE: the repository. All happens in a folder of its own, $work, which is removed at the end.
. "$SOURCE/tests/script.sh"

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

# metric RUN STEP KEY: its value in the line of that step
metric() { sed -n "s/.*\"step\": $2, .*\"$3\": \([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
# close_to A B MOST: two numbers above 0 differ by at most MOST × A
close_to() { awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) <= most * a) }'; }

losses() { sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

# resumes RUN STEP KEYS…: RUN, which has all its checkpoints, stopped after STEP and trained again to the same end is RUN to the bit
resumes() {
  local run=$1 step=$2 folder
  shift 2
  rm -rf "$run.again" && cp -r "$run" "$run.again"
  rm -f "$run.again/checkpoints/best"
  for folder in "$run.again"/checkpoints/step-*; do [ "${folder##*step-}" -le "$step" ] || rm -r "$folder"; done
  expect 0 "resuming from .*step-$step\$" "$PLAIT" train recipe.yaml run.dir="$run.again" "$@"
  diff <(ls "$run/checkpoints") <(ls "$run.again/checkpoints") || fail "$run.again: other checkpoints"
  same_run "$run" "$run.again"
}

# near A B FAR FROM UNTIL: of the steps after FROM up to UNTIL both have a loss, and B's is at most FAR × A's from A's
near() {
  join <(losses "$1" | sort) <(losses "$2" | sort) | awk -v far="$3" -v from="$4" -v to="$5" '$1 > from && $1 <= to { n++; d = $2 - $3; if (d < 0) d = -d
    if (!(d <= far * $2)) { bad = 1; print $1, $2, $3, d / $2 } } END { exit bad || n != to - from }' || fail "$2 is not $1 to $3, steps $(($4 + 1)) to $5"
}

# numbers RUN: losses with their gradient norms, and evaluations, in the order of the metrics
numbers() { sed -n 's/.*"loss": \([^,]*\),.*"grad_norm": \([^,]*\),.*/\1 \2/p; s/.*"eval_loss": \([^,}]*\).*/\1 0/p' "$1/metrics.jsonl"; }
# like_one RUN LINES: its last numbers are those of the run "one", to $far of each and $least
like_one() {
  paste <(numbers one | tail -"$2") <(numbers "$1" | tail -"$2") | awk -v lines="$2" -v far="$far" -v least="${least:-0}" '
    function off(a, b) { d = a - b; if (d < 0) d = -d; return !(d <= far * a + least) }
    off($1, $3) || off($2, $4) { bad = 1 } END { exit bad || NR != lines }' || fail "$1: the numbers are not those of one rank: $(paste <(numbers one) <(numbers "$1"))"
}

# as_one_rank RUN LAST FROM…: RUN has the loss of each step up to LAST once, and rounds of it began after the steps FROM. Of the first 30
# steps of a round losses are within 1e-10 those of one rank that starts from the same checkpoint, with ${keys[@]}; of the first 30
# steps of all within 1e-8 those of the run `whole`, on one rank.
as_one_rank() {
  local run=$1 last=$2 at until one
  shift 2
  [ "$(losses "$run" | cut -d' ' -f1)" = "$(seq 1 "$last")" ] || fail "$run: not each step once: $(losses "$run" | cut -d' ' -f1 | tr '\n' ' ')"
  until=$((last < 30 ? last : 30))
  [ -d whole ] || one_rank whole $until
  near whole "$run" 1e-8 0 $until
  while [ $# -gt 0 ]; do
    at=$1 until=${2-$last} one=whole
    shift
    [ "$until" -le $((at + 30)) ] || until=$((at + 30))
    [ "$until" -gt "$at" ] || continue # no checkpoint in this round
    if [ "$at" -gt 0 ]; then
      one=from-$at
      one_rank "$one" "$until" checkpoint.resume="$run/checkpoints/step-$at"
    fi
    near "$one" "$run" 1e-10 "$at" "$until"
  done
}
# one_rank RUN LAST KEYS…
one_rank() {
  local run=$1 last=$2
  shift 2
  "$PLAIT" train recipe.yaml "${keys[@]}" mesh.dp=1 mesh.tp=1 mesh.pp=1 parallel.zero=0 checkpoint.every=0 eval.every=0 \
    schedule.steps="$last" run.dir="$run" "$@" >log 2>&1 || { cat log; fail "$run: one rank up to step $last"; }
}

# wait_for CONDITION…: until the command succeeds, at most a minute times $patience
wait_for() {
  local end=$((SECONDS + 60 * patience))
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.01
  done
}

# halt PROCESS: stops it, and returns when none of its threads runs any more; 1: it has ended
halt() {
  local stat state
  kill -STOP "$1" 2>/dev/null || return 1
  for stat in /proc/"$1"/task/*/stat; do
    while read -r state <"$stat"; do
      state=${state##*) }
      case $state in T*) break ;; Z* | X*) return 1 ;; esac
    done 2>/dev/null
  done
}

# start ARGUMENTS…: plait train in the background, its id in $running, its output in "$work/log"
start() {
  : >"$work/log" # here: what an earlier run said must not be taken for this one's
  "$PLAIT" train "$@" >"$work/log" 2>&1 &
  running=$!
}

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
