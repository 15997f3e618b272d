#!/bin/bash
# What an installed copy gives to other programs: the examples are built against it by pkg-config alone, with the shared
# and with the static library, and run. Only symbols of the public headers are visible.
# PLAIT: the binary, whose folder is the build; SOURCE: the repository.
set -u
build=$(dirname "$PLAIT")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
cc=$(cached CMAKE_C_COMPILER)
sanitize=$(cached PLAIT_SANITIZE)
flags=(-std=c17 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -pthread ${sanitize:+-fsanitize=$sanitize})

# DESTDIR goes before the prefix, and plait.pc works where the tree came to lie
DESTDIR=$work/root cmake --install "$build" --prefix /opt/plait >install.log || { cat install.log; exit 1; }
prefix=$work/moved
mv root/opt/plait "$prefix" || exit 1
pc=$(find "$prefix" -name plait.pc)
export PKG_CONFIG_PATH=${pc%/*}
libraries=$(dirname "${pc%/*}")
shared=$libraries/libplait.so
version=$("$prefix/bin/plait" --version) || fail "the installed command does not run"
[ "$(pkg-config --modversion plait)" = "${version#plait }" ] || fail "plait.pc has version $(pkg-config --modversion plait)"
for header in "$SOURCE"/include/plait/*.h; do
  cmp -s "$header" "$prefix/include/plait/${header##*/}" || fail "${header##*/} is not installed"
done

for file in man/man1/plait.1 man/man1/plait-train.1 man/man5/plait-recipe.5 bash-completion/completions/plait zsh/site-functions/_plait \
    fish/vendor_completions.d/plait.fish; do
  [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
done

# words on purpose: what pkg-config prints
# shellcheck disable=SC2046
build_examples() { # FOLDER OPTION-OF-PKG-CONFIG LINK-OPTIONS…
  local folder=$1 option=$2 source name
  shift 2
  mkdir "$folder"
  for source in "$SOURCE"/examples/*.c; do
    name=$(basename "$source" .c)
    "$cc" "${flags[@]}" $(pkg-config --cflags plait) "$source" -o "$folder/$name" "$@" \
      $(pkg-config $option --libs plait) -lm 2>"$folder.log" || fail "$name does not build ($folder): $(tail -5 "$folder.log")"
  done
}

# ---- shared
if [ "$(cached PLAIT_SHARED)" = ON ]; then
  build_examples shared "" -Wl,-rpath,"$libraries"
  ldd shared/train | grep -q "$libraries/libplait.so.0" || fail "not linked with the shared library: $(ldd shared/train)"
  ldd shared/train | grep -q 'not found' && fail "libraries are missing"
  # every function that a header declares, and nothing else
  nm -D --defined-only "$shared" | awk '$2 ~ /[TBDRVW]/ {print $3}' | sed 's/@.*//' | sort -u >visible
  grep -hoE '\bplait_[a-z0-9_]+\(' "$SOURCE"/include/plait/*.h | tr -d '(' | sort -u >declared
  [ -s declared ] || fail "no declarations were found"
  comm -23 declared visible | grep . && fail "declared, but not visible"
  comm -13 declared visible | grep -vE '^(_init|_fini|__asan|__ubsan|__odr|__tsan|__bss_start|_edata|_end)' | grep . && fail "visible, but not public"
fi

# ---- static: libplait.a in a folder of its own, or the linker would take the shared one
mkdir "$work/archive" && cp "$libraries/libplait.a" archive/
build_examples static --static -L"$work/archive"
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
"$prefix/bin/plait" tokenize --train --vocab-size 270 --out tokenizer.json text.txt >/dev/null || fail tokenizer
"$prefix/bin/plait" tokenize --tokenizer tokenizer.json --out train text.txt >/dev/null || fail tokenize
for kind in shared static; do
  [ -d $kind ] || continue
  for way in ddp zero3 tensor_parallel gpipe; do
    [ "$("$kind/by_hand_$way" 4)" = "$("$kind/by_hand_one")" ] || fail "$kind/by_hand_$way"
  done
  "$kind/half_by_hand" | grep -q 'they agree' || fail "$kind/half_by_hand"
  "$kind/half_by_hand" "tp=5" >log.txt 2>&1
  [ $? -eq 2 ] && grep -q '32 of .*w1 cannot be cut into 5' log.txt || fail "$kind/half_by_hand tp=5: $(cat log.txt)"
  "$kind/train" recipe.yaml run.dir="$kind-run" >log.txt 2>&1 || fail "$kind/train: $(cat log.txt)"
  grep -q "^$version" log.txt && grep -q '^= total ' log.txt || fail "no version or plan: $(cat log.txt)"
  [ "$(grep -c '"loss"' "$kind-run/metrics.jsonl")" -eq 4 ] || fail "no metrics of 4 steps"
  message=$("$kind/train" recipe.yaml schedule.stepps=4 2>&1 >/dev/null)
  [ $? -eq 2 ] && grep -q stepps <<<"$message" || fail "a wrong key: $message"
done
# The library trains as the command does, to the bit
"$prefix/bin/plait" train recipe.yaml run.dir=command-run >/dev/null 2>&1 || fail "plait train"
losses() { grep -oE '"(loss|grad_norm)": *[^,]*' "$1/metrics.jsonl"; }
for kind in shared static; do
  [ -d $kind-run ] && [ "$(losses $kind-run)" != "$(losses command-run)" ] && fail "$kind and command differ"
done
echo "$failures failures"
[ "$failures" -eq 0 ]
