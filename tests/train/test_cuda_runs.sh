#!/bin/bash
# tier 1 2 3; rooms device recipe setup runtime infer; numbers
# needs emulated_cublaslt
# Runs with run.backend=cuda on the emulated driver: by its kernels they are the CPU's runs to rounding, with all ops on the host to the
# bit, and what is missing is one sentence.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CUDA_DRIVER=${PLAIT%/*}/libemulated_cuda.so
unset PLAIT_CUDA_LIBRARIES
libraries=${PLAIT%/*}/emulated
sed 's/"vocab_size": 512/"vocab_size": 300/' "$SOURCE/models/llama-tiny.json" >llama.json
short='schedule.steps=3 schedule.warmup=1 checkpoint.every=2 eval.every=3'

# same NAME KEYS…: three steps on the CPU and on emulated devices, with two seeds of their order
same() {
  local name=$1 seed
  shift
  "$PLAIT" train recipe.yaml $short run.backend=cpu run.dir="$name.cpu" "$@" >log 2>&1 || { tail -5 log; fail "$name on the CPU"; }
  for seed in 1 2; do
    [ "$tier" -gt 1 ] || [ $seed = 1 ] || continue
    PLAIT_EMULATED_SEED=$seed PLAIT_CUDA_HOST=all expect 0 'step +3/3' "$PLAIT" train recipe.yaml $short run.backend=cuda run.dir="$name.$seed" "$@"
    same_run "$name.cpu" "$name.$seed"
    for part in "$name.cpu"/checkpoints/step-*/part-*; do cmp "$part" "$name.$seed${part#"$name.cpu"}" || fail "$name: $part"; done
  done
}
# kernels FAR NAME KEYS…: by kernels, and not one call on the host; numbers are the CPU's to FAR of each. With a second seed the bits are the same: in tier 3 always, and
# in tier 2 where streams, ranks and kernels differ most. test_cuda_kernels has the order of threads and blocks of each kernel.
twice=' gpt llama-bf16 tensor zero-8bit moe tensor-library '
kernels() {
  local far=$1 name=$2 seed seeds=1
  shift 2
  if [ "$tier" -gt 2 ] || [[ $tier = 2 && $twice = *" $name "* ]]; then seeds='1 2'; fi
  [ -d "$name.cpu" ] || "$PLAIT" train recipe.yaml $short run.backend=cpu run.dir="$name.cpu" "$@" >log 2>&1 || { tail -5 log; fail "$name on the CPU"; }
  for seed in $seeds; do
    PLAIT_CUDA_HOST=${PLAIT_CUDA_HOST:-none} PLAIT_EMULATED_SEED=$seed expect 0 'step +3/3' "$PLAIT" train recipe.yaml $short run.backend=cuda run.dir="$name.kernels.$seed" "$@"
  done
  paste <(numbers "$name.cpu") <(numbers "$name.kernels.1") | awk -v far="$far" 'function off(a, b) { d = a - b; return !((d < 0 ? -d : d) <= far * a) }
    off($1, $3) || ($2 && off($2, $4)) { bad = 1 } END { exit bad || NR != 4 }' ||
    fail "$name by kernels: $(paste <(numbers "$name.cpu") <(numbers "$name.kernels.1"))"
  [ "$seeds" = 1 ] || same_run "$name.kernels.1" "$name.kernels.2"
}
# library FAR NAME KEYS…: the same with products by cuBLASLt's double and attention by cuDNN's, of which no note says that it was replaced
library() {
  PLAIT_CUDA_LIBRARIES=$libraries kernels "$@"
  grep 'note: .*plait.s own kernel' output && fail "$2: a product or attention of the library's was not used"
}
without_time() { sed -E 's/, [0-9.]+ m?s\)$/)/' "$1"; }
one='mesh.dp=1 parallel.zero=0'
# shellcheck disable=SC2086 # words on purpose, here and below
same gpt $one precision=fp32
grep -q 'note: run on the host, for cuda has no kernels for them: all ops' output || fail "a run does not say where its ops run"
PLAIT_EMULATED_DEVICES=2 same dp precision=bf16
if [ "$tier" -gt 1 ]; then
  same gpt-bf16 $one precision=bf16
  same llama $one model.config=llama.json precision=fp32
  same llama-bf16 $one model.config=llama.json precision=bf16
  same tp $one mesh.tp=2 precision=bf16
  same pp $one mesh.pp=2 precision=fp32
  same zero3 parallel.zero=3 precision=bf16
  same fp16 $one precision=fp16
  sed 's/"vocab_size": [0-9]*/"vocab_size": 300/; s/"hidden_size": [0-9]*/"hidden_size": 32/
    s/"intermediate_size": [0-9]*/"intermediate_size": 48/; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' "$SOURCE/models/moe-demo.json" >moe.json
  same moe model.config=moe.json precision=fp32 'batch.balance=[3,1]' # kernels of experts read where data ranks' rows begin
  same muon $one precision=fp32 optimizer.name=muon
  PLAIT_EMULATED_DEVICES=3 same devices mesh.dp=4 'run.devices=[2,0]' precision=fp32
  # processes; each rank has a device of its process's emulator
  for way in cpu cuda; do
    PLAIT_CUDA_HOST=all expect 0 'step +3/3' "$PLAIT" launch --nproc-per-node 2 recipe.yaml $short precision=bf16 run.backend=$way run.dir=net.$way
  done
  same_run net.cpu net.cuda
  # from a checkpoint of either the other continues
  for way in cpu cuda; do
    other=$([ $way = cpu ] && echo cuda || echo cpu)
    cp -r gpt.$([ $way = cpu ] && echo cpu || echo 1) moved.$way
    PLAIT_CUDA_HOST=all expect 0 'resuming' "$PLAIT" train recipe.yaml schedule.steps=6 schedule.warmup=1 checkpoint.every=2 eval.every=3 $one precision=fp32 run.backend=$other run.dir=moved.$way
  done
  same_run moved.cpu moved.cuda
  for command in "eval gpt.1 --data valid" "generate gpt.1 --prompt ba --seed 3 --max-tokens 8"; do
    "$PLAIT" $command run.backend=cpu >cpu 2>err || fail "$command on the CPU: $(cat err)"
    PLAIT_CUDA_HOST=all "$PLAIT" $command run.backend=cuda >cuda 2>err || fail "$command on cuda: $(cat err)"
    diff <(without_time cpu) <(without_time cuda) || fail "$command differs"
  done
fi

kernels 1e-5 gpt $one precision=fp32
grep -q 'run on the host' output && fail "ops of a GPT run on the host"
kernels 3e-2 llama-bf16 $one model.config=llama.json precision=bf16
grep -q 'run on the host' output && fail "ops of a Llama run on the host"
library 3e-2 llama-bf16-library $one model.config=llama.json precision=bf16
if [ "$tier" -gt 1 ]; then
  library 3e-2 gpt-library $one precision=bf16
  library 1e-2 llama-fp16-library $one model.config=llama.json precision=fp16
  library 3e-2 zero-library parallel.zero=3 precision=bf16
  PLAIT_EMULATED_DEVICES=2 library 3e-2 tensor-library $one mesh.tp=2 precision=bf16 model.config=llama.json
  # a product that is wrong is plait's own instead, and the run is right
  PLAIT_EMULATED_BLAS_SPOILS='64 32 128' PLAIT_CUDA_LIBRARIES=$libraries kernels 3e-2 gpt-spoilt $one precision=bf16
  [ "$(grep -c "^note: CUDA device 0: plait's own kernel makes products of 64 × 32 of depth 128 in bf16.*differ from it" output)" -ge 1 ] ||
    fail "no note of the product that is wrong"
  # run.verify: off takes it as it is
  PLAIT_EMULATED_BLAS_SPOILS='64 32 128' PLAIT_CUDA_LIBRARIES=$libraries expect 0 'step +3/3' "$PLAIT" train recipe.yaml $short $one precision=bf16 run.backend=cuda run.verify=off run.dir=gpt-believed
  grep "plait's own kernel makes" output && fail "run.verify: off compares products"
  # and products with an activation, which a kernel follows then
  PLAIT_EMULATED_BLAS_GELU=after PLAIT_CUDA_LIBRARIES=$libraries kernels 3e-2 gpt-after $one precision=bf16
  [ "$(grep -c "^note: CUDA device 0: plait's own kernel follows products of .* in bf16 with a bias, with tanh-gelu: cuBLASLt's differ from it" output)" = 1 ] ||
    fail "no note of the product with an activation that is wrong"
  # and attention, here of data whose samples are one document
  whole="$one model.config=llama.json precision=bf16 data.document_mask=false"
  library 3e-2 llama-whole $whole
  PLAIT_EMULATED_DNN_SPOILS='2 4 32 8' PLAIT_CUDA_LIBRARIES=$libraries kernels 3e-2 llama-spoilt $whole
  for of in attention gradients; do
    [ "$(grep -c "^note: CUDA device 0: plait's own kernel makes $of of 2 × 32, 4 heads of 8, grouped, in bf16 without documents: cuDNN's .* differs from it" output)" -ge 1 ] ||
      fail "no note of $of that are wrong"
  done
  # shares of the batch that differ have products of which nothing is known when a run begins
  PLAIT_CUDA_LIBRARIES=$libraries kernels 1e-5 moe-library model.config=moe.json precision=fp32 'batch.balance=[3,1]'
  kernels 1e-5 llama $one model.config=llama.json precision=fp32
  kernels 1e-5 tensor $one mesh.tp=2 precision=fp32 model.config=llama.json
  kernels 1e-5 zero-8bit parallel.zero=3 precision=fp32 optimizer.states=8bit
  kernels 1e-5 lion-8bit $one mesh.tp=2 precision=fp32 optimizer.name=lion optimizer.states=8bit model.config=llama.json
  kernels 1e-5 moe model.config=moe.json precision=fp32 'batch.balance=[3,1]'
  # an op that is sent to the host computes there, and others do not
  PLAIT_CUDA_HOST=matmul,attention expect 0 'step +3/3' "$PLAIT" train recipe.yaml $short $one precision=fp32 model.config=llama.json run.backend=cuda run.dir=sent
  grep -qE 'run on the host.*: .*matmul in fp32' output && grep -qE 'run on the host.*: .*attention in fp32' output || fail "the note does not name what was sent to the host"
  PLAIT_CUDA_HOST=matmul_activation,matmul_activation_grad kernels 1e-5 gpt-sent $one precision=fp32
  grep -qE 'run on the host.*: .*matmul_activation in fp32' output || fail "the note does not name the product with an activation that was sent to the host"
  cp -r llama.kernels.1 moved.kernels
  expect 0 'resuming' "$PLAIT" train recipe.yaml schedule.steps=6 schedule.warmup=1 checkpoint.every=2 eval.every=3 $one precision=fp32 model.config=llama.json run.backend=cuda run.dir=moved.kernels
  for command in "eval llama.kernels.1 --data valid" "generate llama.kernels.1 --prompt ba --seed 3 --max-tokens 8"; do
    PLAIT_CUDA_HOST=none PLAIT_CUDA_SYNC=1 expect 0 . "$PLAIT" $command run.backend=cuda
  done
fi
if [ "$tier" -gt 2 ]; then # dtypes, each of which test_cuda_kernels and test_cuda_products have for each op
  library 1e-5 llama-library $one model.config=llama.json precision=fp32
  library 1e-10 fp64-library $one model.config=llama.json precision=fp64
  library 1e-2 fp16-library $one precision=fp16
  library 1e-5 gpt-fp32-library $one precision=fp32
  kernels 1e-10 llama-fp64 $one model.config=llama.json precision=fp64
  kernels 3e-2 gpt-bf16 $one precision=bf16
  kernels 1e-2 fp16 $one precision=fp16
  kernels 1e-5 sgd $one precision=fp32 optimizer.name=sgd
  kernels 1e-5 zero parallel.zero=3 precision=fp32
fi

# what is missing or wrong, before anything is written
cuda='run.backend=cuda run.dir=refused'
PLAIT_CUDA_DRIVER=/nowhere.so refuse 2 '^plait train: run.backend is cuda: there is no CUDA driver here \(/nowhere.so: ' "$PLAIT" train recipe.yaml $cuda
PLAIT_EMULATED_DEVICES=0 refuse 2 '^plait train: run.backend is cuda: the CUDA driver has no device: ' "$PLAIT" train recipe.yaml $cuda
PLAIT_EMULATED_CAPABILITY=7.0 refuse 2 '^plait train: run.backend is cuda: CUDA device 0 .*has compute capability 7.0' "$PLAIT" train recipe.yaml $cuda
refuse 2 '^plait train: run.backend is cuda: there is no CUDA device 3: this machine has 1, numbered from 0$' "$PLAIT" train recipe.yaml $cuda 'run.devices=[0,3]'
refuse 2 '^plait train: run.devices names device 0 twice' "$PLAIT" train recipe.yaml $cuda 'run.devices=[0,0]'
PLAIT_CUDA_OWN=matmull refuse 2 '^plait train: run.backend is cuda: PLAIT_CUDA_OWN names "matmull", which is neither' "$PLAIT" train recipe.yaml $cuda
PLAIT_SPACE=mirror refuse 2 "^plait train: run.backend is cuda: PLAIT_SPACE=mirror places the memory of the CPU's ranks only; unset it$" "$PLAIT" train recipe.yaml $cuda
PLAIT_CUDA_HOST=matmull refuse 2 '^plait train: run.backend is cuda: PLAIT_CUDA_HOST names "matmull", which is neither' "$PLAIT" train recipe.yaml $cuda
sed 's/kernels_rows_h/kernels_rows_x/g' "$PLAIT_CUDA_DRIVER" >other.so # as one that was built from other sources
# A sanitizer's own symbols have the same names in them, and are looked up.
sanitized || PLAIT_CUDA_DRIVER=$work/other.so refuse 2 "^plait train: run.backend is cuda: $work/other.so has kernels of other sources than this plait" "$PLAIT" train recipe.yaml $cuda
sed 's/emulated_operands/emulated_operandx/g' "$PLAIT_CUDA_DRIVER" >card.so # it is taken for a card's
PLAIT_EMULATED_VERSION=99000 PLAIT_CUDA_DRIVER=$work/card.so refuse 2 'does not take the kernels of [a-z]*: CUDA_ERROR_INVALID_IMAGE|this plait was built without kernels for cards: ' \
  "$PLAIT" train recipe.yaml $cuda
PLAIT_CUDA_DRIVER=$work/card.so refuse 2 'compiled by the nvcc of CUDA 1[3-9]\.[0-9], and the driver .*/card.so is one for CUDA 12.0: |CUDA_ERROR_INVALID_IMAGE|built without kernels' \
  "$PLAIT" train recipe.yaml $cuda
PLAIT_EMULATED_MEMORY=2500000 refuse 1 '^plait train: 2 ranks on the cuda device of rank 0 need [0-9.]+ MB of its memory, but only 2.50 MB of 2.50 MB are free' \
  "$PLAIT" train recipe.yaml $cuda
[ ! -e refused ] || fail "a refused run has a folder"
# plans ask no driver
for command in "plan" "explain"; do
  PLAIT_CUDA_DRIVER=/nowhere.so expect 0 '.' "$PLAIT" $command recipe.yaml run.backend=cuda
done
PLAIT_CUDA_DRIVER=/nowhere.so PLAIT_CUDA_HOST=all expect 0 'run on the host, for cuda has none for them: all ops' "$PLAIT" plan recipe.yaml run.backend=cuda
PLAIT_CUDA_DRIVER=/nowhere.so PLAIT_CUDA_HOST=layer_norm expect 0 'run on the host, for cuda has none for them: layer_norm in fp32' "$PLAIT" plan recipe.yaml run.backend=cuda mesh.dp=1
PLAIT_CUDA_DRIVER=/nowhere.so expect 0 'optimizer' "$PLAIT" plan recipe.yaml run.backend=cuda optimizer.states=8bit
grep -q 'run on the host' output && fail "moments of 8 bits are updated on the host"

export COLUMNS=400 # sentences stay on one line, however long paths are
expect 0 '^ok  CUDA ' env PLAIT_EMULATED_DEVICES=2 "$PLAIT" doctor
tr -s ' \n' ' ' <output | grep -qE 'libemulated_cuda.so is one for CUDA 12.0 and older, with 2 devices .*ok GPU 1: emulated device, compute capability 9.0, 2 multiprocessors, 4.29 GB of' || fail "doctor does not show the second device: $(cat output)"
expect 0 'cuBLASLt +there is no libcublasLt.so.12 of the emulator' "$PLAIT" doctor
PLAIT_CUDA_LIBRARIES=$libraries expect 0 '^ok +cuBLASLt +.*emulated/libcublasLt.so.12,? *version 12.9.0' "$PLAIT" doctor
grep -qE '^ok +cuDNN +.*emulated/libcudnn.so.9,? *version 9.14.0' output || fail "doctor does not show cuDNN: $(cat output)"
expect 0 'compute *capability 7.5|capability *7.5' env PLAIT_EMULATED_CAPABILITY=7.5 "$PLAIT" doctor

# a device that fails in the middle ends the job with one sentence
PLAIT_EMULATED_FAILS='launch 400' refuse 1 'CUDA device 0 \(emulated device\): .*CUDA_ERROR_LAUNCH_FAILED' "$PLAIT" train recipe.yaml $short run.backend=cuda run.dir=broken
rm -rf broken
PLAIT_CUDA_HOST=all PLAIT_EMULATED_FAILS='copy 3000' refuse 1 'CUDA device 0 \(emulated device\): .*CUDA_ERROR_ILLEGAL_ADDRESS' "$PLAIT" train recipe.yaml $short run.backend=cuda run.dir=broken
finish
