#!/bin/bash
# tier 2; rooms recipe; numbers
# docs/parity.md is of the table that the validator reads: of its very rows, with every feature and refusal, every pair was run, and
# nothing failed. It says what it left out, and when src has changed since what was run.
failed=0
page=$SOURCE/docs/parity.md
printed=$(PARITY_TABLE=1 "$(dirname "$PLAIT")/test_parity_matrix") || { echo "test_parity_matrix prints no table"; exit 1; }
table=$(grep -P '^(feature|refused)\t' <<<"$printed")
fail() { echo "docs/parity.md $1: make parity writes it anew"; failed=1; }
while IFS=$'\t' read -r what name other why; do
  if [ "$what" = feature ]; then
    grep -qF "| $name |" "$page" || fail "lacks $name"
  else
    grep -qxF -e "- $name with $other: $why." "$page" || fail "lacks a refusal, $name with $other: $why"
  fi
done <<<"$table"
[ "$(grep -c '^feature' <<<"$table")" -ge 15 ] || { echo "the table has no features"; failed=1; }
checksum=$(cksum <<<"$table")
grep -qF "(checksum ${checksum% *})" "$page" || fail "is of another table"
if grep -q '| ? |' "$page"; then fail "has pairs that were not run"; fi
for leg in fp64 fp32 bf16 'bf16 gradients' fp16 chaos; do grep -q "^| $leg | [1-9]" "$page" || fail "lacks the leg $leg"; done
mutants=$(sed -n '/^## Mutants/,/^## /p' "$page")
for leg in fp64 fp32 bf16 'bf16 gradients' fp16; do
  grep -qE "^\| $leg \| [1-9][0-9]* \| [1-9][0-9]* \| [0-9]+ \| 0 \|$" <<<"$mutants" || fail "lacks mutants of $leg, or some survived"
done
if grep -q '^## Failed' "$page"; then echo "docs/parity.md: layouts failed"; failed=1; fi

# What the matrix leaves out: the page has the very numbers and names that the program prints.
while IFS=$'\t' read -r what first second; do
  if [ "$what" = combinations ]; then line="- $first are $second"; else line="- left out: $second: $first"; fi
  [ "$what,$first" = 'left out,refused' ] || grep -qF -- "$line" "$page" || fail "lacks \"$line\""
done < <(grep -P '^(combinations|left out)\t' <<<"$printed")

# How far the sources are from those that were run. This is said and does not fail: a run takes long, and not every change matters.
since() {
  local commit=$1 changed
  if ! git -C "$SOURCE" cat-file -e "$commit^{commit}" 2>/dev/null; then echo "docs/parity.md is of commit $commit, which is not here"; return; fi
  changed=$(git -C "$SOURCE" diff --name-only "$commit" -- src | wc -l)
  echo "docs/parity.md is of commit $commit; $changed files of src have changed since"
}
commits=$(sed -nE 's/^\| .* \| ([0-9a-f]{7,40})( and .*)? \|$/\1/p; s/^commit ([0-9a-f]{7,40})( and .*)?\. A narrow leg.*/\1/p' "$page" | sort -u)
[ -n "$commits" ] || fail "names no commit"
for commit in $commits; do since "$commit"; done

# The page says it too when it is written: scripts/parity in a repository of this test.
command -v git >/dev/null || exit $failed
expect() { grep -qF -- "$1" docs/parity.md || { echo "a page that was written with $2 lacks \"$1\""; sed -n 3,7p docs/parity.md; failed=1; }; }
write_page() { scripts/parity build page >log 2>&1 || { echo "scripts/parity build page: $(cat log)"; failed=1; }; }
commit_all() { git add -A && git -c user.name=test -c user.email=test commit -qm "$1" && git rev-parse --short HEAD; }
ran_at() { printf 'took\tfp64\t1\t1\t%s\t1\n' "$1" >build/parity-results/fp64.took; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/plait-parity-docs.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch"/{scripts,src/recipe,docs,build/parity-results}
cp "$SOURCE/scripts/parity" "$scratch/scripts/"
cp "$SOURCE/src/recipe/layouts.def" "$scratch/src/recipe/"
ln -s "$PWD/test_parity_matrix" "$scratch/build/"
cd "$scratch" && git init -q . && echo /build >.gitignore || exit 1
ran=$(commit_all 'what was run')
ran_at "$ran"
echo 'fp64	single	passed	2	dp	dp	gpt	' >build/parity-results/fp64.1.of.1
write_page
expect 'src was as in all of them' 'nothing changed'
echo '// new' >>src/recipe/layouts.def
write_page
expect "fp64 (1 since $ran)" 'an edited file'
commit_all 'a change of src' >/dev/null
write_page
expect "fp64 (1 since $ran)" 'a changed file'
ran_at "$(git rev-parse --short HEAD) and 2 edited files"
write_page
expect 'and 2 edited files |' 'edited files when it was run'
ran_at 0123456
write_page
expect 'fp64 (an unknown number since 0123456)' 'an unknown commit'
# The leg net as tests/net/parity_real.sh records it: loss, norm, gradient and evaluation are compared with one rank.
empty=$'\t\t\t\t\t\t\t\t\t\t'
printf 'net\treal\tpassed\t8\t\tdp + tp\tllama\t\t3e-16\t3e-06\t0e+00\t0\t5e-16\t5e-06%s\t1e-16\t1e-06\t\t\n' "$empty" >build/parity-results/net.1.of.1
printf 'took\tnet\t7\t1\t0123456\t1\n' >build/parity-results/net.took
write_page
expect '| net | 1 | 0 | 0 | 0 | 1 | 8 | 0 | 7 | 0123456 |' 'the leg net'
expect '| net | 3e-16 (3e-06) | 0 (0) | 5e-16 (5e-06) | – | – | – | – | – | 1e-16 (1e-06) | – |' 'the leg net'
exit $failed
