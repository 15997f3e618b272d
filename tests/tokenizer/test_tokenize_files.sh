#!/bin/bash
# tier 3
# What plait tokenize reads (pipes, the standard input, .gz, .zst) and what it warns of; that it replaces nothing without --force; that
# files are whole or gone when it is stopped.
. "$SOURCE/tests/script.sh" || exit 1
for tool in gzip zstd; do command -v $tool >/dev/null || { echo "SKIPPED: there is no $tool here"; exit 77; }; done
# expect STATUS PATTERN ARGUMENTS…: the exit status, and what the output must say
expect() {
  local status=$1 pattern=$2 got
  shift 2
  timeout -s KILL "$limit" "$PLAIT" tokenize "$@" >out 2>&1
  got=$?
  [ $got -eq "$status" ] && grep -q -- "$pattern" out && return
  fail "tokenize $*: status $got, expected $status; expected to say: $pattern"
  sed 's/^/  | /' out
}
same() { # A B: the same token files
  cmp "$1.bin" "$2.bin" && cmp "$1.idx" "$2.idx" || fail "$2 is not $1"
}

# 9 MB: more than a block of what is read of a stream, and than a batch of slices
find "$SOURCE/src" "$SOURCE/tests" -name '*.[ch]' | LC_ALL=C sort | xargs cat >once.txt
for i in 1 2 3 4 5 6 7 8 9; do cat once.txt; [ "$(wc -c <once.txt)" -gt 5000000 ] && break; done >a.txt
awk '{ gsub(/[\\"\t\f\r]/, " "); printf "{\"text\": \"%s\"}\n", $0 }' once.txt >b.jsonl
"$PLAIT" tokenize --train --vocab-size 500 --out t.json once.txt b.jsonl >log 2>&1 || { cat log; exit 1; }
expect 0 ' documents' --tokenizer t.json --out plain a.txt b.jsonl

# ---- what it reads ----
gzip -k a.txt b.jsonl && zstd -q -k a.txt && zstd -q -k b.jsonl || exit 1
expect 0 ' documents' --tokenizer t.json --out gz a.txt.gz b.jsonl.gz
same plain gz
expect 0 ' documents' --tokenizer t.json --out zst --threads 1 a.txt.zst b.jsonl.zst
same plain zst
mkfifo pipe.jsonl
cat b.jsonl >pipe.jsonl &
expect 0 ' documents' --tokenizer t.json --out pipe a.txt pipe.jsonl
same plain pipe
"$PLAIT" tokenize --tokenizer t.json --out stdin - b.jsonl <a.txt >out 2>&1 || fail "the standard input: $(cat out)"
same plain stdin
cat a.txt.zst | "$PLAIT" tokenize --tokenizer t.json --out packed - b.jsonl >out 2>&1 || fail "packed text on the standard input: $(cat out)"
same plain packed
"$PLAIT" tokenize --tokenizer t.json --out lines b.jsonl >out 2>&1
"$PLAIT" tokenize --tokenizer t.json --out named --jsonl <(zstd -qdc b.jsonl.zst) >out 2>&1 || fail "--jsonl: $(cat out)"
same lines named
"$PLAIT" tokenize --train --vocab-size 500 --out packed.json - <once.txt b.jsonl.gz >out 2>&1 || fail "training: $(cat out)"
cmp t.json packed.json || fail "a tokenizer depends on how its text is packed"
# several members, as pigz and split write them, and an empty one
{ gzip -c once.txt; : | gzip -c; gzip -c once.txt; head -c 512 /dev/zero; } >members.gz
{ zstd -qc once.txt; zstd -qc once.txt; } >frames.zst
cat once.txt once.txt >twice.txt
expect 0 '1 document' --tokenizer t.json --out twice twice.txt
expect 0 '1 document' --tokenizer t.json --out members members.gz
expect 0 '1 document' --tokenizer t.json --out frames frames.zst
same twice members
same twice frames
expect 2 'given twice' --tokenizer t.json --out x - -
expect 2 'given twice' --tokenizer t.json --out x --files-from - -
expect 2 'standard input: no text' --tokenizer t.json --out x - </dev/null

# ---- damaged files: the error names them, and what was there stays ----
before=$(cat plain.bin plain.idx | cksum)
for packed in a.txt.gz a.txt.zst; do
  name=cut.${packed##*.}
  head -c $(($(wc -c <$packed) / 2)) $packed >"$name"
  expect 2 "$name: the .* data ends too early: the file is truncated" --tokenizer t.json --out plain --force once.txt "$name"
  expect 2 "$name: the .* data ends too early" --train --vocab-size 300 --out t.json --force "$name"
  head -c 3 $packed >"$name"
  expect 2 "$name: " --tokenizer t.json --out plain --force "$name"
  { head -c 2000 $packed; head -c 2000 /dev/zero | tr '\0' x; tail -c +4001 $packed; } >"$name"
  expect 2 "$name: the .* data is damaged" --tokenizer t.json --out plain --force "$name"
done
[ "$(cat plain.bin plain.idx | cksum)" = "$before" ] || fail "a damaged file has cost the old tokens"
cmp -s t.json packed.json || fail "a damaged file has cost the old tokenizer"
cp once.txt wrong.gz
expect 2 'wrong.gz: is not gzip data, although its name says so' --tokenizer t.json --out x wrong.gz
{ gzip -c once.txt; echo more; } >more.gz
expect 2 'more.gz: something follows the end of its gzip data' --tokenizer t.json --out x more.gz

# ---- what it replaces ----
expect 2 'plain.bin exists already; .*--force' --tokenizer t.json --out plain once.txt
mv plain.bin kept.bin
expect 2 'plain.idx exists already' --tokenizer t.json --out plain once.txt
mv kept.bin plain.bin
[ "$(cat plain.bin plain.idx | cksum)" = "$before" ] || fail "a refusal has cost the old tokens"
expect 2 't.json exists already' --train --vocab-size 300 --out t.json once.txt
expect 0 '1 document' --tokenizer t.json --out plain --force once.txt
[ "$(cat plain.bin plain.idx | cksum)" != "$before" ] || fail "--force replaces nothing"

# ---- what it warns of ----
head -c 20000 "$PLAIT" >program.txt
expect 0 'warning: program.txt looks like a binary file' --as-text --tokenizer t.json --out w --force program.txt once.txt
grep -q 'warning: once.txt' out && fail "a warning of text"
expect 0 'warning: program.txt looks like a binary file' --as-text --train --vocab-size 300 --out w.json --force program.txt
printf 'caf\xe9 d\xe9j\xe0 vu, tr\xe8s \xe2g\xe9\n' >latin1.txt
expect 0 'warning: latin1.txt is not UTF-8: [0-9.]*% of its characters .*iconv' --as-text --tokenizer t.json --out w --force latin1.txt
printf 'a \xef\xbf\xbd\xef\xbf\xbd b\n' >lost.txt
expect 0 'warning: lost.txt has lost characters: 29%' --tokenizer t.json --out w --force lost.txt
{ printf 'caf\xe9 '; head -c 300 once.txt; } >few.txt
expect 0 '1 document' --tokenizer t.json --out w --force few.txt
grep -q warning out && fail "a warning of one byte in 300: $(cat out)"
iconv -f UTF-8 -t UTF-16 once.txt >wide.txt 2>/dev/null
expect 0 'warning: wide.txt is UTF-16' --as-text --tokenizer t.json --out w --force wide.txt
for i in $(seq 12); do cp program.txt "p$i.txt"; done
expect 0 'warning: 3 more files do not look like text' --as-text --tokenizer t.json --out w --force p*.txt
[ "$(grep -c 'looks like a binary file' out)" -eq 10 ] || fail "not ten warnings: $(cat out)"

# ---- stopped: 128 + signal, and files are gone or whole ----
# A background job of a script ignores SIGINT. Waits until plait has begun to write, or for its pipe.
stopped() { # SIGNAL STATUS
  local status
  rm -f s.bin s.idx
  mkfifo endless
  env --default-signal=INT,TERM,HUP "$PLAIT" tokenize --tokenizer t.json --out s a.txt endless >out 2>&1 &
  local job=$!
  exec 9>endless # which waits until plait reads it
  for _ in $(seq $((600 * patience))); do compgen -G 's.bin.tmp.*' >/dev/null && break; sleep 0.05; done
  cat once.txt >&9
  kill -s "$1" $job
  wait $job
  status=$?
  exec 9>&-
  rm endless
  [ $status -eq "$2" ] || fail "status $status after SIG$1, expected $2: $(cat out)"
  grep -q "stopped by SIG$1, nothing was written" out || fail "after SIG$1: $(cat out)"
  compgen -G 's.*' && fail "files are left after SIG$1"
}
stopped INT 130
stopped TERM 143
stopped HUP 129
# the same while nobody has opened the pipe yet
mkfifo silent
env --default-signal=INT "$PLAIT" tokenize --tokenizer t.json --out s silent >out 2>&1 &
job=$!
for _ in $(seq $((600 * patience))); do compgen -G 's.bin.tmp.*' >/dev/null && break; sleep 0.05; done
kill -INT $job
wait $job
status=$?
[ $status -eq 130 ] || fail "status $status at a pipe that nobody writes to"
compgen -G 's.*' && fail "files are left"
# training a tokenizer
mkfifo slow
env --default-signal=TERM "$PLAIT" tokenize --train --vocab-size 500 --out t.json --force slow >out 2>&1 &
job=$!
exec 9>slow
cat once.txt >&9
kill -TERM $job
wait $job
status=$?
exec 9>&-
[ $status -eq 143 ] || fail "status $status of training"
cmp -s t.json packed.json || fail "a stopped training has changed the tokenizer"
compgen -G '*.tmp.*' && fail "temporary files are left"
finish
