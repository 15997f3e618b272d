#!/bin/bash
# tier 2; rooms device runtime; numbers
# needs emulated_cublaslt
# Which of cuBLASLt's algorithms a product takes, by time: with the emulated library, whose algorithms 1 and 2 round sums to fp32 on the
# way, and which takes as long as PLAIT_EMULATED_BLAS_TAKES says.
. "$SOURCE/tests/train/harness.sh" || exit 1
export PLAIT_CUDA_DRIVER=${PLAIT%/*}/libemulated_cuda.so PLAIT_CUDA_LIBRARIES=${PLAIT%/*}/emulated
keys='schedule.steps=2 schedule.warmup=1 checkpoint.every=1 eval.every=0 precision=fp32 run.backend=cuda parallel.zero=0'
one="$keys mesh.dp=1"
product='64 x 32 of depth 128' shape='64 32 128' # of an MLP's second matrix

# trains NAME TIMES KEYS…: a run with this time of an algorithm; nothing: all take as long
trains() {
  local name=$1 times=$2
  shift 2
  PLAIT_EMULATED_BLAS_TAKES=$times expect 0 'step +2/2' "$PLAIT" train recipe.yaml run.dir="$name" "$@"
}
# algorithms RUN: the numbers of all that its file has, as "other this": of the product's lines, and of all others
algorithms() {
  awk -F'"' -v product="$product," '/ of depth / { split($4, word, " "); n = substr(word[5], 8, 1)
    if (index($2, product) == 1) this = this n; else other[n] = 1 } END { for (n in other) printf "%s", n; print " " this }' "$1/choices.json"
}
# chose RUN NUMBERS: the product's algorithm is this everywhere, and all others' is the first
chose() {
  algorithms "$1" | grep -qxE "0 $2+" || fail "$1 has chosen $(algorithms "$1") and not $2"
}
has_weights_of() {
  local part
  for part in "$1"/checkpoints/step-2/part-*; do cmp -s "$part" "$2${part#"$1"}" || return 1; done
}

# shellcheck disable=SC2086 # words on purpose, here and below
{
trains first '' $one
chose first 0
trains little "$shape 2 0.98" $one
chose little 0
same_run first little
trains clear "$shape 2 0.96" $one
chose clear 2
has_weights_of first clear && fail "another algorithm of the emulated library has the same bits: this test sees nothing"
# an algorithm that is fast and wrong is not taken
PLAIT_EMULATED_BLAS_SPOILS="$shape 2" trains wrong "$shape 2 0.5" $one
chose wrong 0
same_run first wrong

# a run that resumes takes what it had, whatever would be chosen now
cp -r clear resumed && rm -rf resumed/checkpoints/step-2 resumed/checkpoints/best
trains resumed "$shape 1 0.5" $one
grep -q 'resuming from .*step-1$' output || fail "the run does not resume"
same_run clear resumed
grep -q 'bits may differ' output && fail "a note says that bits may differ"
cmp clear/choices.json resumed/choices.json || fail "a resume has changed the choices"
# but that of another card or version is not taken, and stays in the file
cp -r clear moved && rm -rf moved/checkpoints/step-2 moved/checkpoints/best
sed -i 's/"emulated device, cuBLASLt [0-9]*"/"another card, cuBLASLt 1"/' moved/choices.json
trains moved '' $one
grep -q 'note: .*/moved/choices.json has no choices for emulated device, cuBLASLt [0-9]*: they are made anew, and bits may differ' output ||
  fail "no note says that choices are made anew"
grep -q '"another card, cuBLASLt 1"' moved/choices.json || fail "the other card's choices are lost"
[ "$(algorithms moved | tr -d '\n')" != "$(algorithms clear | tr -d '\n')" ] || fail "nothing was chosen anew"
# and none are there to be taken where the file is lost
cp -r clear lost && rm -rf lost/choices.json lost/checkpoints/step-2 lost/checkpoints/best
trains lost '' $one
grep -q 'note: .*/lost/choices.json has no choices for emulated device' output || fail "no note says that the file is lost"
# nor is a file that is none
cp -r clear spoilt && rm -rf spoilt/checkpoints/step-2 spoilt/checkpoints/best
echo '[1, 2' >spoilt/choices.json
trains spoilt '' $one
grep -q 'note: .*/spoilt/choices.json: line 2: .*; the file will be written anew' output &&
  grep -q 'note: .*/spoilt/choices.json has no choices for .* bits may differ' output || fail "no note says that the file cannot be read"
chose spoilt 0
# nor a line that is not an algorithm
cp -r clear none && rm -rf none/checkpoints/step-2 none/checkpoints/best
sed -i -E "s/(\"$product,[^\"]*\": \")[^\"]*/\1what/" none/choices.json
trains none '' $one
grep -q "note: CUDA device 0: products of ${product/ x/ ×} in fp32.* take cuBLASLt's first algorithm and not the one that was chosen, so bits may differ: its text is not an algorithm" output ||
  fail "no note says that the file has no algorithm"

# of two ranks the first chooses for both, whatever the second would
two="$keys mesh.dp=2"
PLAIT_EMULATED_DEVICES=2 trains both "$shape 2 0.96" $two
chose both 2
cat >rank.sh <<'RANK'
[ "$RANK" = 1 ] && export PLAIT_EMULATED_BLAS_TAKES=$SECOND
exec "$PLAIT" train "$@"
RANK
export PLAIT
export PLAIT_EMULATED_BLAS_TAKES="$shape 2 0.96" SECOND="$shape 1 0.5"
expect 0 'step +2/2' "$PLAIT" launch --nproc-per-node 2 -- bash rank.sh recipe.yaml run.dir=mixed $two
unset PLAIT_EMULATED_BLAS_TAKES
chose mixed 2
same_run both mixed
# products of the second stage, too, which the first does not make: logits
product='64 x 320 of depth 32'
PLAIT_EMULATED_DEVICES=2 trains stages '64 320 32 1 0.9' $keys mesh.dp=1 mesh.pp=2
chose stages 1
# a run folder is what keeps choices: evaluation makes none
export PLAIT_EMULATED_BLAS_TAKES="$shape 2 0.5"
expect 0 . "$PLAIT" eval first --data valid run.backend=cuda
}
finish
