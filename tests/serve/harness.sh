# Shared by the tests of plait serve: a model that was trained for some steps and has room for long answers, and a server. Sourced by bash.
command -v python3 >/dev/null || exit 77
"$PLAIT" serve --help >/dev/null || exit 1
"$PLAIT" doctor | grep -q '^ok  microhttpd' || exit 77
. "$SOURCE/tests/train/harness.sh" || exit 1
export PYTHONPATH=$SOURCE/tests/serve PYTHONDONTWRITEBYTECODE=1
# The model has rows for 20 ids that the tokenizer has no token for, as padded vocabularies have.
sed -i 's/"n_positions": [0-9]*/"n_positions": 2048/; s/"vocab_size": 300/"vocab_size": 320/' model.json
"$PLAIT" train recipe.yaml run.dir=run schedule.steps=8 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no run"; }

cat >chat.jinja <<'TEMPLATE'
{% if tools %}{% for t in tools %}<tool_call>{{ t | tojson }}{% endfor %}{% endif %}{% for m in messages %}{{ m.role + ": " + (m.content or "") }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% if not loop.last or add_generation_prompt %}{{ "\n" }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ "assistant: " }}{% endif %}
TEMPLATE

# serve ARGUMENTS…: a server of the run with a long context, its process in $running, its port in $port, its output in server.log
serve() {
  : >server.log
  "$PLAIT" serve run --port 0 infer.context=2000 --template chat.jinja "$@" >server.log 2>&1 &
  running=$!
  wait_for grep -q '^serving ' server.log || die "no server: $(cat server.log)"
  port=$(sed -n 's/^serving .*:\([0-9]*\) (.*/\1/p' server.log)
}
# stop STATUS: SIGTERM, and the status with which it ends
stop() {
  local got
  kill -TERM "$running"
  wait "$running"
  got=$?
  running=''
  [ "$got" -eq "$1" ] || fail "the server ended with status $got, expected $1: $(cat server.log)"
}
# client SCRIPT ARGUMENTS…
client() {
  timeout -s KILL "$limit" python3 "$SOURCE/tests/serve/$1.py" "${@:2}" || fail "$*"
}
