"""Clients that leave: python3 leaving.py PORT."""
import socket
import struct
import sys

from client import Server, check, finish

s = Server(sys.argv[1])
pages = s.metric("pages")
asked = 0
drawn = s.metric("drawn_tokens_total")
texts = "ba do ki lu me no pa ra si tu ve zo ".split()
for i in range(100):
    body = {"prompt": " ".join(texts[(i + k) % 12] for k in range(i * 7 % 400 + 1)), "max_tokens": 1500, "seed": i,
            "stream": i % 2 == 0, "n": 1 + i % 3, "ignore_eos": True}
    asked += 1500 * body["n"]
    c = s.open("/v1/completions", body)
    if body["stream"]:
        c.recv(300)  # the stream has begun
    if i % 5 == 0:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    c.close()
s.wait_for_metric("requests_running", 0, 60)
s.wait_for_metric("requests_waiting", 0)
s.wait_for_metric("pages_used", 0)
check(s.metric("requests_abandoned_total") >= 100, "abandoned: %s" % s.metric("requests_abandoned_total"))
drawn = s.metric("drawn_tokens_total") - drawn
check(drawn < asked / 4, "%s of %s tokens were drawn for clients that had left" % (drawn, asked))
check(s.metric("pages") == pages, "the cache has %s pages" % s.metric("pages"))
s.ask(prompt="ba", max_tokens=3)
finish()
