#!/bin/sh
# tier 1; rooms cmd
# The command plait tokenize: files in, files out, its errors and exit statuses. PLAIT: the binary, SOURCE: the repository.
set -u
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
fail() { echo "FAILED: $*" >&2; exit 1; }
# expect STATUS PATTERN ARGUMENTS…: the exit status, and what the output must say.
expect() {
  status=$1 pattern=$2; shift 2
  "$PLAIT" tokenize "$@" >out 2>&1; got=$?
  [ $got -eq "$status" ] || { cat out; fail "tokenize $*: exit $got, not $status"; }
  grep -q -- "$pattern" out || { cat out; fail "tokenize $*: does not say: $pattern"; }
}

find "$SOURCE/src" -name '*.[ch]' | sort >list
printf 'struct point { int x; };\n' >a.txt
printf '{"text": "struct a"}\n{"text": "int b", "id": 7}\n' >b.jsonl
: >empty.txt

expect 0 'usage: plait tokenize' --help
expect 0 'vocabulary 400' --train --vocab-size 400 --out t.json --files-from list
expect 0 'vocabulary 400' --train --vocab-size 400 --out t1.json --threads 1 --files-from list
cmp t.json t1.json || fail "training depends on the threads"
expect 0 '3 documents' --tokenizer t.json --out one --threads 1 a.txt b.jsonl
expect 0 '3 documents' --tokenizer t.json --out three --threads 3 a.txt b.jsonl
cmp one.bin three.bin && cmp one.idx three.idx || fail "ids depend on the threads"
[ "$(od -An -tu2 -v one.bin | tr -s ' ' '\n' | grep -cx 0)" -eq 3 ] || fail "not three end-of-text tokens"
expect 0 'documents' --tokenizer t.json --out all --files-from list
sort -r list | "$PLAIT" tokenize --tokenizer t.json --out piped --files-from - >/dev/null || fail "a list from a pipe"
[ "$(wc -c <all.bin)" -eq "$(wc -c <piped.bin)" ] || fail "a list from a pipe has other ids"
expect 0 '1 empty documents' --tokenizer t.json --out with-empty a.txt empty.txt
expect 0 '1 document' --tokenizer "$SOURCE/tests/tokenizer/golden/llama2.json" --out l2 a.txt
expect 0 '1 document' --tokenizer "$SOURCE/tests/tokenizer/golden/llama2.json" --eot '<pad>' --out l2 --force a.txt
expect 0 '1 document' --tokenizer t.json --eot none --out without a.txt
[ $(($(wc -c <without.bin) + 2)) -eq "$(wc -c <with-empty.bin)" ] || fail "--eot none writes an end"


# ---- begin and end of documents: as the folder says, and a record beside the data ----
folders=$SOURCE/tests/tokenizer/folders
ids() { od -An -tu2 -v "$1.bin" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'; }
printf 'one text' >one.txt
for name in gpt2 gemma no-config; do
  path=$folders/$name
  expect 0 '^documents: ' --tokenizer "$path" --out "m-$name" one.txt a.txt # what begins and ends them, test_document_marks compares
  [ -s "m-$name.documents.json" ] || fail "$name: no record"
done
expect 0 '^documents: <s> … </s>, from add_bos_token of tokenizer_config.json and eos_token' --tokenizer "$folders/llama2" --out m --force one.txt
case $(ids m) in 1\ *\ 2) ;; *) fail "llama2: $(ids m)" ;; esac
expect 0 '^documents: <s> … <unk>, from .* and --eot' --tokenizer "$folders/llama2" --eot '<unk>' --out m --force one.txt
case $(ids m) in 1\ *\ 0) ;; *) fail "--eot: $(ids m)" ;; esac
expect 0 '^documents: … </s>, from eos_token' --tokenizer "$folders/llama2" --bos none --out m --force one.txt
case $(ids m) in 1\ *) fail "--bos none: $(ids m)" ;; *\ 2) ;; *) fail "--bos none: $(ids m)" ;; esac
expect 0 '^documents: </s> … </s>, from --bos and ' --tokenizer "$folders/llama2" --bos '</s>' --out m --force one.txt
expect 0 '^documents: nothing before and after them, from --bos and --eot' --tokenizer "$folders/llama2" --bos none --eot none --out m --force one.txt
grep -q '"end": null' m.documents.json || fail "the record of no end: $(cat m.documents.json)"
expect 2 '--bos <nope>: .* has no such token' --tokenizer "$folders/llama2" --bos '<nope>' --out x one.txt
expect 2 '--bos does not go with --train' --train --bos none --out x a.txt
# every document of several, whose parts are encoded by many threads
awk 'BEGIN { for (i = 0; i < 300000; i++) print "struct point" }' >long.txt
expect 0 '3 documents' --tokenizer "$folders/llama2" --threads 3 --out m --force one.txt long.txt a.txt
[ "$(ids m | tr ' ' '\n' | grep -cx 1)" -eq 3 ] && [ "$(ids m | tr ' ' '\n' | grep -cx 2)" -eq 3 ] || fail "not three begins and ends"
# files of the folder that contradict each other, are broken, or belong to another tokenizer
cp -r "$folders/llama2" odd
printf '{"add_bos_token": false, "eos_token": "</s>", "model_max_length": 1000000000000000019884624838656}' >odd/tokenizer_config.json
expect 0 'note: odd: tokenizer_config.json says add_bos_token: false, and the post-processor .* does otherwise' --tokenizer odd --out m --force one.txt
case $(ids m) in 1\ *) fail "add_bos_token: false: $(ids m)" ;; esac
expect 0 '^documents: <s> … </s>' --tokenizer odd --bos '<s>' --out m --force one.txt
grep -q note out && fail "a note though --bos says it: $(cat out)"
printf '{"eos_token": ' >odd/tokenizer_config.json
expect 2 'odd/tokenizer_config.json: line 1: not valid JSON' --tokenizer odd --out x one.txt
sed 's/"id":1,"content":"<s>"/"id":900,"content":"<new>"/' "$folders/llama2/tokenizer.json" >moved.json
expect 0 'note: moved.json declares id 900 for <new>, which gets ' --tokenizer moved.json --bos none --out m --force one.txt
rm -rf odd m.* m-*

# ---- lines as people have them ----
printf '{"text": null}\n{"text": "one \\ud83d"}\n{"text": "two"}\n' >null.jsonl
expect 0 '1 lines have no text (null) and were left out' --tokenizer t.json --out lines --force null.jsonl
expect 0 '1 halves of surrogate pairs became U+FFFD' --tokenizer t.json --out lines --force null.jsonl
expect 0 'lines: 2 documents' --tokenizer t.json --out lines --force null.jsonl
printf '{"content": "one"}\n{"text": "seven", "content": "two"}\n' >other.jsonl
expect 2 'other.jsonl: line 1: the key "text" is missing' --tokenizer t.json --out other other.jsonl
expect 0 'other: 2 documents' --tokenizer t.json --out other --key content other.jsonl
{ for i in 1 2 3 4 5 6 7 8; do yes '{"text": "struct point"}' | head -n 20000; echo "{\"text\": $i"; done; } >bad.jsonl
expect 2 'bad.jsonl: line 20001: not valid JSON' --tokenizer t.json --out bad bad.jsonl
expect 2 'line 160008: not valid JSON.*7 lines were skipped' --tokenizer t.json --out bad --skip-bad 7 bad.jsonl
expect 2 'allowed: a number of lines from 0, or all' --tokenizer t.json --out bad --skip-bad few bad.jsonl
[ ! -e bad.bin ] && [ ! -e bad.skipped ] || fail 'something is left of what failed'
for threads in 1 3; do
  expect 0 '160000 documents' --tokenizer t.json --out bad$threads --skip-bad 8 --threads $threads bad.jsonl
  [ "$(grep -c '^bad.jsonl: line [0-9]*: not valid JSON' bad$threads.skipped)" -eq 8 ] || fail 'not eight lines are listed'
done
[ "$(sed -n 8p bad1.skipped | cut -d: -f2)" = ' line 160008' ] || fail 'the eighth line has another number'
cmp bad1.skipped bad3.skipped && cmp bad1.bin bad3.bin || fail 'what is skipped depends on the threads'
expect 0 '8 bad lines were skipped' --train --vocab-size 300 --out bad.json --skip-bad all bad.jsonl
rm -f bad*
# What Python's json reads is read; two documents each, the second one being "two"
rows=0
line() { # PATTERN LINE [OPTION…], after which {"text": "two"} follows
  pattern=$1 first=$2; shift 2
  printf "$first"'\n{"text": "two"}\n' >people.jsonl
  case $pattern in *': 1 document'* | *': 2 documents'* | *halves* | *empty*) status=0 ;; *) status=2 ;; esac
  expect $status "$pattern" --tokenizer t.json --out people --force "$@" people.jsonl
  rows=$((rows + 1))
}
two='people: 2 documents'
line "$two" '{"text": "one", "id": 123456789012345678901234567890}'
line "$two" '{"text": "one", "score": 1e999}'
line "$two" '{"text": "one", "score": [NaN, -Infinity, Infinity, -0, 1E-7]}'
line "$two" '{"text": "one \\ud83d"}'
line '2 halves of surrogate pairs' '{"text": "\\udc00\\ud83d\\u0041"}' && line "$two" '{"text": "\\udc00\\ud83d\\u0041"}'
line 'people: 1 document,' '{"text": null}'
line "$two" '\357\273\277{"text": "one"}'
line 'line 1: not valid JSON: the text ends within an object' '{"text": "one"'
line 'people: 1 document,' '{"text": "one"' --skip-bad 1
line 'line 1: the key "text" is missing' '{"content": "one"}'
line "$two" '{"te\\u0078t": "one"}'
line 'line 1: the key "text" is not a string' '{"text": "one", "text": 3}'
line "$two" '{"text": 3, "text": "one"}'
line "$two" '{"text": "one\\u0000\\b\\f\\n\\r\\t\\/\\"\\\\"}'
line 'line 1: not valid JSON: a string has a control character' '{"text": "one\001"}'
line 'line 1: not valid JSON: a string has a control character' '{"text": "one\000"}'
line 'line 1: not valid JSON: the text is not UTF-8' '{"text": "one\377"}'
line "$two" '{"text": "one", "raw": "\377"}'
line "$two" '{"text": "one"}\r'
line "$two" '\n\r\n  \t \n{"text": "one"}\n'
line 'line 1: not a JSON object' '"one"'
line 'line 1: not a JSON object' '[{"text": "one"}]'
line 'line 1: not valid JSON: something follows the value' '{"text": "one"}{"text": "one"}'
line 'line 1: not valid JSON: a value is expected' '{"text": one}'
line "line 1: not valid JSON: a string in double quotes is expected" "{'text': 'one'}"
line '1 empty documents' '{"text": ""}'
deep=$(yes '[' | head -n 20000 | tr -d '\n')
line "$two" "{\"text\": \"one\", \"deep\": $deep$(echo "$deep" | tr '[' ']')}"
line 'not valid JSON: a value is expected' "{\"text\": \"one\", \"deep\": $deep$(echo "$deep" | tr '[' '}')}"
[ $rows -eq 29 ] || fail "$rows rows instead of 29"
# A text that spells out a control token
printf '{"text":"the mark <|endoftext|> ends"}\n' >marks.jsonl
expect 0 '^1 control token stood in the texts themselves (--plain-control-tokens' --tokenizer t.json --out marks marks.jsonl
[ "$(ids marks | tr ' ' '\n' | grep -cx 0)" -eq 2 ] || fail "the mark is not token 0: $(ids marks)"
expect 0 'marks: 1 document' --tokenizer t.json --out marks --force --plain-control-tokens marks.jsonl
grep -q 'control token' out && fail "counted although they are plain: $(cat out)"
[ "$(ids marks | tr ' ' '\n' | grep -cx 0)" -eq 1 ] || fail "the mark is token 0 although it should be plain: $(ids marks)"
yes 'int <|endoftext|> x;' | head -n 40000 >marks.txt
expect 0 '^40001 control tokens stood in the texts' --tokenizer t.json --out marks --force --threads 3 marks.txt marks.jsonl
expect 2 'plain-control-tokens does not go with --train' --train --plain-control-tokens --out x a.txt
rm -f people* marks*

expect 2 'FILES' --tokenizer t.json --out x
expect 2 '--tokenizer is missing' --out x a.txt
expect 2 '--out' --tokenizer t.json a.txt
expect 2 'takes no --tokenizer' --train --tokenizer t.json --out x a.txt
expect 2 '--vocab-size' --tokenizer t.json --vocab-size 300 --out x a.txt
expect 2 '257' --train --vocab-size 10 --out x a.txt
expect 2 'nosuch.txt' --tokenizer t.json --out x a.txt nosuch.txt
expect 2 'is a folder; name the files in it' --tokenizer t.json --out x "$folder"
expect 2 'no text' --tokenizer t.json --out x empty.txt
expect 2 'no such token' --tokenizer t.json --eot '<nope>' --out x a.txt
expect 2 'nosuch.json' --tokenizer nosuch.json --out x a.txt
expect 2 'WordPiece' --tokenizer "$(echo '{"model":{"type":"WordPiece"}}' >w.json; echo w.json)" --out x a.txt
printf '{"text": "ok"}\n{"text": 3}\n' >bad.jsonl
expect 2 'bad.jsonl: line 2: ' --tokenizer t.json --out x a.txt bad.jsonl
expect 1 'a.txt' --tokenizer t.json --out a.txt/x a.txt
expect 1 'a.txt' --train --vocab-size 300 --out a.txt/t.json a.txt
ls | grep -E '^x|tmp' && fail "a failed run left files"
# A folder that nobody has made yet is made: the README begins with one.
expect 0 'new/data/t.json' --train --vocab-size 260 --out new/data/t.json a.txt
expect 0 'new/more/x' --tokenizer new/data/t.json --out new/more/x a.txt
# Bytes that a vocabulary lacks: how many, in which file, where; once, and the sum at the end.
lacking=$SOURCE/tests/tokenizer/golden/smollm2.json
printf 'plain text, no warning\n' >plain.txt
expect 0 '1 document' --tokenizer "$lacking" --out lack plain.txt
grep -q lacks out && fail "a warning without reason"
printf 'twelve bytes\376\376 and \376, in a text that is long enough to be UTF-8 but for three bytes\n' >bytes.txt
expect 0 'bytes.txt: the tokenizer.s vocabulary lacks 3 bytes of this text, the first at byte 12; such bytes are left out' \
  --tokenizer "$lacking" --out lack2 bytes.txt
printf '{"text": "fine"}\n{"text": "\\u010e\\u010e"}\n' >lines.jsonl
expect 0 'lines.jsonl: .* lacks 4 bytes of this text, the first in line 2;' --tokenizer "$lacking" --out lack3 lines.jsonl
expect 0 'in all, 2 files have 7 bytes that the vocabulary lacks' --tokenizer "$lacking" --out lack4 bytes.txt lines.jsonl
[ "$(grep -c 'this text' out)" -eq 1 ] || fail "the warning is not said once"
expect 0 '1 document' --tokenizer t.json --out lack5 bytes.txt
grep -q lacks out && fail "a vocabulary of all bytes lacks some"
exit 0
