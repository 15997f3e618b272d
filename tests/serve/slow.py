"""Clients that are slow or silent: python3 slow.py PORT. The server's limits are those of docs/serving.md, so it takes a minute."""
import resource
import socket
import sys
import threading
import time

from client import Server, check, finish

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
s = Server(sys.argv[1])
kept = socket.create_connection(("127.0.0.1", s.port))  # is open before all the others, for metrics
body = {"prompt": "ba", "max_tokens": 1900, "stream": True, "ignore_eos": True, "seed": 1}
whole = s.request("POST", "/v1/completions", body)[2].count("data: ")

# A stream that runs while 1,500 connections say nothing.
running = s.open("/v1/completions", body)
ended = []


def read_all():
    data = b""
    while b"[DONE]" not in data:
        piece = running.recv(1 << 16)
        if not piece:
            break
        data += piece
    ended.append(data)


reader = threading.Thread(target=read_all)
reader.start()
silent = [socket.socket() for _ in range(1500)]
start = time.time()
for c in silent:
    c.setblocking(False)
    c.connect_ex(("127.0.0.1", s.port))
reader.join(60)
check(ended and b"[DONE]" in ended[0] and time.time() - start < 9, "a stream beside silent connections did not end")
while time.time() - start < 40:  # while all places are taken, more connections are closed at once
    try:
        alive = s.request("GET", "/health")[0] == 200
        break
    except OSError:
        alive = False
        time.sleep(0.2)
check(alive, "silent connections held others up for %.0f s" % (time.time() - start))
for c in silent:
    c.close()
kept.close()

# Headers and bodies that come byte by byte: the connection ends.
for text, limit in ((b"GET /health HTTP/1.1\r\nX-Slow: ", 10), (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n", 60)):
    c = socket.create_connection(("127.0.0.1", s.port))
    c.sendall(text)
    start = time.time()
    c.settimeout(1)
    while time.time() - start < limit + 10:
        try:
            c.sendall(b"a")
            if not c.recv(1):
                break
        except TimeoutError:
            pass
        except OSError:
            break
    check(limit - 2 < time.time() - start < limit + 5, "%s…: ended after %.0f s" % (text[:20], time.time() - start))

# Readers that do not read: their requests are computed as ever, and leave nothing.
unread = []
for i in range(4):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect(("127.0.0.1", s.port))
    text = b'{"prompt": "ba", "max_tokens": 1900, "stream": true, "ignore_eos": true, "logprobs": 20, "n": 4}'
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
    unread.append(c)
check(s.request("POST", "/v1/completions", body)[2].count("data: ") > whole / 50, "a stream beside readers that do not read")
s.wait_for_metric("pages_used", 0, 60)
start = time.time()
for c in unread:
    while time.time() - start < 60:
        try:  # the server ends the connection; what is in the system's buffers is read before that is seen
            c.sendall(b"a")
            time.sleep(0.2)
        except OSError:
            break
check(time.time() - start < 50, "readers that do not read are never ended")
finish()
