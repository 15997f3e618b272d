"""What tests of plait serve share: requests over http.client, streams, and failures that are counted. No packages."""
import http.client
import json
import socket
import sys
import time

failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text, flush=True)


def check(condition, text):
    if not condition:
        fail(text)
    return condition


def finish():
    sys.exit(1 if failures else 0)


class Server:
    def __init__(self, port, key=None):
        self.port, self.key = int(port), key

    def request(self, method, path, body=None, headers=None, timeout=60):
        """Returns (status, headers, text)."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        send = dict(headers or {})
        if self.key:
            send.setdefault("Authorization", "Bearer " + self.key)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            send.setdefault("Content-Type", "application/json")
        try:
            c.request(method, path, body, send)
            r = c.getresponse()
            return r.status, r.headers, r.read().decode("utf-8")
        finally:
            c.close()

    def post(self, path, body, **more):
        status, _, text = self.request("POST", path, body, **more)
        return status, json.loads(text)

    def ask(self, chat=False, **fields):
        status, answer = self.post("/v1/chat/completions" if chat else "/v1/completions", fields)
        check(status == 200, "%s: status %s, %s" % (fields, status, answer))
        return answer

    def stream(self, chat=False, **fields):
        """The events of a stream, without [DONE], which must be the last."""
        fields["stream"] = True
        status, headers, text = self.request("POST", "/v1/chat/completions" if chat else "/v1/completions", fields)
        check(status == 200, "%s: status %s, %s" % (fields, status, text))
        check(headers["Content-Type"] == "text/event-stream", "a stream is %s" % headers["Content-Type"])
        events = [e for e in text.split("\n\n") if e and not e.startswith(":")]
        check(events and events[-1] == "data: [DONE]", "a stream ends with %s" % events[-1:])
        return [json.loads(e[len("data: "):]) for e in events[:-1]]

    def metric(self, name):
        _, _, text = self.request("GET", "/metrics")
        for line in text.splitlines():
            if line.startswith("plait_" + name + " "):
                return float(line.split()[-1])
        fail("no metric " + name)
        return 0.0

    def wait_for_metric(self, name, value, seconds=20):
        end = time.time() + seconds
        while self.metric(name) != value:
            if time.time() > end:
                return fail("%s is %s, expected %s" % (name, self.metric(name), value))
            time.sleep(0.01)

    def open(self, path, body, extra=""):
        """A socket on which a request was sent."""
        body = json.dumps(body).encode()
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        key = "Authorization: Bearer %s\r\n" % self.key if self.key else ""
        s.sendall(("POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s%sContent-Length: %d\r\n\r\n" %
                   (path, self.port, key, extra, len(body))).encode() + body)
        return s


def text_of(events, index=0):
    """Of a stream's choice: its text, reasoning, and why it ended."""
    text, reasoning, finish_reason = "", "", None
    for e in events:
        for c in e["choices"]:
            if c["index"] != index:
                continue
            delta = c.get("delta", {})
            text += c.get("text", "") + (delta.get("content") or "")
            reasoning += delta.get("reasoning_content") or ""
            check(finish_reason is None, "an event after the end of a choice: %s" % c)
            finish_reason = c["finish_reason"]
    return text, reasoning, finish_reason
