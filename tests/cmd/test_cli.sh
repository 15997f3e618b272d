#!/bin/bash
# tier 1; rooms recipe
# The command line as a user meets it: help, versions, exit statuses, one-sentence errors, recipes checked and printed.
. "$SOURCE/tests/script.sh" || exit 1

# the same, and the message is one line
refuse() {
  expect "$@"
  shift 2
  local lines
  lines=$("$@" 2>&1 | wc -l)
  [ "$lines" -eq 1 ] || { echo "FAILED: $* prints $lines lines"; failures=$((failures + 1)); }
}

expect 2 '^usage: plait COMMAND' "$PLAIT"
expect 0 '^usage: plait COMMAND' "$PLAIT" --help
expect 0 '^usage: plait COMMAND' "$PLAIT" help
expect 0 '^plait [0-9]+\.[0-9]+\.[0-9]+$' "$PLAIT" --version
expect 0 '^usage: plait recipe' "$PLAIT" help recipe
refuse 2 'unknown command "recpe"; did you mean recipe\?' "$PLAIT" recpe
refuse 2 'unknown command "xyzzy-plugh"' "$PLAIT" xyzzy-plugh
refuse 2 'unknown command "recpe"; did you mean recipe\?' "$PLAIT" help recpe

# every command in the list has help with examples, and a version
commands=0
for command in $("$PLAIT" --help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
  expect 0 "^usage: plait $command" "$PLAIT" "$command" --help
  expect 0 '^examples:' "$PLAIT" "$command" --help
  expect 0 '^plait [0-9]' "$PLAIT" "$command" --version
  refuse 2 "^plait $command: unknown option --no-such-thing" "$PLAIT" "$command" --no-such-thing
  commands=$((commands + 1))
done
[ "$commands" -eq "$(grep -c '^COMMAND(' "$SOURCE/src/cmd/commands.def")" ] || { echo "FAILED: help lists $commands commands"; failures=$((failures + 1)); }

if [ -e /dev/full ]; then
  expect 1 'cannot be written' sh -c '"$1" --help >/dev/full' sh "$PLAIT"
  expect 1 'cannot be (written|printed)' sh -c '"$1" recipe --help >/dev/full' sh "$PLAIT"
fi

mkdir folder
cat >folder/r.yaml <<'YAML'
model: {config: m.json}
data: {train: t}
run: {dir: out}
YAML
expect 2 "config: $work/folder/m.json" "$PLAIT" recipe folder/r.yaml # its files are not there
expect 2 "dir: $work/here" "$PLAIT" recipe folder/r.yaml run.dir=here
expect 2 'r.yaml names files that do not exist: .*/m.json \(model.config\), .*/t.bin \(data.train\), .*/t.idx \(data.train\), .*/k.json \(data.tokenizer\)$' \
  "$PLAIT" recipe folder/r.yaml data.tokenizer=k.json
"$PLAIT" recipe folder/r.yaml batch.micro=2 optimizer.lr=0.30000000000000004 >effective.yaml 2>/dev/null
"$PLAIT" recipe effective.yaml >again.yaml 2>/dev/null
cmp effective.yaml again.yaml || failures=$((failures + 1))
refuse 2 'recipe: batch.mikro: unknown key; did you mean batch.micro\?' "$PLAIT" recipe folder/r.yaml batch.mikro=2
refuse 2 '^plait recipe: layout.batch: pp cuts layers' "$PLAIT" recipe folder/r.yaml 'layout.batch=[pp]' # the key once
refuse 2 '^plait recipe: layout=\{batch: \[pp\]\}: layout.batch: pp cuts layers' "$PLAIT" recipe folder/r.yaml 'layout={batch: [pp]}'
refuse 2 '^plait recipe: mesh.tp must be an integer .*, not "0"' "$PLAIT" recipe folder/r.yaml mesh.tp=0
refuse 2 'nowhere.yaml: cannot be read' "$PLAIT" recipe nowhere.yaml
refuse 2 'give either a recipe or --docs' "$PLAIT" recipe
"$PLAIT" recipe --docs | cmp - "$SOURCE/docs/recipes.md" || failures=$((failures + 1))

# the recipes that come with plait are good ones
cp -r "$SOURCE/recipes" "$SOURCE/models" .
for recipe in recipes/*.yaml; do
  expect 2 '^model:' "$PLAIT" recipe "$recipe"
  expect 2 'names files that do not exist: [^ ]*/(data|base)/' "$PLAIT" recipe "$recipe" # nothing else is wrong
done

finish
