"""Keys, origins, and a queue that is full: python3 access.py PORT. The server has two keys, --queue 2 and an origin."""
import json
import sys

from client import Server, check, finish

s = Server(sys.argv[1])
body = {"prompt": "ba", "max_tokens": 2}
for key in (None, "", "Bearer", "Bearer ", "Bearer first", "Bearer first key ", "Basic second", "Bearer " + "a" * 5000):
    status, headers, text = s.request("POST", "/v1/completions", body, {"Authorization": key} if key is not None else {})
    check(status == 401 and headers["WWW-Authenticate"] == "Bearer" and
          json.loads(text)["error"]["code"] == "invalid_api_key", "key %.30s: %s %s" % (key, status, text))
for path in ("/metrics", "/v1/models", "/nothing"):
    check(s.request("GET", path)[0] == 401, "%s without a key" % path)
for path in ("/health", "/"):
    check(s.request("GET", path)[0] == 200, "%s without a key" % path)
for key in ("first key", "second"):
    s.key = key
    status, headers, text = s.request("POST", "/v1/completions", {**body, "model": "other"},
                                      {"Origin": "https://a.example"})
    check(status == 200 and headers["Access-Control-Allow-Origin"] == "https://a.example", "key %s: %s" % (key, text))
check(s.request("POST", "/v1/completions", body, {"Origin": "https://b.example"})[0] == 403, "another origin")
status, headers, _ = s.request("OPTIONS", "/v1/completions", None, {"Origin": "https://a.example"})
check(status == 204 and "Authorization" in headers["Access-Control-Allow-Headers"], "a browser's question")

for host, status in (("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost:80", 200), ("a.example", 200)):
    check(s.request("GET", "/v1/models", None, {"Host": host})[0] == status, "Host: %s" % host)

long = {"prompt": "ba", "max_tokens": 1900, "stream": True, "ignore_eos": True}
open_ones = [s.open("/v1/completions", long) for _ in range(2)]
[c.recv(100) for c in open_ones]
status, headers, text = s.request("POST", "/v1/completions", body)
check(status == 429 and headers["Retry-After"] and json.loads(text)["error"]["code"] == "queue_full",
      "a full queue: %s %s" % (status, text))
status, text = s.post("/v1/completions", {**body, "n": 3})
check(status == 400 and text["error"]["param"] == "n", "more choices than the queue has: %s" % text)
[c.close() for c in open_ones]
s.wait_for_metric("requests_running", 0)
s.wait_for_metric("pages_used", 0)
s.ask(**body)
finish()
