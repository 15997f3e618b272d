#!/bin/bash
# tier 1
# Of each file of kernels, the build hashes just the sources that a compiler reads (cmake/cuda.cmake): with one too few, a changed kernel would not
# be compiled and hashes would agree all the same; with one too many, nvcc would compile what has not changed.
. "$SOURCE/tests/script.sh" || exit 1
command -v cc >/dev/null 2>&1 || exit 77
build=${PLAIT%/*}
count=0
for source in "$SOURCE"/src/device/cuda/kernels/*.cu; do
  name=$(basename -s .cu "$source")
  # base/fault.h and faults.def are left out: marks change no kernel of a build without faults
  cc -MM -xc -I"$SOURCE/src" -include "$build/cuda/${name}_hash.h" "$source" | tr -d '\\' | tr ' ' '\n' | grep -F "$SOURCE/src/" |
    grep -vE '/base/faults?\.' | xargs -n1 realpath | sort -u >"$name.read"
  xargs -n1 realpath <"$build/cuda/$name.inputs" | sort -u | diff - "$name.read" >difference || fail "$name.cu: < what is hashed, > what is read: $(cat difference)"
  [ "$(grep -c . "$name.read")" -ge 5 ] || fail "$name.cu reads only $(cat "$name.read")"
  count=$((count + 1))
done
[ "$count" -ge 10 ] || fail "only $count files of kernels"
grep -q '/router\.cu$' head.read && fail "head.cu reads router.cu"
grep -qx "#define KERNELS_HASH h[0-9a-f]\{16\}" "$build/cuda/head_hash.h" || fail "no hash of head.cu: $(cat "$build/cuda/head_hash.h")"
cmp -s "$build/cuda/head_hash.h" "$build/cuda/router_hash.h" && fail "head.cu and router.cu have the same hash"
finish
