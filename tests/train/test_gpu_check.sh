#!/bin/bash
# tier 2 3; rooms device check runtime
# needs emulated_cublaslt
# scripts/gpu-bundle makes a folder that needs nothing but glibc 2.34 and a driver; its gpu-check, on the emulated driver, passes its stages (in
# tier 3 all of them); and with a driver whose copies fail, or none, they fail by name, with the command that repeats them.
. "$SOURCE/tests/script.sh"
build=${PLAIT%/*}
sanitized && exit 77 # a folder for other machines has no sanitizers
expect 0 '^made: .*/bundle, [0-9]+ MiB' "$SOURCE/scripts/gpu-bundle" bundle "$build"
[ "$(du -sm bundle | cut -f1)" -le 40 ] || fail "it has $(du -sm bundle | cut -f1) MiB"
expect 1 'is not empty' "$SOURCE/scripts/gpu-bundle" bundle "$build"
newest=$(objdump -T bundle/plait | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" = GLIBC_2.34 ] || fail "it needs $newest"
[ ! -d bundle/lib ] || for library in bundle/lib/*; do objdump -T "$library" | grep -q 'GLIBC_2\.3[5-9]' && fail "$library needs a newer glibc"; done
others=$(objdump -p bundle/plait | sed -n 's/^  NEEDED  *//p' | grep -vE '^(libc|libm|libpthread|libdl|librt|ld-linux-x86-64)\.so' || true)
for name in $others; do [ -e "bundle/lib/$name" ] || fail "it needs $name, which is not in it"; done

export PLAIT_CUDA_DRIVER=$build/libemulated_cuda.so
limit=$((280 * patience))
mv bundle elsewhere # it does not matter where it lies
stages='doctor kernels verify_llama curve_bf16 generate dp bits gpt2_124m gpt2_124m_by_op cpu sanitizer'
[ "$tier" = 2 ] || stages=all limit=$((1200 * patience))
expect 0 '^cpu: passed' elsewhere/gpu-check --stages "$stages" --report report.md
grep -q '| passed, ' report.md && ! grep -q 'not reached\|FAILED' report.md || fail "not all stages passed: $(cat report.md)"
grep -q 'GPU .*0: emulated device' report.md || fail "the report does not name the device"
grep -qE '^llama.bf16: largest relative difference of a loss [0-9.e-]+ in 2 steps' report.md || fail "no difference of losses: $(cat report.md)"
grep -qE '^gpt2-124m, a tiny model in the place of 32 × 1024: [0-9]+ tokens/s' report.md || fail "no tokens/s: $(cat report.md)"
grep -qE '^matmul +[0-9]+ calls +[0-9.]+ ms +[0-9.]+% +[0-9.]+ TB/s +[0-9.]+ TFLOP/s' report.md || fail "no time by op: $(cat report.md)"
grep -qE '^matmul +[0-9.]+ ms +[0-9.]+ GFLOP/s a rank' report.md || fail "no table of the CPU's kernels: $(cat report.md)"
PLAIT_CUDA_LIBRARIES=$build/emulated expect 0 '^attention: passed' elsewhere/gpu-check --stages attention --report libraries.md
for label in 'one document' documents 'same bits 1' 'same bits 2' 'own kernel'; do
  grep -qE "^attention of 2 × 32, heads 4:2 of 8, $label: [0-9.]+ ms [0-9.]+ TFLOP/s, gradient [0-9.]+ ms [0-9.]+ TFLOP/s" libraries.md ||
    fail "no time of attention, $label: $(cat libraries.md)"
done
expect 0 '^attention: not installed' elsewhere/gpu-check --stages attention --report libraries.md
grep -q '^| sanitizer | not installed |' report.md || fail "compute-sanitizer has another verdict: $(cat report.md)"
if [ "$tier" -gt 2 ]; then
  PLAIT_EMULATED_DNN_SPOILS='2 4 32 8' PLAIT_CUDA_LIBRARIES=$build/emulated expect 1 '^attention: FAILED' elsewhere/gpu-check --stages attention --report libraries.md
  grep -q "cuDNN's attention was not used" libraries.md || fail "the report does not say why attention failed: $(cat libraries.md)"
  for line in '^prefill: [0-9]+ tokens' '^llama.bf16: mean loss of the last 1 of 2 steps' '^moe-0.5b, a tiny model' '^matmul by own kernels: .* 0 wrong'; do
    grep -qE "$line" report.md || fail "the report lacks $line: $(cat report.md)"
  done
fi
[ "$(wc -c <report.md)" -le 12000 ] || fail "the report has $(wc -c <report.md) bytes"
if command -v python3 >/dev/null; then python3 -m json.tool report.json >/dev/null || fail "report.json is not JSON"; fi
PLAIT_EMULATED_FAILS='copy 200' expect 1 '^dp failed; to repeat it: gpu-check --stages dp$' elsewhere/gpu-check --stages 'doctor dp' --report report.md
grep -q 'CUDA_ERROR_ILLEGAL_ADDRESS' report.md || fail "the report does not say why"
grep -q '^| doctor | passed' report.md || fail "doctor copies nothing"
sed -i 's/"loss": 5/"loss": 6/' elsewhere/data/cpu/llama.bf16.json # a curve that the device does not follow
expect 1 '^curve_bf16: FAILED' elsewhere/gpu-check --stages curve_bf16 --report report.md
grep -q 'losses of llama.bf16 are not the CPU' report.md || fail "the report does not say that losses differ"
expect 2 'there is no stage speedy' elsewhere/gpu-check --stages speedy
PLAIT_CUDA_DRIVER=none.so expect 1 '^doctor: FAILED' elsewhere/gpu-check --stages doctor --report report.md
finish
