#!/bin/bash
# tier 2; rooms serve infer runtime comm elastic
# plait serve with ranks as processes: the same answers; a rank that dies is told to streams, and the status is not 0.
. "$SOURCE/tests/serve/harness.sh" || exit 1
launch() {
  : >server.log
  "$PLAIT" launch --nproc-per-node 2 --max-restarts 0 -- "$PLAIT" serve run --port 0 infer.context=2000 mesh.dp=2 >server.log 2>&1 &
  running=$!
  wait_for grep -q '^serving ' server.log || die "no server: $(cat server.log)"
  port=$(sed -n 's/^serving .*:\([0-9]*\) (.*/\1/p' server.log)
}
cat >ask.py <<'P'
import sys
from client import Server
s = Server(sys.argv[1])
print([c["text"] for c in s.ask(prompt=["ba", "ki do"], n=4, seed=3, max_tokens=30)["choices"]])
P
serve
python3 ask.py "$port" >one.txt || fail "one rank: no answers"
stop 0
launch
python3 ask.py "$port" >two.txt || fail "two ranks: no answers"
cmp one.txt two.txt || fail "two ranks: other answers"
client stopping "$port" "$running" whole
wait "$running" || fail "SIGTERM to plait launch: status $?, $(cat server.log)"
running=''
launch
cat >dies.py <<'P'
import json, os, signal, sys
from client import Server, check, finish
s = Server(sys.argv[1])
c = s.open("/v1/completions", {"prompt": "ba", "n": 8, "max_tokens": 1900, "stream": True, "ignore_eos": True})
data = c.recv(4096)
os.kill(int(sys.argv[2]), signal.SIGKILL)
while True:
    piece = c.recv(1 << 16)
    if not piece:
        break
    data += piece
events = [e.split(b"data: ", 1)[1].split(b"\r\n")[0] for e in data.split(b"\n\n") if b"data: " in e]
error = json.loads(events[-1]).get("error", {})
check(error.get("code") == "server_failed" and "rank 1" in error["message"], "the stream ends with %s" % events[-1])
finish()
P
victim=$(for p in $(pgrep -P "$running"); do tr '\0' '\n' <"/proc/$p/environ" | grep -qx PLAIT_RANK=1 && echo "$p"; done)
timeout -s KILL "$limit" python3 dies.py "$port" "$victim" || fail "a rank that dies"
wait "$running" && fail "the status is 0 though a rank has died"
running=''
finish
