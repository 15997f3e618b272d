#!/bin/bash
# tier 2; rooms cmd train
# The wheel of this build (python/make-wheel), installed into an empty venv: no symbol asks for a C library after 2.34, all libraries
# beyond it are the wheel's own and have licences, the command works, and the module does what tests/python/check.py says.
. "$SOURCE/tests/train/harness.sh" || exit 1
skip() { echo "skipped: $1"; exit 77; }
sanitized && skip "a wheel is made of a build without sanitizers"
for tool in python3 patchelf; do command -v $tool >/dev/null || skip "$tool is missing (scripts/install-dependencies wheel)"; done
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "python3 has no venv (Debian: python3-venv)"
[ -e "$FOLDER/libplait.so" ] || skip "this build has no libplait.so"

# ---- what is refused
if ldd "$FOLDER/libplait.so" | grep -qE 'lib(mpi|mpich)'; then
  expect 1 'an MPI belongs to its machine and does not go into a wheel; configure with -DPLAIT_MPI=OFF' "$SOURCE/python/make-wheel" "$FOLDER" dist
  [ "$failures" -eq 0 ] || finish
  skip "this build has an MPI, which a wheel cannot have"
fi
mkdir nothing
expect 1 'nothing/plait is not there; make wheel builds it' "$SOURCE/python/make-wheel" nothing
expect 2 '^usage: python/make-wheel BUILD' "$SOURCE/python/make-wheel"

# ---- the wheel
expect 0 '^dist/plait-.*-py3-none-manylinux_2_34_.*\.whl$' "$SOURCE/python/make-wheel" "$FOLDER" dist
wheel=$(ls dist/*.whl) || finish
"$SOURCE/python/make-wheel" "$FOLDER" again >/dev/null && cmp "$wheel" again/*.whl || fail "the same build makes another wheel"
python3 -m venv empty && empty/bin/pip install -q --no-index --disable-pip-version-check "$wheel" || die "pip install"
package=$(echo "$work"/empty/lib/python3*/site-packages/plait)
for file in "$package"/bin/plait "$package"/lib/*.so*; do
  newest=$(objdump -T "$file" | grep -oE 'GLIBC_[0-9]+\.[0-9.]+' | sort -uV | tail -1)
  [ "$(printf 'GLIBC_2.34\n%s\n' "$newest" | sort -V | tail -1)" = GLIBC_2.34 ] || fail "$file asks for $newest"
  outside=$(ldd "$file" | awk '$2 == "=>" { print $3 }' | grep -vE "^($package/|.*/lib(c|m|pthread|dl|rt)\.so)")
  [ -z "$outside" ] || fail "$file needs $outside, which are not in the wheel"
  objdump -p "$file" | grep -E 'NEEDED +lib(yaml|jansson|pcre2|z|zstd)[^-]*\.so' | grep -vE -e '-[0-9a-f]{8}\.so' && fail "$file: a library has the system's name"
done
libraries=$(find "$package/lib" -name 'lib*-????????.so*' | wc -l)
licences=$(find "$package/licenses" -type f -size +0 | wc -l)
[ "$libraries" -ge 5 ] && [ "$licences" -eq $((libraries + 1)) ] || fail "$libraries libraries have $licences licences with that of plait"
for folder in recipes models clusters; do
  diff -r "$SOURCE/$folder" "$package/share/plait/$folder" >differences || fail "$folder: $(cat differences)"
done

# ---- the command
plait=$work/empty/bin/plait
expect 0 "^plait [0-9.]+$" env -i "$plait" --version
expect 0 '^ok  wheel +installed by pip, with libraries of its own \(libjansson4 ' env -i COLUMNS=1000 "$plait" doctor
expect 0 'to do: run.comm: net, which needs no MPI' env COLUMNS=1000 "$plait" doctor
expect 0 '^dgx-2 ' "$plait" cluster
expect 0 "confirmed" "$plait" claims bubble
expect 0 '^model .* 2.00M parameters' "$plait" plan "$package/share/plait/recipes/demo.yaml"
expect 2 'did you mean batch.micro' "$plait" plan recipe.yaml batch.mikro=2

# ---- the module
python=$work/empty/bin/python
parts='train errors plan evaluate generate tokenize stopping ctrl_c'
# shellcheck disable=SC2086 # words on purpose
timeout -s KILL $((120 * patience)) "$python" "$SOURCE/tests/python/check.py" $parts || fail "tests/python/check.py"
if "$python" -c 'import numpy' 2>/dev/null || timeout 60 "$python" -m pip install -q --disable-pip-version-check --timeout 5 --retries 0 numpy >/dev/null 2>&1; then
  timeout -s KILL $((60 * patience)) "$python" "$SOURCE/tests/python/check.py" arrays || fail "tests/python/check.py arrays"
else
  echo "skipped: checkpoints as arrays (numpy is not installed, and PyPI cannot be reached)"
  "$python" -c 'import plait; print(plait.Checkpoint("py")["layer.0.ffn.up.weight"])' 2>&1 | grep -q 'numpy is not installed: pip install numpy' || fail "no sentence about numpy"
fi
finish
