"""A server that gets SIGTERM while a stream runs: python3 stopping.py PORT PROCESS whole|cut."""
import json
import os
import signal
import sys
import time

from client import Server, check, finish

s = Server(sys.argv[1])
c = s.open("/v1/completions", {"prompt": "ba", "max_tokens": 400, "stream": True, "ignore_eos": True, "seed": 1})
data = c.recv(4096)
os.kill(int(sys.argv[2]), signal.SIGTERM)
if sys.argv[3] == "whole":
    refused = 200
    while refused == 200:  # until the signal is seen
        try:
            refused, headers, _ = s.request("POST", "/v1/completions", {"prompt": "ba", "max_tokens": 1})
        except ConnectionError:
            break
    check(refused == 200 or (refused == 503 and headers["Retry-After"]), "a request while it stops: %s" % refused)
while True:
    piece = c.recv(65536)
    if not piece:
        break
    data += piece
events = [e.split(b"data: ", 1)[1].split(b"\r\n")[0] for e in data.split(b"\n\n") if b"data: " in e]
if sys.argv[3] == "whole":
    check(events[-1] == b"[DONE]" and b'"finish_reason":"length"' in events[-2], "the stream ends with %s" % events[-2:])
else:
    check(json.loads(events[-1])["error"]["code"] == "server_stops", "the stream ends with %s" % events[-1:])
finish()
