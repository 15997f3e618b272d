# What tests of parity with processes for ranks share: runs of one rank, and layouts that are held to them, and, bit for bit, to threads.
# Sourced with $comm, as run.comm calls it, and the function `ranks`.

# close A B: files of numbers, one a line; equal to 1e-10 of the largest
close() {
  paste "$1" "$2" | awk 'NF != 2 { bad = 1 }
    { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; a = $1 < 0 ? -$1 : $1; if (a > size) size = a }
    END { printf "%.1e", size ? most / size : 1; exit bad || !NR || !(most <= 1e-10 * size) }'
}

# The numbers of a key of metrics.jsonl; the elements of a safetensors file of doubles.
series() { sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
elements() {
  local header
  header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
  od -An -v -w8 -t f8 -j $((header + 8)) "$1"
}
header() { dd if="$1" bs=1 count=4096 2>/dev/null | head -c "$(($(od -An -t u8 -N 8 "$1" | tr -d ' ') + 8))"; }

settings='precision=fp64 batch.global=16 parallel.zero=0 schedule.steps=3 schedule.warmup=1 checkpoint.every=0 eval.every=3 run.threads=4'

# run_one MODEL [SETTINGS…]: all that follows is of this model, and compared with this rank
run_one() {
  one=one.$1
  model=model.config=$1.json
  shift
  # shellcheck disable=SC2086 # words on purpose
  "$PLAIT" train recipe.yaml $settings $model mesh.dp=1 parallel.zero=0 "$@" run.dir=$one run.dump_gradients=$one.gradients >log 2>&1 ||
    { cat log; die "one rank"; }
  for key in loss grad_norm eval_loss; do series $one $key >$one.$key; done
  elements $one.gradients/step-1.safetensors >$one.elements
  [ "$(wc -l <$one.elements)" -gt 10000 ] || die "there are no gradients"
}

# like_one NAME PROCESSES SETTINGS…: how far it is from one rank is in ${deviation[@]}: loss grad_norm eval_loss gradients
declare -A deviation
like_one() {
  local name=$1 n=$2 said='' key
  shift 2
  deviation=()
  # shellcheck disable=SC2086
  ranks "$n" "$PLAIT" train recipe.yaml $settings $model "$@" run.comm=$comm run.dir=processes run.dump_gradients=processes.gradients >log 2>&1 ||
    { fail "$name"; tail -20 log; return; }
  # shellcheck disable=SC2086
  "$PLAIT" train recipe.yaml $settings $model "$@" run.comm=local run.dir=local run.dump_gradients=local.gradients >log 2>&1 ||
    { fail "$name with threads"; tail -20 log; return; }
  for key in loss grad_norm eval_loss; do
    series processes $key >processes.$key
    deviation[$key]=$(close $one.$key processes.$key) || fail "$name: $key"
    said="$said $key ${deviation[$key]}"
  done
  elements processes.gradients/step-1.safetensors >processes.elements
  cmp <(header $one.gradients/step-1.safetensors) <(header processes.gradients/step-1.safetensors) || fail "$name: other gradients"
  deviation[gradients]=$(close $one.elements processes.elements) || fail "$name: gradients"
  said="$said gradients ${deviation[gradients]}"
  same_run local processes
  cmp processes.gradients/step-1.safetensors local.gradients/step-1.safetensors || fail "$name: gradients are not those of threads"
  echo "$name, $n processes:$said"
  rm -rf processes local processes.gradients local.gradients
}
