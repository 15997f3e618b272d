# PyPI's openai and lm-eval against plait serve; run by scripts/serve-client, which sets CLIENT to a Python that has them.
. "$SOURCE/tests/serve/harness.sh" || exit 1
printf 'a key\n' >keys
serve --api-key-file keys
timeout -s KILL "$limit" "$CLIENT" "$SOURCE/tests/serve/openai_client.py" "$port" 'a key' || fail "PyPI's openai"
stop 0
if "$CLIENT" -c 'import lm_eval, transformers' 2>log; then
  "$PLAIT" export run --out hf >log 2>&1 || die "no export: $(cat log)"
  serve --alias hf
  timeout -s KILL $((3 * limit)) "$CLIENT" "$SOURCE/tests/serve/eval_client.py" "$port" "$work/hf" "$work/eval" || fail "PyPI's lm-eval"
  stop 0
else
  echo "without lm-eval: $(tail -1 log)"
fi
finish
