#!/bin/bash
# tier 1; rooms chat cmd infer
# plait chat from a pipe: history, /retry, /reset, --load and --save, several lines, what is wrong; plait generate --chat has the same
# answers; Ctrl-C ends an answer and not the chat; an export carries the template on.
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
. "$SOURCE/tests/train/harness.sh" || exit 1

sed -i 's/"n_positions": *[0-9]*/"n_positions": 40000/' model.json
"$PLAIT" train recipe.yaml run.dir=run schedule.steps=8 checkpoint.every=0 eval.every=0 >log 2>&1 || { cat log; die "no run"; }
template=$SOURCE/tests/chat/templates/chatml.jinja
chat() { "$PLAIT" chat run --template "$template" --max-tokens 12 --temperature 0 "$@" infer.context=2000 2>log || fail "chat $*: $(cat log)"; }

printf 'ba do\nki\n' | chat --system 'do ki' --save saved.json >two
python3 - saved.json <<'EOF' || fail "saved: $(cat saved.json)"
import json, sys
m = json.load(open(sys.argv[1]))["messages"]
assert [x["role"] for x in m] == ["system", "user", "assistant", "user", "assistant"], m
assert [m[0]["content"], m[1]["content"], m[3]["content"]] == ["do ki", "ba do", "ki"], m
json.dump({"messages": m[:4]}, open("lines.jsonl", "w"))
json.dump({"messages": m[:3]}, open("begun.json", "w"))
open("answer", "w").write(m[4]["content"])
EOF
# The answer to the same messages alone, from a file, and after --load; and again after /reset and /retry, where nothing is drawn.
"$PLAIT" generate run --chat --template "$template" --prompts lines.jsonl --out answers.jsonl --max-tokens 12 --temperature 0 infer.context=2000 2>log || fail "generate: $(cat log)"
python3 -c 'import json; assert json.load(open("answers.jsonl"))["text"] == open("answer").read()' || fail "generate --chat has another answer: $(cat answers.jsonl), not $(cat answer)"
echo ki | chat --load begun.json >loaded
diff <(cat answer && echo) loaded || fail "after --load: another answer"
printf 'x\n/reset\nba do\nki\n/retry\n/save again.json\n' | chat --system 'do ki' >again
cmp saved.json again.json || fail "/reset and /retry: other messages: $(cat again.json)"
"$PLAIT" generate run --chat --template "$template" --prompt 'ba do' --max-tokens 12 --temperature 0 infer.context=2000 >one 2>log || fail "generate --prompt: $(cat log)"
echo 'ba do' | chat >alone
cmp one alone || fail "generate --chat --prompt: another answer"

# Several lines are one message; // begins one with /.
printf '"""\nba\n\n do\n"""\nki \\\ndo\n//x\n' | chat --save lines.json >/dev/null
python3 -c 'import json; m = json.load(open("lines.json"))["messages"]; assert [x["content"] for x in m[::2]] == ["ba\n\n do", "ki \ndo", "/x"], m' || fail "lines: $(cat lines.json)"

# Mistakes are said, the chat lasts, and the status is 2.
printf '/nothing\n/load none.json\n/retry\nba\n' | "$PLAIT" chat run --template "$template" --max-tokens 2 infer.context=2000 >wrong 2>log
[ $? = 2 ] || fail "wrong lines: another status"
for line in 'plait chat: there is no command /nothing; /help lists them' 'plait chat: none.json: there is no such file' \
  'plait chat: there is no message to answer again' 'plait chat: 3 commands failed'; do
  grep -qxF "$line" log || fail "$line: $(cat log)"
done
[ "$(wc -l <wrong)" -ge 1 ] || fail "the message after them has no answer"
# A file without a chat, and the chat of another day, are not written over; a chat continues where it ended.
echo 'my thesis' >thesis.txt
expect 2 'plait chat: thesis.txt is there and holds no chat; give the chat another name$' "$PLAIT" chat run --template "$template" --save thesis.txt </dev/null
printf 'ba\n/save thesis.txt\n' | chat >/dev/null 2>log
grep -qx 'plait chat: thesis.txt is there and holds no chat; give the chat another name' log && [ "$(cat thesis.txt)" = 'my thesis' ] || fail "/save over another file: $(cat log)"
cp saved.json kept.json
expect 2 'plait chat: kept.json holds a chat; continue it with --load kept.json, or give --save another name$' "$PLAIT" chat run --template "$template" --save kept.json </dev/null
echo /reset | chat --load kept.json --save kept.json >/dev/null
cmp saved.json kept.json || fail '/reset without an answer has emptied a file'
printf '/reset\nba\n' | chat --load kept.json --save kept.json >/dev/null
python3 -c 'import json; m = json.load(open("kept.json"))["messages"]; assert [x["role"] for x in m] == ["system", "user", "assistant"] and m[0]["content"] == "do ki", m' || fail "/reset after --load: $(cat kept.json)"
echo '[{"role": "pirate", "content": "x"}]' >pirate.json
printf '/load pirate.json\nba\n' | chat --save after.json >/dev/null 2>log
grep -qx 'plait chat: pirate.json: messages\[0\].role is "pirate"; roles are system, developer, user, assistant and tool' log || fail "a wrong role: $(cat log)"
python3 -c 'import json; m = json.load(open("after.json"))["messages"]; assert [x["role"] for x in m] == ["user", "assistant"], m' || fail "after a wrong file: $(cat after.json)"
echo '[{"role": "user", "content": "ba"}]' >open.json
echo /retry | chat --load open.json >/dev/null 2>log
grep -qx 'plait chat: note: the last message of open.json has no answer; /retry answers it' log || fail "an open message: $(cat log)"
expect 2 'has a system message of its own, if any; leave --system out$' "$PLAIT" chat run --template "$template" --load saved.json --system x </dev/null
expect 2 'plait chat: run/checkpoints/step-8 has no chat template; give --template FILE$' "$PLAIT" chat run </dev/null
echo '{{ x' >broken.jinja
expect 2 'plait chat: broken.jinja: line 1: \{\{ has no \}\}$' "$PLAIT" chat run --template broken.jinja </dev/null
echo '{{ raise_exception("Only questions!") }}' >raises.jinja
echo ba | "$PLAIT" chat run --template raises.jinja >/dev/null 2>log && fail "a template that raises: status 0"
grep -qx 'plait chat: Only questions!' log || fail "a template that raises: $(cat log)"
expect 2 'give --template FILE|is for --chat' "$PLAIT" generate run --template "$template" --prompt x
for i in $(seq 400); do printf 'ba do ki %d ' "$i"; done >long
echo >>long
"$PLAIT" chat run --template "$template" infer.context=64 <long >/dev/null 2>log && fail "a long chat: status 0"
grep -qE 'plait chat: the message makes a prompt of [0-9]+ tokens, and the model looks back on 64 \(infer.context\)$' log || fail "a long chat: $(cat log)"

grep -qx 'plait chat: 1 message had no answer' log || fail "a long chat: $(cat log)"
{ echo ba; cat long; echo /nothing; } | "$PLAIT" chat run --template "$template" --max-tokens 2 infer.context=64 >/dev/null 2>log
grep -q 'the chat has [0-9]* tokens, and the model looks back on 64 (infer.context); /reset begins anew' log || fail "a long message in a chat: $(cat log)"
grep -qx 'plait chat: 1 message had no answer, and 1 command failed' log || fail "a message and a command: $(cat log)"
expect 2 'plait chat: --template-kwargs has messages, which the template gets from the chat itself$' "$PLAIT" chat run --template "$template" --template-kwargs '{"messages": []}' </dev/null

expect 0 'note: no message came from the standard input; processes of plait launch have none' "$PLAIT" chat run --template "$template" </dev/null
[ "$(echo 'ba do' | chat mesh.tp=2)" = "$(cat alone)" ] || fail 'two ranks: another answer'

# Ctrl-C ends the answer that is being written; the next message has its own.
mkfifo in
env --default-signal=INT "$PLAIT" chat run --template "$template" --save stopped.json --temperature 0 infer.context=20000 <in >out 2>log &
running=$!
exec 3>in
echo ba >&3
for ((i = 0; i < 2000 * patience && $(stat -c %s out) == 0; i++)); do read -rt 0.01 <> <(:); done
kill -INT $running
for ((i = 0; i < 2000 * patience; i++)); do [ -s stopped.json ] && break; read -rt 0.01 <> <(:); done
[ -s stopped.json ] || fail "Ctrl-C has ended no answer: $(cat log)"
echo /reset >&3
exec 3>&-
wait $running || fail "after Ctrl-C: status $? $(cat log)"
running=''

# The template goes into an export, and works from there.
"$PLAIT" export run --out exported >log 2>&1 || fail "export: $(cat log)"
cp "$template" exported/chat_template.jinja
"$PLAIT" export exported --out second >log 2>&1 || fail "export of a folder with a template: $(cat log)"
cmp "$template" second/chat_template.jinja || fail "the export has no template"
echo 'ba do' | "$PLAIT" chat second --max-tokens 12 --temperature 0 infer.context=2000 >from_export 2>log || fail "chat with the export: $(cat log)"
cmp alone from_export || fail "the export answers otherwise"
finish
