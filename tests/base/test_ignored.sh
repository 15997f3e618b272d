#!/bin/bash
# tier 1
# The commands that README and docs show write nothing that git would show as new: their files are ignored, or lie elsewhere.
set -u
command -v git >/dev/null || exit 77
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
failed=0
git init -q "$work/clone" && cp "$SOURCE/.gitignore" "$work/clone" || exit 1
cd "$SOURCE" || exit 1

# Of options, and of redirections to a name with an end; folders of checkpoints and token files have none.
{
  grep -hoE '(--(play|out|write|timeline)[ =]|run\.(dir|trace)=)[a-z][A-Za-z0-9_./-]*' README.md docs/*.md
  grep -hoE '[^->0-9&]> ?[a-z][A-Za-z0-9_/-]*\.[a-z]+' README.md docs/*.md | grep -v 'docs/recipes.md' # that one is made anew
} | sed -E 's/.*[ =>]//' | sort -u >"$work/files"
for known in step.html data/tokenizer.json best.yaml; do grep -qx "$known" "$work/files" || { echo "FAILED: $known is not found in the pages"; failed=1; }; done
while read -r file; do
  (cd "$work/clone" && { git check-ignore -q "$file" || git check-ignore -q "$file/"; }) || { echo "FAILED: $file, which a page writes, is not ignored (.gitignore)"; failed=1; }
done <"$work/files"
exit $failed
