#!/bin/bash
# tier 2; rooms device
# needs test_cuda_kernels
# scripts/gpu-check, on the emulated driver: all stages pass; and with a driver whose copies fail, or none, they fail by name.
. "$SOURCE/tests/script.sh"
build=${PLAIT%/*}
export PLAIT_CUDA_DRIVER=$build/libemulated_cuda.so
expect 0 '^resume: passed' "$SOURCE/scripts/gpu-check" "$build" report.md
[ "$(grep -c '| passed, ' report.md)" = 13 ] || { cat report.md; fail "not all stages passed"; }
grep -q 'GPU .*0: emulated device' report.md || fail "the report does not name the device"
export PLAIT_EMULATED_FAILS='copy 2000'
expect 1 '^one_rank: ..FAILED' "$SOURCE/scripts/gpu-check" "$build" report.md
grep -q 'CUDA_ERROR_ILLEGAL_ADDRESS' report.md || fail "the report does not say why"
grep -q '^| doctor | passed' report.md || fail "doctor copies nothing"
finish
