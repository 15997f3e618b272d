#!/bin/bash
# tier 2; rooms base runtime infer
# Signals (src/base/signals.def): the step ends, a checkpoint is saved, the status is its own, and the next run resumes to the
# bit. A second signal ends at once. A run folder belongs to one process. A rank that fails takes all others along.
. "$SOURCE/tests/train/harness.sh" || exit 1

# What shells and their callers ignore is not to reach plait here: a script's background jobs ignore SIGINT, under nohup all SIGHUP.
launch() { # COMMAND…: in the background, its id in $running, its output in log
  : >log
  env --default-signal=HUP,INT,USR1,USR2,TERM,XCPU,PIPE,XFSZ "$@" >log 2>&1 &
  running=$!
}
start() { launch "$PLAIT" train "$@"; }

# The field of /proc/PID/status (SigCgt: caught, SigIgn: ignored) has the signal's bit. The shell that becomes plait catches others.
has_signal() {
  [ "/proc/$running/exe" -ef "$PLAIT" ] || return
  ((16#$(sed -n "s/^$1:[[:space:]]*//p" "/proc/$running/status") >> ($(kill -l "$2") - 1) & 1))
}
catches() { has_signal SigCgt "$1"; }

# ended STATUS WHAT: waits for the end
ended() {
  wait "$running"
  local status=$?
  running=
  [ "$status" -eq "$1" ] || { cat log; fail "$2: status $status, expected $1"; }
}
said() { grep -c "^plait: SIG$1: stopping after this $2" log; }
steps_done() { grep -q '^step *[0-9]*/' log; }

# ---- the table is what --help and the page say ----

expect 0 'second SIGINT' env COLUMNS=1000 "$PLAIT" train --help
# status_of NAME: what a command ends with after the signal; NAME without SIG
status_of() {
  case $(sed -n "s/^SIGNAL(SIG$1, [A-Z]*, \([A-Z]*\),.*/\1/p" "$SOURCE/src/base/signals.def") in
  AGAIN) echo 75 ;;
  *) echo $((128 + $(kill -l "$1"))) ;;
  esac
}
while IFS=$'\t' read -r name action sender; do
  status=$(status_of "${name#SIG}")
  case $action in
  STOP) row="| \`$name\` | $status | ends the process at once | $sender |" ;;
  REPEAT) row="| \`$name\` | $status | changes nothing | $sender |" ;;
  IGNORE) row="| \`$name\` | | the write reports an error | $sender |" ;;
  *) row="an action that this test does not know" ;;
  esac
  grep -qxF -e "$row" "$SOURCE/docs/launch.md" || fail "docs/launch.md lacks the row: $row"
  [ "$action" = IGNORE ] || "$PLAIT" train --help | grep -q "$name" || fail "plait train --help does not name $name"
done < <(sed -n 's/^SIGNAL(\([A-Z0-9]*\), \([A-Z]*\), [A-Z]*, "\(.*\)")$/\1\t\2\t\3/p' "$SOURCE/src/base/signals.def")
[ "$(grep -c '^| `SIG' "$SOURCE/docs/launch.md")" -eq "$(grep -c '^SIGNAL(' "$SOURCE/src/base/signals.def")" ] || fail "docs/launch.md has other rows"

# ---- stopped, and on ----

"$PLAIT" train recipe.yaml run.dir=whole checkpoint.keep=0 eval.every=1 >log 2>&1 || { cat log; die "the unbroken run"; }
stops=0
for signal in TERM INT HUP USR1 USR2 XCPU; do
  start recipe.yaml run.dir=stopped eval.every=1 # each stop leaves an evaluation out
  wait_for steps_done || die "the run does not start"
  kill -s $signal "$running"
  wait "$running"
  status=$?
  running=
  [ "$status" -eq 0 ] && break # the last step was done already
  [ "$status" -eq "$(status_of $signal)" ] || { cat log; die "SIG$signal gives status $status"; }
  [ "$(said $signal step)" -eq 1 ] || { cat log; fail "SIG$signal: not one line"; }
  step=$(sed -n 's/^stopped by SIG[A-Z0-9]* after step \([0-9]*\), which is saved.*/\1/p' log)
  [ -f "stopped/checkpoints/step-$step/checkpoint.json" ] || die "stopped after step $step, which is not saved"
  [ "$(tail -1 stopped/metrics.jsonl | sed 's/.*"step": \([0-9]*\),.*/\1/')" -eq "$step" ] || die "lines beyond step $step"
  stops=$((stops + 1))
done
[ "$stops" -ge 1 ] || die "no run was stopped"
expect 0 'step|done' "$PLAIT" train recipe.yaml run.dir=stopped eval.every=1
same_run whole stopped
echo "stopped and resumed $stops times"

# ---- in the middle of a step: said at once; a second one ends it ----

slow='batch.global=16384 batch.micro=64 data.prefetch=1' # a step of many seconds
sanitized && slow='batch.global=2048 batch.micro=16 data.prefetch=1'
for signal in INT; do
  # shellcheck disable=SC2086 # words on purpose
  start recipe.yaml run.dir=twice $slow
  wait_for catches $signal || die "SIG$signal is never caught"
  kill -s HUP "$running"
  wait_for grep -q '^plait: SIGHUP: stopping' log || { cat log; die "nothing is said before the step has ended"; }
  for repeated in HUP HUP XCPU TERM USR1 USR2; do kill -s $repeated "$running" || die "SIG$repeated"; done
  has_signal SigCgt HUP || die "SIGHUP that repeats ends the run"
  kill -s $signal "$running" || die "it has ended before SIG$signal"
  ended $((128 + $(kill -l $signal))) "SIG$signal as the second one"
  steps_done && { cat log; fail "SIG$signal as the second one waits for the step"; }
  [ "$(grep -c '^plait: SIG' log)" -eq 1 ] || { cat log; fail "SIG$signal as the second one: not one line"; }
done

# ---- signals that the system repeats: the step is saved all the same ----

for signal in HUP TERM USR1; do # Slurm sends the last two to each process of a step, and a supervisor passes them on
  start recipe.yaml run.dir=repeated-$signal batch.global=2048 batch.micro=64 data.prefetch=1
  wait_for catches $signal || die "SIG$signal is never caught"
  kill -s $signal "$running"
  wait_for said $signal step || die "nothing is said at once"
  for repeated in $signal XCPU $signal; do kill -s "$repeated" "$running" || die "it has ended before SIG$repeated"; done
  ended "$(status_of $signal)" "SIG$signal that repeats"
  grep -q 'after step 1, which is saved' log && [ -f repeated-$signal/checkpoints/step-1/checkpoint.json ] || { cat log; fail "SIG$signal that repeats: not saved"; }
done

launch bash -c 'ulimit -S -t 2 && exec "$@"' bash "$PLAIT" train recipe.yaml run.dir=time schedule.steps=1000000 checkpoint.every=0 eval.every=0
ended 75 "a limit on CPU time"
grep -q '^stopped by SIGXCPU after step .*, which is saved; the same command resumes from there' log || { cat log; fail "a limit on CPU time: not saved"; }

# ---- inherited as ignored: stays ignored ----

start recipe.yaml run.dir=ignored schedule.steps=1000000 checkpoint.every=0 eval.every=0
kill -9 "$running"
wait "$running" 2>/dev/null
env --ignore-signal=HUP,INT "$PLAIT" train recipe.yaml run.dir=nohup schedule.steps=1000000 checkpoint.every=0 eval.every=0 >log 2>&1 &
running=$!
wait_for catches TERM || die "SIGTERM is never caught"
for ignored in HUP INT; do has_signal SigIgn $ignored || fail "SIG$ignored is not ignored any more"; done
kill -s HUP "$running"
kill -s INT "$running"
before=$(grep -c '"loss"' nohup/metrics.jsonl)
further() { [ "$(grep -c '"loss"' nohup/metrics.jsonl)" -gt $((before + 2)) ]; }
wait_for further || { cat log; fail "a signal that is ignored stops the run"; }
kill -s TERM "$running"
ended 143 "SIGTERM after those that are ignored"

# ---- writes that fail report it, and no signal kills ----

"$PLAIT" train recipe.yaml run.dir=pipe schedule.steps=10 | head -1 >/dev/null
[ "${PIPESTATUS[0]}" -eq 0 ] && [ -f pipe/checkpoints/step-10/checkpoint.json ] || fail "a pipe that nobody reads: status ${PIPESTATUS[0]}"
(failures=0 && ulimit -f 40 && refuse 1 '^plait train: .*: cannot be written: File too large' "$PLAIT" train recipe.yaml run.dir=limited; finish) || fail "a limit on the size of files"

# ---- the other commands; a pipe for a tokenizer holds them where they are until the signal has come ----

mkfifo held.json
# held SIGNAL COMMAND…
held() {
  local signal=$1
  shift
  launch "$PLAIT" "$@"
  wait_for catches "$signal" || { cat log; die "$1 does not catch SIG$signal"; }
  kill -s "$signal" "$running"
  timeout "$limit" cp tokenizer.json held.json || die "$1 does not read its tokenizer"
  ended $((128 + $(kill -l "$signal"))) "$1"
}
held INT eval whole --tokenizer held.json
[ "$(said INT batch)" -eq 1 ] && grep -q '^plait eval: stopped by SIGINT before the end' log || { cat log; fail "eval"; }
grep -q '^loss' log && fail "eval of a part: $(cat log)"
held TERM generate whole --prompt ba --tokenizer held.json --max-tokens 100000
[ "$(cat log)" = ba ] || fail "generate continues: $(head -c 500 log)"
held HUP tokenize --tokenizer held.json --out stopped-tokens text-00.txt
grep -qx 'plait tokenize: stopped by SIGHUP, nothing was written' log || { cat log; fail "tokenize"; }
compgen -G 'stopped-tokens*' && fail "tokenize leaves files"

# Nothing holds plait export, which takes a few hundredths of a second: some of many attempts meet it at work.
stops=0
for ((attempt = 0; attempt < 100 && stops < 3; attempt++)); do
  rm -rf stopped-export*
  launch "$PLAIT" export whole --out stopped-export
  until catches USR1 2>/dev/null; do kill -0 "$running" 2>/dev/null || break; done
  kill -s USR1 "$running" 2>/dev/null
  wait "$running"
  status=$?
  running=
  case $status in
  75)
    stops=$((stops + 1))
    grep -qx 'plait export: stopped by SIGUSR1, nothing was written' log || { cat log; fail "export"; }
    compgen -G 'stopped-export*' && fail "export leaves files"
    ;;
  0) [ -f stopped-export/model.safetensors ] || fail "export: status 0, but no folder" ;;
  *) fail "export: status $status: $(cat log)" ;;
  esac
done
[ "$stops" -eq 3 ] || fail "plait export was never stopped"
echo "export stopped $stops times in $attempt attempts"

# ---- one process a folder ----

start recipe.yaml run.dir=mine schedule.steps=1000000 checkpoint.every=0
wait_for steps_done || die "the run does not start"
refuse 2 "mine is in use by process $running;" "$PLAIT" train recipe.yaml run.dir=mine
refuse 2 "mine is in use by process $running;" "$PLAIT" train mine/recipe.yaml
kill -0 "$running" || die "the run in the folder has ended"
kill -INT "$running"
ended 130 "the locked run"

# ---- a rank fails, late ----

# The second rank's share of some step holds an id beyond the vocabulary; the corpus begins well.
cp corpus.idx bad.idx
cp corpus.bin bad.bin
printf '\377\177' | dd of=bad.bin bs=2 seek=$(($(wc -c <bad.bin) / 2 - 3000)) conv=notrunc 2>/dev/null
for layout in 'mesh.dp=2' 'mesh.dp=4 batch.micro=1' 'mesh.dp=2 mesh.pp=2' 'mesh.dp=1 mesh.tp=2 mesh.pp=2'; do
  rm -rf failing
  # shellcheck disable=SC2086
  refuse 2 '^plait train: rank [0-3]: .*bad.bin.*32767.*0 to 299' \
    "$PLAIT" train recipe.yaml run.dir=failing data.train=bad schedule.steps=3000 eval.every=0 checkpoint.every=5 $layout
  [ "$(grep -c '"loss"' failing/metrics.jsonl)" -ge 6 ] || fail "$layout: the metrics of the steps before are gone"
  compgen -G 'failing/checkpoints/*.tmp' && fail "$layout: an unfinished checkpoint is left"
done
# the same corpus, whole again: the run continues from what it had saved, though its data is not what it was
cp corpus.bin bad.bin
saved=$(ls failing/checkpoints | sed 's/step-//' | sort -n | tail -1)
expect 0 "resuming from .*step-$saved" "$PLAIT" train --force recipe.yaml run.dir=failing data.train=bad schedule.steps=$((saved + 10)) eval.every=0
finish
