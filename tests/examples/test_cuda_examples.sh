#!/bin/bash
# tier 2 3; rooms device api; numbers
# needs emulated_cuda
# The examples over plait/graph.h on the emulated CUDA device, where no op may run on the host: what they print on the CPU. Tier 3 has the
# transformers, which take minutes there. PLAIT: the binary, beside which the examples are; SOURCE: the repository.
. "$SOURCE/tests/script.sh" || exit 1
build=$(dirname "$PLAIT")
examples=$build/examples
[ -x "$examples/mlp_classifier" ] || { echo "no examples in $examples"; exit 77; }

# cuda COMMAND…: on the emulated device
cuda() { PLAIT_CUDA_DRIVER=$build/libemulated_cuda.so PLAIT_BACKEND=cuda PLAIT_CUDA_HOST=none "$@"; }

# FILE FILE FAR: the same words, and numbers that differ by no more than that
near() {
  awk -v most="$3" 'NR == FNR { line[FNR] = $0; lines = FNR; next }
    { n = split(line[FNR], a); if (n != split($0, b)) exit 1
      for (i = 1; i <= n; i++) if (a[i] != b[i] && (a[i] !~ /^[0-9.]+$/ || (a[i] - b[i]) ^ 2 > most ^ 2)) exit 1
      seen = FNR }
    END { if (seen != lines) exit 1 }' "$1" "$2"
}

# same FAR COMMAND…: prints the same on both, numbers to FAR
same() {
  local far=$1
  shift
  "$@" >cpu.txt 2>&1 || fail "$* on the CPU: $(tail -3 cpu.txt)"
  cuda "$@" >cuda.txt 2>&1 || fail "$* on the device: $(tail -3 cuda.txt)"
  [ "$(wc -l <cpu.txt)" -gt 3 ] || fail "$* prints nothing: $(cat cpu.txt)"
  near cpu.txt cuda.txt "$far" || fail "$* on the device is not the CPU's: $(diff cpu.txt cuda.txt)"
}

same 0.000002 "$examples/one_device_mesh"
same 0.000002 "$examples/one_device_mesh" "dp=2 tp=2"
same 0.000002 "$examples/half_by_hand" "pp=2 tp=2"
same 0.000002 "$examples/mlp_classifier" "dp=2"
if [ "$tier" -gt 2 ]; then
  same 0.0000001 "$examples/half_by_hand_llama" "dp=2 tp=2"
  same 0.002 "$examples/transformer_by_hand" "$SOURCE/docs/design.md"
fi
PLAIT_BACKEND=cuda PLAIT_CUDA_DRIVER=/nowhere.so expect 1 'PLAIT_BACKEND is cuda: there is no CUDA driver here \(/nowhere.so: ' "$examples/one_device_mesh"
finish
