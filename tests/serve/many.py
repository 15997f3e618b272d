"""100,000 short requests leave the server's memory as it was after the first ones: python3 many.py PORT PROCESS REQUESTS."""
import http.client
import json
import sys
import threading

from client import check, finish

port, process, most = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def resident():
    with open("/proc/%s/status" % process) as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def work(requests):
    c = http.client.HTTPConnection("127.0.0.1", port)
    for i in range(requests):
        body = {"prompt": "ba do " + "ki " * (i % 9), "max_tokens": 2, "seed": i, "stream": i % 3 == 0, "logprobs": i % 4}
        c.request("POST", "/v1/completions", json.dumps(body))
        r = c.getresponse()
        r.read()
        check(r.status == 200, "status %s" % r.status)
    c.close()


def run(requests):
    threads = [threading.Thread(target=work, args=(requests // 8,)) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]


run(1600)
before = resident()
run(most)
check(resident() < before + 4096, "%d kB before, %d kB after %d requests" % (before, resident(), most))
finish()
