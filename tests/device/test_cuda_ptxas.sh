#!/bin/bash
# tier 1
# By the words of ptxas when this build compiled each kernel: no register is spilled to memory, for any architecture, and all kernels are there.
. "$SOURCE/tests/script.sh"
folder=${PLAIT%/*}/cuda
if ! ls "$folder"/*.ptxas >/dev/null 2>&1; then
  grep -q '^PLAIT_CUDA:STRING=OFF' "${PLAIT%/*}/CMakeCache.txt" || ! { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null ||
    { fail "nvcc is here, and this build has no kernels for cards"; finish; }
  echo "skipped: built without nvcc (NVIDIA's package cuda-nvcc), so no kernel was compiled for cards"
  exit 77
fi
for source in "$SOURCE"/src/device/cuda/kernels/*.cu; do
  name=$(basename "$source" .cu)
  [ -s "$folder/$name.ptxas" ] || fail "there is no $folder/$name.ptxas"
done
# "ptxas info : Compiling entry function 'add_f32' for 'sm_90'", and a line with bytes of spills
awk '/Compiling entry function/ { kernel = $(NF - 2) " for " $NF } / bytes spill/ { n++ } / bytes spill/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print kernel ": " $0; bad = 1 }
  END { if (n < 200) print "only " n " kernels"; exit bad || n < 200 }' "$folder"/*.ptxas >found || fail "registers are spilled: $(cat found)"
# By its machine code, too, where NVIDIA's cuobjdump and nvdisasm are: products by tensor cores have their instruction, HMMA.
PATH=$PATH:/usr/local/cuda/bin
if command -v cuobjdump >/dev/null && command -v nvdisasm >/dev/null; then
  for name in grouped_tiles_bf16 grouped_tiles_f16 product_tiles_bf16 product_tiles_f16; do
    for architecture in sm_80 sm_90; do
      cuobjdump -sass -arch "$architecture" -fun "$name" "$folder/tiles.fatbin" >code 2>&1
      count=$(grep -c '\bHMMA\.16816\.F32' code)
      [ "$count" -ge 64 ] || fail "$name for $architecture has $count products by tensor cores, and not 64 for each tile: $(head -3 code)"
    done
  done
else
  echo "not looked at: machine code, without cuobjdump and nvdisasm (NVIDIA's packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm)"
fi
for architecture in sm_80 sm_90; do
  for name in add_f32 add_bf16 product_f64 attention_f32 head_f32 adamw_f32; do
    grep -q "Compiling entry function '$name' for '$architecture'" "$folder"/*.ptxas || fail "$name is not compiled for $architecture"
  done
done
finish
