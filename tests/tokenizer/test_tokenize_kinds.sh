#!/bin/bash
# tier 1; rooms cmd base
# What plait tokenize makes of a file is decided by its contents: lines of JSON under any name, and JSON, packed and binary files, pointers
# and other encodings that must not become tokens unless --as-text asks for them.
. "$SOURCE/tests/script.sh" || exit 1
for tool in gzip python3; do command -v $tool >/dev/null || { echo "SKIPPED: there is no $tool here"; exit 77; }; done
cd "$work" || exit 1
# says STATUS PATTERN ARGUMENTS…: of plait tokenize, of which nothing is left where it fails
says() {
  local status=$1 pattern=$2
  shift 2
  rm -f o.*
  expect "$status" "$pattern" "$PLAIT" tokenize --tokenizer t.json --out o "$@"
  [ "$status" -eq 0 ] || ! compgen -G 'o.*' || fail "$*: something is left"
}
note='note: [^ ]* holds lines of JSON: each is a document'
yes 'the cat sat on the mat in the hat' | head -n 300 >a.txt
"$PLAIT" tokenize --train --vocab-size 270 --out t.json a.txt >log || { cat log; exit 1; }

# ---- lines of JSON, whatever the name ----
printf '{"text": "one"}\n{"text": "two"}\n' >c.jsonl
"$PLAIT" tokenize --tokenizer t.json --out right c.jsonl >log 2>&1 || die "$(cat log)"
grep -q ': 2 documents' log || die "$(cat log)"
for name in c.json c.JSON c.txt c.jsonl.txt c; do
  cp c.jsonl $name
  says 0 "$note" $name
  cmp o.bin right.bin || fail "$name is read otherwise"
done
for name in c.JSONL c.jsonlines c.ndjson C.NDJson.GZ; do
  case $name in *GZ) gzip -c c.jsonl >$name ;; *) cp c.jsonl $name ;; esac
  says 0 ': 2 documents' $name
  cmp o.bin right.bin && ! grep -q note "$work/output" || fail "$name: $(cat "$work/output")"
done
gzip -c c.jsonl >packed
says 0 "$note" packed
cmp o.bin right.bin || fail 'packed lines are read otherwise'
expect 0 "note: standard input holds lines" "$PLAIT" tokenize --tokenizer t.json --out o --force - <c.jsonl
cmp o.bin right.bin || fail 'lines of the standard input are read otherwise'
says 0 'note: c.json and 1 more files hold lines of JSON' c.json a.txt c.txt
printf '\n{"text": null}\n{"meta": [1, {"text": 2}], "te\\u0078t": "one"}\r\n\r\n   \n{"text": "two"}' >odd.json
says 0 ': 2 documents' odd.json
cmp o.bin right.bin || fail 'odd lines are read otherwise'
printf '\xef\xbb\xbf\r\n{"text": "one"}\r\n{"text": "two"}\r\n' >bom.json
says 0 ': 2 documents' bom.json
cmp o.bin right.bin || fail 'lines after a BOM are read otherwise'
printf '{"text": "one"}' >single.json
says 0 "$note" single.json
printf '{"content": "one"}\n{"content": "two"}\n' >other
says 2 'other holds lines of JSON without the key "text": --key NAME says .*--as-text takes it as one text' other
says 0 ': 2 documents' --key content other
cmp o.bin right.bin || fail '--key reads otherwise'
says 2 'other holds lines of JSON without the key "nope"' --key nope other
# a line longer than what is looked at
python3 -c "print('{\"text\": \"' + 'the cat ' * 20000 + '\"}\n{\"text\": \"two\"}')" >long.json
says 0 ': 2 documents' long.json
python3 -c "print('{\"id\": \"' + 'the cat ' * 20000 + '\", \"text\": \"one\"}')" >late.jsonl
says 0 ': 1 document,' late.jsonl
# text that only begins like them
printf '{"text": "one"}\nand then prose\n' >prose.txt
says 2 'prose.txt: line 2: not valid JSON.*--as-text' prose.txt
says 0 ': 1 document,' --as-text prose.txt
says 0 ': 1 document,' --as-text c.json
grep -q note "$work/output" && fail 'a note although --as-text says it'
says 0 ': 2 documents' --as-text c.jsonl
says 2 '--as-text does not go with --jsonl' --as-text --jsonl c.json

# ---- JSON that is not an object a line ----
printf '[{"text": "one"}, {"text": "two"}]' >array.json
says 2 'array.json is one JSON array of objects with the key "text".*jq -c' array.json
printf ' [\n {"id": 1,\n "text": "one"},\n {"text": "two"}\n]\n' >tall.json
says 2 'tall.json is one JSON array' tall.json
printf '{\n "text": "one"\n}\n' >pretty.json
says 2 'pretty.json begins with a JSON object .*jq -c \. ' pretty.json
printf '{"text": "one"\n{"text": "two"}\n' >damaged.json
says 2 'damaged.json begins with a JSON object .*--jsonl says which line is damaged' damaged.json
says 2 'damaged.json: line 1: not valid JSON' --jsonl damaged.json
says 0 ': 1 document,' --as-text array.json
# other JSON, and what looks like some, is text
for text in '{"name": "x",\n "v": [1]}\n' '["a", "b"]\n' '{"content": "one"}\n' '{ int x; }\n' '[1](link) of a page\n' '{}'; do
  # shellcheck disable=SC2059
  printf "$text" >text.json
  says 0 ': 1 document,' text.json
  grep -q note "$work/output" && fail "$text: $(cat "$work/output")"
done

# ---- packed files that are not unpacked, binary files, pointers ----
python3 - <<E
import bz2, io, lzma, random, tarfile, zipfile, gzip
text = open('a.txt', 'rb').read()
w = lambda name, data: open(name, 'wb').write(data)
w('a.xz', lzma.compress(text)), w('a.lzma', lzma.compress(text, format=lzma.FORMAT_ALONE)), w('a.bz2', bz2.compress(text))
with zipfile.ZipFile('a.zip', 'w') as z: z.write('a.txt')
with tarfile.open('a.tar', 'w') as t: t.add('a.txt')
w('a.tar.gz', gzip.compress(open('a.tar', 'rb').read())), w('twice.gz', gzip.compress(gzip.compress(text)))
w('lines.jsonl', lzma.compress(b'{"text": "one"}\n'))
w('a.lz4', b'\x04\x22\x4d\x18\x64\x40\xa7'), w('a.zst4', b'\x02\x21\x4c\x18\0\0'), w('a.7z', b'7z\xbc\xaf\x27\x1c\0\4')
w('a.parquet', b'PAR1\x15\x04\x15\0\0\0'), w('a.pdf', b'%PDF-1.4\n1 0 obj\n'), w('a.gguf', b'GGUF\3\0\0\0\1\0\0\0')
random.seed(1)
noise = bytes(random.randrange(256) for _ in range(4000))
w('noise', noise), w('no_nul', noise.replace(b'\0', b'\1')), w('late', text * 50 + noise * 20), w('nul', b'\0')
w('one_nul', text * 50 + b'\0' + text)
w('page.html', b'<!DOCTYPE html>\n<p>text</p>\n'), w('gguf.txt', b'GGUF is a format.\n'), w('bz.txt', b'BZh is what bzip2 writes.\n')
w('pointer.txt', b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 59700\n')
german = 'Die Größe des Ärgers über die schönen Bücher für alle Mädchen ist am Abend unermeßlich groß geworden. ' * 30
plain = 'the cat sat on the mat in the hat and so on and so on and so on and so on ' * 40
w('german.txt', german.encode('latin1')), w('right.txt', german.encode())
w('rare.txt', (german.replace('n', 'no such letters stand here, but there are many others in these long words ')).encode('latin1'))
w('name.txt', b'/* by M\xfcller */\n' + plain.encode())
w('u16.txt', german.encode('utf-16')), w('u16.jsonl', '{"text": "x"}'.encode('utf-16')), w('u32.txt', german.encode('utf-32'))
w('u16le.txt', german.encode('utf-16-le')), w('u16be.txt', german.encode('utf-16-be')), w('kanji.txt', 'これは日本語のテキストです。'.encode('shift-jis') * 9)
E
refused() { # FILE PATTERN
  says 2 "$1 $2.*--as-text takes FILES as text" a.txt "$1"
}
refused a.xz 'is packed \(xz\)'
refused a.lzma 'is packed \(lzma\)'
refused a.bz2 'is packed \(bzip2\)'
refused a.zip 'is packed \(zip'
refused a.tar 'is packed \(tar\)'
refused a.tar.gz 'is packed \(tar\)'
refused twice.gz 'is packed \(gzip\)'
refused a.lz4 'is packed \(lz4\)'
refused a.zst4 'is packed \(lz4\)'
refused a.7z 'is packed \(7z\)'
refused lines.jsonl 'is packed \(xz\)'
refused a.parquet 'is a Parquet file; Python with pandas .*lines=True'
refused a.pdf 'is a PDF'
refused a.gguf 'is a GGUF file'
refused noise 'is binary data'
refused no_nul 'looks like a binary file and not like text'
refused late 'looks like a binary file and not like text'
refused nul 'is binary data'
refused pointer.txt 'is a Git LFS pointer'
refused german.txt 'is not UTF-8: [0-9.]*% of its characters are not.*iconv'
refused rare.txt 'is not UTF-8: [01]\.[0-9]% of'
refused kanji.txt 'is not UTF-8'
refused u16.txt 'is UTF-16 text: .*iconv -f UTF-16 '
refused u32.txt 'is UTF-32 text: .*iconv -f UTF-32 '
refused u16.jsonl 'is UTF-16 text'
refused u16le.txt 'is like UTF-16 text: .*UTF-16LE'
refused u16be.txt 'is like UTF-16 text: .*UTF-16BE'
expect 2 'standard input is packed \(xz\)' "$PLAIT" tokenize --tokenizer t.json --out o --force - <a.xz
says 2 'noise is binary data .*; 2 more of the FILES cannot be taken' a.txt noise a.xz nosuch.txt
for name in noise late a.xz german.txt pointer.txt u16.txt; do
  expect 2 "$name .*--as-text" "$PLAIT" tokenize --train --vocab-size 300 --out n.json a.txt $name
  [ ! -e n.json ] || fail "$name: a tokenizer is left"
  says 0 ': 2 documents' --as-text a.txt $name
done
says 0 'warning: noise looks like a binary file' --as-text noise
says 0 'warning: one_nul has NUL bytes' one_nul
for name in page.html gguf.txt bz.txt right.txt name.txt; do
  says 0 ': 1 document,' $name
  grep -q warning "$work/output" && fail "$name: $(cat "$work/output")"
done
finish
