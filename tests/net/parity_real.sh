#!/bin/bash
# The leg net of make parity: each real configuration of the matrix (tests/parity/matrix_real.def) in fp64 with the processes of plait
# launch. They must give the very bits of the same layout with threads, and one rank's losses, norms and gradients to 1e-10.
# scripts/parity starts it with PARITY_RESULTS, a file that gets the lines of matrix_record, and PARITY_ONLY as for the other legs.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1
. "$SOURCE/tests/net/launched.sh"
. "$SOURCE/tests/process/parity_compare.sh"
comm=net
# 12 heads and experts, and 96 positions: all that the meshes of these configurations divide by
settings='precision=fp64 parallel.zero=0 data.seq_len=96 schedule.steps=3 schedule.warmup=1 checkpoint.every=0 eval.every=3 run.threads=4'
config() {
  cat <<CONFIG
{"model_type": "$1", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": $2, "num_attention_heads": 12,
 "num_key_value_heads": 12, "max_position_embeddings": 96, "vocab_size": 300, $3 "attention_dropout": 0.1, "tie_word_embeddings": false}
CONFIG
}

# record RESULT RANKS NAME MODEL MESSAGE: the deviations are those of loss, norm, gradients and evaluation; each with its share of the bound
record() {
  [ -n "${PARITY_RESULTS:-}" ] || return 0
  local key values=''
  for key in loss grad_norm gradients - - - - - eval_loss -; do
    values+=$(awk -v d="${deviation[$key]-}" 'BEGIN { printf "\t%s\t%s", d, d == "" ? "" : sprintf("%.2g", d / 1e-10) }')
  done
  printf 'net\treal\t%s\t%s\t\t%s\t%s\t%s%s\n' "$1" "$2" "$3" "$4" "$5" "$values" >>"$PARITY_RESULTS"
}

ran=0
while IFS=$'\t' read -r -u 3 n layers same keys name; do
  [[ ${PARITY_ONLY:-} == =* || $name == *"${PARITY_ONLY:-}"* ]] || continue
  kind=llama experts=''
  case $keys in *layout.expert=* | *parallel.ep=*) kind=mixtral experts='"num_local_experts": 12, "num_experts_per_tok": 3,' ;; esac
  of=$kind-$layers-$(cksum <<<"$same" | cut -d' ' -f1)
  one=one.$of model=model.config=$of.json before=$failures
  if [ ! -f "$of.json" ]; then
    config "$kind" "$layers" "$experts" >"$of.json"
    # shellcheck disable=SC2086 # words on purpose
    run_one "$of" $same
  fi
  # shellcheck disable=SC2086
  like_one "$name" "$n" $keys
  result=passed message=''
  [ "$failures" = "$before" ] || result=failed message='not one rank with processes'
  record $result "$n" "$name" "$kind" "$message"
  ran=$((ran + 1))
done 3< <(PARITY_LIST=real "$FOLDER/test_parity_matrix")
[ "$ran" -gt 0 ] || fail "no real configuration was run"
echo "$ran real configurations with processes of plait launch"
finish
