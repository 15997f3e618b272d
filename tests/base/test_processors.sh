#!/bin/bash
# What one kind of processor alone has (its headers, built-in functions, assembly) stands between #if defined(__x86_64__) or
# #if defined(__aarch64__), or that of cards between #ifdef __CUDACC__, and the next #elif, #else or #endif, so that all other files compile
# for any processor.
cd "$SOURCE" || exit 1
x86='<(immintrin|[a-z]mmintrin|x86intrin|cpuid)[.]h>|__builtin_(ia32|cpu)_|__get_cpuid'
arm='<arm_[a-z0-9_]+[.]h>'
# strays FILE…: FILE:LINE: TEXT of what does not stand so
strays() {
  awk -v x86="$x86" -v arm="$arm" '
    FNR == 1 { depth = 0 }
    /^ *# *if/ { depth++; on[depth] = $0; next }
    /^ *# *elif/ { on[depth] = $0; next }
    /^ *# *else/ { on[depth] = ""; next }
    /^ *# *endif/ { depth--; next }
    function within(name, i) { for (i = 1; i <= depth; i++) if (on[i] ~ "^ *# *(el)?if defined[(]" name "[)]" || on[i] ~ "^ *# *ifdef __CUDACC__$") return 1; return 0 }
    $0 ~ x86 && !within("__x86_64__") || $0 ~ arm && !within("__aarch64__") ||
      /__asm|[^_a-z]asm *(volatile)? *[(]/ && !within("__x86_64__") && !within("__aarch64__") { print FILENAME ":" FNR ": " $0 }' "$@"
}
failures=0
expected=$(mktemp) || exit 1
trap 'rm -f "$expected"' EXIT
printf '%s\n' '#include <immintrin.h>' '#if defined(__x86_64__)' '#ifdef A' '#include <cpuid.h>' '#endif' '#else' \
  'int a(void) { return __builtin_cpu_supports("avx2"); }' '#endif' '#if defined(__aarch64__)' '__asm__("isb");' '#include <arm_neon.h>' '#endif' >"$expected"
[ "$(strays "$expected" | cut -d: -f2 | tr '\n' ' ')" = '1 7 ' ] || { echo "the search is wrong: $(strays "$expected")"; failures=1; }

mapfile -t files < <(find src include tests bench examples -name '*.[ch]' -o -name '*.def')
[ ${#files[@]} -gt 300 ] || { echo "the test looks in the wrong place"; exit 1; }
grep -qE "$x86" "${files[@]}" || { echo "nothing of x86 was found"; failures=1; }
found=$(strays "${files[@]}")
[ -z "$found" ] || { echo "only one kind of processor has this; put it between #if defined(__x86_64__) or (__aarch64__) and #endif:"; echo "$found"; failures=1; }
exit $failures
