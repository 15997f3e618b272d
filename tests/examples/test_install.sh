#!/bin/bash
# tier 3
# What an installed copy gives to other programs: the installed examples and the program of docs/library.md are built against it by
# pkg-config alone, with the shared and with the static library, in an empty environment, and run. Only symbols of the public headers
# are visible; plait.pc promises what is there.
# PLAIT: the binary, whose folder is the build; SOURCE: the repository.
. "$SOURCE/tests/script.sh" || exit 1
build=$(dirname "$PLAIT")
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
cc=$(cached CMAKE_C_COMPILER)
sanitize=$(cached PLAIT_SANITIZE)
flags=(-std=c17 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Werror ${sanitize:+-fsanitize=$sanitize})

# DESTDIR goes before the prefix, and plait.pc works where the tree came to lie
DESTDIR=$work/root cmake --install "$build" --prefix /opt/plait >install.log || { cat install.log; exit 1; }
[ "$(ls root)" = opt ] || fail "files outside of the prefix: $(find root -type f | grep -v '^root/opt/plait')"
prefix=$work/moved
mv root/opt/plait "$prefix" || exit 1
pc=$(find "$prefix" -name plait.pc)
libraries=$(dirname "${pc%/*}")
shared=$libraries/libplait.so
share=$prefix/share/plait
# an empty environment, in which pkg-config knows of nothing else: no .pc file of a library that plait is made of
alone() { env -i PATH="$PATH" PKG_CONFIG_LIBDIR="${pc%/*}" "$@"; }

# ---- what lies there
version=$(alone "$prefix/bin/plait" --version) || fail "the installed command does not run"
for name in plait plait-static; do
  [ "$(alone pkg-config --modversion $name)" = "${version#plait }" ] || fail "$name.pc has version $(alone pkg-config --modversion $name)"
  [ "$(cd "$(alone pkg-config --variable=datadir $name)" && pwd)" = "$share" ] || fail "datadir of $name.pc"
done
for path in include/plait models recipes clusters examples; do
  to=$share/$path
  [ $path = include/plait ] && to=$prefix/$path
  differences=$(diff -r --exclude=CMakeLists.txt "$SOURCE/$path" "$to") || fail "$path is not installed as it is: $differences"
done
alone "$prefix/bin/plait" plan "$share/recipes/demo.yaml" >log.txt 2>&1 || fail "plan of the installed recipe: $(cat log.txt)"
grep -q '^model .*2.00M parameters' log.txt || fail "the installed recipe does not find its model: $(cat log.txt)"

alone "$prefix/bin/plait" cluster dgx-2 >log.txt 2>&1 || fail "the installed plait does not find its clusters: $(cat log.txt)"
grep -q "^$share/clusters/dgx-2.yaml: 400 devices" log.txt || fail "plait cluster dgx-2 is another file: $(cat log.txt)"

# plait.pc has the MPI's libraries where plait has an MPI, and none where it was left out
mpi=$(alone pkg-config --variable=mpi plait)
alone "$prefix/bin/plait" doctor | grep -q '^ok  MPI ' && built=yes || built=no
[ "$mpi" = $built ] || fail "plait.pc says mpi=$mpi, plait doctor $built"
case $mpi in
yes) alone pkg-config --libs plait-static | grep -qi mpi || fail "no MPI in plait-static.pc" ;;
no) alone pkg-config --libs plait-static | grep -i mpi && fail "an MPI in plait-static.pc of a build without" ;;
*) fail "plait.pc says mpi=$mpi" ;;
esac
if [ "$mpi" = yes ]; then # only configured: .ci/run builds one, and runs this test with it
  cmake -S "$SOURCE" -B without -DPLAIT_MPI=OFF -DPLAIT_TESTS=OFF -DPLAIT_SHARED=OFF >log.txt 2>&1 || fail "without MPI: $(tail -5 log.txt)"
  grep -qi 'libmpi' without/plait.pc without/plait-static.pc && fail "an MPI in plait.pc of a build without: $(cat without/plait.pc)"
  grep -q '^mpi=no' without/plait.pc || fail "plait.pc of a build without MPI does not say so"
  grep -q '^Libs: .*libplait.a .*-lyaml' without/plait.pc || fail "plait.pc without a shared library: $(cat without/plait.pc)"
fi

# every error code is explained, by its number
grep -oE 'PLAIT_[A-Z_]+ = -?[0-9]+' "$SOURCE/include/plait/error.h" >codes
[ "$(wc -l <codes)" -ge 6 ] || fail "no codes in error.h"
while read -r name _ number; do
  grep -qF "| \`$name\` | $number |" "$SOURCE/docs/library.md" || fail "docs/library.md does not explain $name = $number"
done <codes

# ---- the programs, and that of docs/library.md as fit.c
mkdir sources && cp "$share"/examples/*.[ch] sources/
sed -n '/^```c$/,/^```$/p' "$SOURCE/docs/library.md" | sed '1d;/^```$/,$d' >sources/fit.c
grep -q 'int main' sources/fit.c || fail "no program in docs/library.md"

for file in man/man1/plait.1 man/man1/plait-train.1 man/man5/plait-recipe.5 bash-completion/completions/plait zsh/site-functions/_plait \
    fish/vendor_completions.d/plait.fish; do
  [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
done

# words on purpose: what pkg-config prints
# shellcheck disable=SC2046
build_examples() { # FOLDER NAME-FOR-PKG-CONFIG LINK-OPTIONS…
  local folder=$1 package=$2 source name
  shift 2
  mkdir "$folder"
  for source in sources/*.c; do
    name=$(basename "$source" .c)
    alone "$cc" "${flags[@]}" "$source" -o "$folder/$name" $(alone pkg-config --cflags --libs "$package") -lm "$@" 2>"$folder.log" ||
      fail "$name does not build ($folder): $(tail -5 "$folder.log")"
  done
}

# ---- shared
if [ "$(cached PLAIT_SHARED)" = ON ]; then
  build_examples shared plait -Wl,-rpath,"$libraries"
  ldd shared/train | grep -q "$libraries/libplait.so.0" || fail "not linked with the shared library: $(ldd shared/train)"
  ldd shared/train | grep -q 'not found' && fail "libraries are missing"
  # every function that a header declares, and nothing else
  nm -D --defined-only "$shared" | awk '$2 ~ /[TBDRVW]/ {print $3}' | sed 's/@.*//' | sort -u >visible
  grep -hoE '\bplait_[a-z0-9_]+\(' "$SOURCE"/include/plait/*.h | tr -d '(' | sort -u >declared
  [ -s declared ] || fail "no declarations were found"
  comm -23 declared visible | grep . && fail "declared, but not visible"
  comm -13 declared visible | grep -vE '^(_init|_fini|__asan|__ubsan|__odr|__tsan|__bss_start|_edata|_end)' | grep . && fail "visible, but not public"
fi

# ---- static, beside the shared one
build_examples static plait-static
[ -x static/train ] && ldd static/train | grep -q libplait && fail "the static example needs libplait.so"

# ---- run
printf '{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 32, "vocab_size": 270}' >config.json
cat >recipe.yaml <<'END'
model: {config: config.json}
data: {train: train, seq_len: 16}
mesh: {dp: 2}
batch: {global: 4, micro: 2}
schedule: {steps: 4}
run: {threads: 2}
END
for i in $(seq 100); do echo "int add$i(int a, int b) { return a + $i * b; }"; done >text.txt
alone "$prefix/bin/plait" tokenize --train --vocab-size 270 --out tokenizer.json text.txt >/dev/null || fail tokenizer
alone "$prefix/bin/plait" tokenize --tokenizer tokenizer.json --out train text.txt >/dev/null || fail tokenize
for kind in shared static; do
  [ -d $kind ] || continue
  for way in ddp zero3 tensor_parallel gpipe; do
    [ "$(alone "$kind/by_hand_$way" 4)" = "$(alone "$kind/by_hand_one")" ] || fail "$kind/by_hand_$way"
  done
  alone "$kind/fit" >log.txt 2>&1 || fail "$kind/fit: $(cat log.txt)"
  for ranks in 0 -1 x; do
    alone "$kind/fit" $ranks >refused.txt 2>&1
    [ $? -eq 2 ] && grep -qx 'usage: fit \[RANKS\], at least 1' refused.txt || fail "$kind/fit $ranks: $(cat refused.txt)"
  done
  grep -qFx "$(cat log.txt)" "$SOURCE/docs/library.md" || fail "docs/library.md does not have what $kind/fit prints: $(cat log.txt)"
  alone "$kind/half_by_hand" | grep -q 'they agree' || fail "$kind/half_by_hand"
  alone "$kind/half_by_hand" "tp=5" >log.txt 2>&1
  [ $? -eq 2 ] && grep -q 'w1 .*32 cannot be cut into 5' log.txt || fail "$kind/half_by_hand tp=5: $(cat log.txt)"
  alone "$kind/train" recipe.yaml run.dir="$kind-run" >log.txt 2>&1 || fail "$kind/train: $(cat log.txt)"
  grep -q "^$version" log.txt && grep -q '^= total ' log.txt || fail "no version or plan: $(cat log.txt)"
  [ "$(grep -c '"loss"' "$kind-run/metrics.jsonl")" -eq 4 ] || fail "no metrics of 4 steps"
  message=$(alone "$kind/train" recipe.yaml schedule.stepps=4 2>&1 >/dev/null)
  [ $? -eq 2 ] && grep -q stepps <<<"$message" || fail "a wrong key: $message"
done
# The library trains as the command does, to the bit
alone "$prefix/bin/plait" train recipe.yaml run.dir=command-run >/dev/null 2>&1 || fail "plait train"
losses() { grep -oE '"(loss|grad_norm)": *[^,]*' "$1/metrics.jsonl"; }
for kind in shared static; do
  [ -d $kind-run ] && [ "$(losses $kind-run)" != "$(losses command-run)" ] && fail "$kind and command differ"
done
finish
