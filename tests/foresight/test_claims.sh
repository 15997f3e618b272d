#!/bin/bash
# tier 2; rooms cmd train
# plait claims: docs/claims.md is what it prints, the commands on that page run, words choose claims, from any folder.
. "$SOURCE/tests/script.sh" || exit 1

cd "$SOURCE" || exit 1
"$PLAIT" claims --docs >"$work/claims.md" || fail "claims --docs"
diff "$work/claims.md" docs/claims.md || fail "docs/claims.md is not what plait claims --docs prints"

# Every command of the page prints something. Those that plan the largest model take a second for each run, so of their loops only
# the last run is tried.
cd "$work" || exit 1
ln -s "$SOURCE/recipes" "$SOURCE/models" .
mkdir bin && ln -s "$PLAIT" bin/plait && PATH=$work/bin:$PATH
sed -n '/^```sh$/,/^```$/p' claims.md | grep -v '^```' >commands
[ "$(grep -c '^# ' commands)" -eq "$(grep -c '^| `.* | \(confirmed\|corrected\) | ' claims.md)" ] || fail "a claim has no command"
while IFS= read -r command; do
  [[ $command != '#'* ]] || continue
  if [[ $command == 'for keys in '*65b* ]]; then
    list=${command#for keys in }
    eval "words=(${list%%; do *})"
    command="for keys in '${words[-1]}'; do ${command#*; do }"
  fi
  bash -eo pipefail -c "$command" >output 2>&1 || { fail "$command"; cat output; }
  grep -q . output || fail "$command prints nothing"
done < <(sort -u commands)

# Words choose; from another folder the binary finds its recipes.
"$PLAIT" claims bubble latency >output || fail "claims bubble latency"
[ "$(grep -c '^  claim ' output)" -eq 3 ] || fail "claims bubble latency: $(cat output)"
grep -qx '1 confirmed, 2 corrected' output || fail "$(tail -1 output)"
(cd / && "$PLAIT" claims latency >"$work/other" 2>&1) && grep -q '^pipeline-latency: corrected$' other || fail "in another folder: $(cat other)"
mkdir -p prefix/bin prefix/share/plait && cp "$PLAIT" prefix/bin/ && cp -r "$SOURCE/recipes" "$SOURCE/models" prefix/share/plait/ || fail "cp"
(mkdir empty && cd empty && ../prefix/bin/plait claims latency >../other 2>&1) && grep -q '^pipeline-latency: corrected$' other ||
  fail "installed: $(cat other)"
rm -r prefix/share && (cd empty && ../prefix/bin/plait claims latency >../other 2>&1) && fail "there is no recipe"
grep -q '^plait claims: recipes/claims.yaml is neither in this folder nor beside plait' other || fail "$(cat other)"
"$PLAIT" claims tp-across >output && grep -q '^tp-across-nodes: corrected$' output || fail "$(cat output)"

# Wrong words
"$PLAIT" claims buble 2>message && fail "a wrong word is taken"
grep -q '^plait claims: no claim.s name contains "buble"' message || fail "$(cat message)"
"$PLAIT" claims zero-2-all-reduse 2>message
grep -q 'did you mean zero-2-all-reduce?' message || fail "$(cat message)"
"$PLAIT" claims --docs bubble 2>message && fail "--docs with a word is taken"
grep -q -- '--docs prints all claims' message || fail "$(cat message)"

finish
