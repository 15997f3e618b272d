"""What is refused, and how: python3 wrong.py PORT."""
import json
import socket
import sys

from client import Server, check, fail, finish

s = Server(sys.argv[1])
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
user = [{"role": "user", "content": "ba"}]


def refused(status, code, param, path, body, method="POST", headers=None):
    got, answer_headers, text = s.request(method, path, body, headers)
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError):
        return fail("%s %.100s: %s %s" % (path, body, got, text))
    check((got, error["code"], error["param"]) == (status, code, param) and error["message"] and error["type"],
          "%s %.100s: %s %s" % (path, body, got, error))
    return answer_headers


for body in ("", "{", "[]", "3", '{"prompt": "ba"', '{"a": 1e', "\xff\xfe", "[" * 1000):
    refused(400, "invalid_json", None, TEXT, body.encode("latin-1"))
refused(400, "unknown_field", "promt", TEXT, {"promt": "ba"})
refused(400, "unknown_field", "messages", TEXT, {"prompt": "ba", "messages": user})
refused(400, "unknown_field", "prompt", CHAT, {"messages": user, "prompt": "ba"})
_, _, sentence = s.request("POST", CHAT, {"prompt": "ba"})
check("takes messages" in sentence and "did you mean" not in sentence, "a prompt for chat: %s" % sentence)
refused(400, "missing_field", "prompt", TEXT, {})
refused(400, "invalid_value", "prompt", TEXT, {"prompt": []})
refused(400, "invalid_value", "prompt", TEXT, {"prompt": [[]]})
refused(400, "invalid_value", "prompt", TEXT, {"prompt": [1, "a"]})
for outside in (300, 319, 320, -1, 1 << 40):  # the tokenizer has 300 tokens, the model rows for 320
    refused(400, "invalid_value", "prompt", TEXT, {"prompt": [1, outside]})
    refused(400, "invalid_value", "logit_bias", TEXT, {"prompt": "ba", "logit_bias": {str(outside): 1}})
refused(400, "invalid_value", "prompt", TEXT, {"prompt": ["a", 3.5]})
refused(400, "invalid_value", "prompt", TEXT, {"prompt": 3})
refused(400, "context_length_exceeded", "prompt", TEXT, {"prompt": [1] * 2000})
refused(400, "context_length_exceeded", "messages", CHAT, {"messages": [{"role": "user", "content": "ba " * 3000}]})
refused(404, "model_not_found", "model", TEXT, {"prompt": "a", "model": "gpt-4"})
refused(400, "missing_field", "messages", CHAT, {})
refused(400, "invalid_value", "messages", CHAT, {"messages": "ba"})
for message in (3, {}, {"role": "king", "content": "a"}, {"role": "user"}, {"role": "user", "content": 3},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
                {"role": "user", "content": [{"type": "text"}]},
                {"role": "assistant", "content": "a", "tool_calls": [{"id": "a"}]}):
    refused(400, "invalid_value", "messages", CHAT, {"messages": [message]})
for key, values in {"max_tokens": (-1, 1.5, "3", True), "n": (0, 129), "temperature": (-0.1, 2.1, "1", "NaN"),
                    "top_p": (0, 1.1), "min_p": (-1, 2), "top_k": (-1, 0.5), "seed": (-1, 1.5, "a"),
                    "presence_penalty": (3, -3), "frequency_penalty": (2.5,), "repetition_penalty": (0, 101),
                    "logprobs": (21, -1), "stop": ("", 3, ["a"] * 5, [3], ["a" * 300]), "stream": (1, "true"),
                    "echo": (1,), "stream_options": (3,), "logit_bias": ({"-1": 1}, {"a": 1}, {"3": 101}, [3]),
                    "ignore_eos": (0,), "model": (3,)}.items():
    for value in values:
        refused(400, "invalid_value", key, TEXT, {"prompt": "ba", key: value})
refused(400, "invalid_value", "max_tokens", TEXT, {"prompt": "ba", "max_tokens": 0})
refused(400, "invalid_value", "n", TEXT, {"prompt": ["ba"] * 40, "n": 8})
refused(400, "invalid_value", "top_logprobs", CHAT, {"messages": user, "top_logprobs": 2})
for key, value in {"reasoning_effort": "low",
                   "functions": [1], "reasoning_effort": "high", "modalities": ["audio"], "audio": {}}.items():
    refused(400, "not_built", key, CHAT, {"messages": user, key: value})
for kwargs in (3, [], {"messages": []}, {"tools": None}, {"add_generation_prompt": False}):
    refused(400, "invalid_value", "chat_template_kwargs", CHAT, {"messages": user, "chat_template_kwargs": kwargs})
for tools in (3, [3], [{}], [{"type": "function", "function": {}}], [{"type": "function", "function": {"name": "a", "parameters": 3}}]):
    refused(400, "invalid_value", "tools", CHAT, {"messages": user, "tools": tools})
tool = [{"type": "function", "function": {"name": "add"}}]
for choice in ("required", "any", 3, {"type": "function", "function": {"name": "add"}}):
    refused(400, "invalid_value", "tool_choice", CHAT, {"messages": user, "tool_choice": choice})
refused(400, "invalid_value", "tool_choice", CHAT,
        {"messages": user, "tools": tool, "tool_choice": {"type": "function", "function": {"name": "sub"}}})
for format in (3, {}, {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": 3}}):
    refused(400, "invalid_value", "response_format", CHAT, {"messages": user, "response_format": format})
refused(400, "not_built", "response_format", CHAT,
        {"messages": user, "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {"type": "null"}}}}})
for code, schema in (("invalid_value", {"type": "nothing"}), ("invalid_value", {"properties": {"a": {"minLength": -1}}}),
                     ("invalid_value", {"pattern": "(a"}), ("invalid_value", {"enum": []}), ("not_built", {"pattern": "(?=a)"})):
    refused(400, code, "response_format", CHAT,
            {"messages": user, "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
    refused(400, code, "tools", CHAT, {"messages": user, "tools": [{"type": "function", "function": {
        "name": "add", "parameters": {"properties": {"x": schema}, "required": ["x"]}}}]})
refused(400, "not_built", "response_format", CHAT, {"messages": user, "tools": tool, "response_format": {
    "type": "json_schema", "json_schema": {"schema": {"contains": {}}}}})
refused(400, "invalid_value", "response_format", CHAT, {"messages": user, "tools": tool, "response_format": {
    "type": "json_schema", "json_schema": {"schema": False}}})
for key, value in {"best_of": 2, "suffix": "a"}.items():
    refused(400, "not_built", key, TEXT, {"prompt": "ba", key: value})
s.ask(prompt="ba", best_of=1, suffix="", max_tokens=1)
s.ask(chat=True, messages=user, tools=[], tool_choice="none", response_format={"type": "text"}, max_tokens=1)
for path, body in (("/tokenize", {}), ("/tokenize", {"prompt": 3}), ("/detokenize", {}), ("/detokenize", {"tokens": "a"})):
    refused(400, "invalid_value" if body else "missing_field", "prompt" if path == "/tokenize" else "tokens", path, body)
for tokens in ([-1], [300], ["a"], [1 << 40]):
    refused(400, "invalid_value", "tokens", "/detokenize", {"tokens": tokens})

# HTTP: paths, methods, sizes, origins.
refused(404, "not_found", None, "/v1/embeddings", {})
refused(404, "not_found", None, "/v1/models/", None, "GET")
refused(404, "model_not_found", "model", "/v1/models/gpt-4", None, "GET")
model = s.request("GET", "/v1/models/run")
check(model[0] == 200 and json.loads(model[2]) == json.loads(s.request("GET", "/v1/models")[2])["data"][0],
      "the model by its name: %s" % (model,))
refused(404, "not_found", None, "/%2e%2e/etc/passwd", None, "GET")
check(refused(405, "method_not_allowed", None, TEXT, None, "GET")["Allow"] == "POST", "405 says what is allowed")
refused(405, "method_not_allowed", None, "/health", {}, "POST")
limit = 8 << 20
at = b'{"prompt": 3, "user": "' + b"a" * (limit - 25) + b'"}'
refused(400, "invalid_value", "prompt", TEXT, at)
check(len(at) == limit, "the body is at the limit")
refused(413, "body_too_large", None, TEXT, at + b" ")
refused(413, "body_too_large", None, TEXT, iter([b" " * (1 << 20)] * 9))
for origin, host in (("http://evil.example", None), ("null", None), ("http://evil.example", "evil.example")):
    headers = {"Origin": origin, **({"Host": host} if host else {})}
    refused(403, "host_not_allowed" if host else "origin_not_allowed", None, TEXT, {"prompt": "ba"}, headers=headers)
own = "127.0.0.1:%d" % s.port
check(s.request("POST", TEXT, {"prompt": "ba"}, {"Origin": "http://" + own, "Host": own})[0] == 200, "its own page")
check(s.request("GET", "/health", headers={"A": "a" * 31000})[0] == 200, "headers below the limit")
refused(431, "headers_too_large", None, "/health", None, "GET", {"A": "a" * 32768})
check(s.request("GET", "/health", headers={"A": "a" * 99000})[0] == 431, "headers far above the limit")
for junk in (b"\r\n\r\n", b"GET\r\n\r\n", b"\0" * 100, b"POST / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9000,
             b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -4\r\n\r\n"):
    with socket.create_connection(("127.0.0.1", s.port), timeout=60) as c:
        try:
            c.sendall(junk)
            c.shutdown(socket.SHUT_WR)
            while c.recv(4096):
                pass
        except OSError:
            pass
check(s.request("GET", "/health")[0] == 200, "it lives")
s.wait_for_metric("pages_used", 0)
s.wait_for_metric("requests_waiting", 0)
finish()
