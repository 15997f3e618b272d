#!/bin/bash
# tier 1; rooms check device
# needs emulated_cublaslt
# plait check-device: a table of errors, by the emulated driver and on the CPU; and what it says of a device that fails.
. "$SOURCE/tests/script.sh"
export PLAIT_CUDA_DRIVER=${PLAIT%/*}/libemulated_cuda.so
expect 0 '^rms_norm +[0-9.]+ +[0-9.]+$' "$PLAIT" check-device --quick --op rms_norm --dtypes fp32,bf16
grep -q '^1 op with kernels of cuda, 1[0-9] calls, 0 wrong' "$work/output" || fail "no last line: $(cat "$work/output")"
expect 0 '^rms_norm +[0-9.]+$' "$PLAIT" check-device --backend cpu --quick --op rms_norm --dtypes fp32 --seed 9
PLAIT_EMULATED_FAILS='launch 3' expect 1 '^WRONG rms_norm fp32: rms_norm.*CUDA_ERROR' "$PLAIT" check-device --quick --op rms_norm --dtypes fp32 --seed 4
grep -qx '  again: plait check-device --backend cuda --seed 4 --quick --op rms_norm --dtypes fp32' "$work/output" || fail "nothing repeats it"
grep -qx 'not all was reached' "$work/output" || fail "it does not say that there is more"
PLAIT_CUDA_LIBRARIES=${PLAIT%/*}/emulated expect 0 '^matmul +[0-9.]+$' "$PLAIT" check-device --quick --op matmul --dtypes bf16
grep -q '^note' "$work/output" && fail "a product by cuBLASLt's double is not used"
PLAIT_CUDA_HOST=all refuse 1 'nothing was checked: .* PLAIT_CUDA_HOST' "$PLAIT" check-device --quick --op rms_norm
# a call that no kernel takes is not counted as checked
expect 0 '^[1-9][0-9]* more calls? ran on the host, for no kernel takes operands like these$' "$PLAIT" check-device --quick --dtypes bf16
refuse 1 'nothing was checked: .* move' "$PLAIT" check-device --quick --op move
refuse 2 '--op matmull: .* did you mean matmul' "$PLAIT" check-device --op matmull
refuse 2 '--dtypes fp32,fp8: must be' "$PLAIT" check-device --dtypes fp32,fp8
refuse 2 'there is no CUDA device 3' "$PLAIT" check-device --device 3
PLAIT_CUDA_DRIVER=none.so refuse 2 'no CUDA driver' "$PLAIT" check-device
refuse 2 'number 0' "$PLAIT" check-device --backend cpu --device 1
finish
