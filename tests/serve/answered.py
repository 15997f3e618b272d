"""Requests and their answers: python3 answered.py PORT ANSWERS.jsonl, the answers of plait generate --prompts."""
import json
import sys
import threading

from client import Server, check, fail, finish, text_of

s = Server(sys.argv[1])

# The texts of plait generate, alone and among 32.
known = [json.loads(line) for line in open(sys.argv[2])]
asked = [json.loads(line) for line in open("prompts.jsonl")]
for ask in asked:
    ask.pop("id")
texts = [s.ask(**a)["choices"][0] for a in asked]
for k, a, t in zip(known, asked, texts):
    check((k["text"], k["end"]) == (t["text"], t["finish_reason"]), "%s: %s, generate has %s" % (a, t, k))
many = [None] * 32


def ask_one(i):
    a = asked[i % len(asked)]
    many[i] = text_of(s.stream(**a)) if i % 3 else s.ask(**a)["choices"][0]["text"]


threads = [threading.Thread(target=ask_one, args=(i,)) for i in range(32)]
[t.start() for t in threads]
[t.join() for t in threads]
for i, m in enumerate(many):
    t = texts[i % len(asked)]
    check(m == (t["text"] if i % 3 == 0 else (t["text"], "", t["finish_reason"])), "among 32: %s, alone %s" % (m, t))

# Choices, prompts, usage.
a = s.ask(prompt=["ba do", "ki"], n=3, max_tokens=5, seed=4)
b = s.ask(prompt="ki", max_tokens=5, seed=5)
check([c["index"] for c in a["choices"]] == list(range(6)), "choices: %s" % a)
check(a["choices"][4]["text"] == b["choices"][0]["text"], "the second choice of the second prompt has another seed")
u = a["usage"]
drawn = sum(len(s.post("/tokenize", {"prompt": p, "add_special_tokens": False})[1]["tokens"]) for p in ("ba do", "ki"))
check(u["prompt_tokens"] == drawn and u["completion_tokens"] <= 30 and
      u["total_tokens"] == drawn + u["completion_tokens"], "usage: %s" % u)
ids = s.post("/tokenize", {"prompt": "ba do ki"})[1]["tokens"]
check(s.post("/detokenize", {"tokens": ids})[1]["prompt"] == "ba do ki", "detokenize")
greedy = dict(max_tokens=7, temperature=0)
check(s.ask(prompt=ids, **greedy)["choices"][0]["text"] == s.ask(prompt="ba do ki", **greedy)["choices"][0]["text"],
      "a prompt of ids draws another text")
long = "ba do ki lu me no pa ra si tu " * 9
s.ask(prompt=long, **greedy)
check(s.ask(prompt=long, **greedy)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32, "nothing was cached")

# Log-probabilities: of the prompt with echo, those with which the tokens were drawn.
drawn = s.ask(prompt="ba do", max_tokens=9, temperature=0, logprobs=2)["choices"][0]
p = drawn["logprobs"]
check(len(p["tokens"]) == 9 and "".join(p["tokens"]) == drawn["text"] and all(len(t) == 2 for t in p["top_logprobs"]),
      "logprobs: %s" % p)
whole = s.ask(prompt=ids[:2] + s.post("/tokenize", {"prompt": drawn["text"], "add_special_tokens": False})[1]["tokens"],
              max_tokens=0, echo=True, logprobs=2)
e = whole["choices"][0]["logprobs"]
check(whole["usage"]["completion_tokens"] == 0 and e["token_logprobs"][0] is None and e["top_logprobs"][0] is None,
      "echo: %s" % whole)
if e["tokens"][2:] == p["tokens"]:  # the text has the same tokens again
    check(e["token_logprobs"][2:] == p["token_logprobs"], "scored %s, drawn with %s" % (e, p))
check(whole["choices"][0]["text"] == "ba do" + drawn["text"], "echo: %s" % whole)
c = s.ask(chat=True, messages=[{"role": "user", "content": "ba"}], logprobs=True, top_logprobs=3, max_tokens=4,
          temperature=0)["choices"][0]
check(len(c["logprobs"]["content"]) == 4, "logprobs of chat: %s" % c)
for t in c["logprobs"]["content"]:
    check(t["top_logprobs"][0] == {k: t[k] for k in ("token", "logprob", "bytes")} and len(t["top_logprobs"]) == 3,
          "the most likely token is first: %s" % t)
events = s.stream(chat=True, messages=[{"role": "user", "content": "ba"}], logprobs=True, max_tokens=4, temperature=0)
told = [t for e in events for c in e["choices"] if c["logprobs"] for t in c["logprobs"]["content"]]
check([t["logprob"] for t in told] == [t["logprob"] for t in c["logprobs"]["content"]], "logprobs of a stream: %s" % told)

# Stops: across tokens, and nothing of them is sent.
base = dict(prompt="ba", max_tokens=60, seed=3, temperature=1.0, ignore_eos=True)
text = s.ask(**base)["choices"][0]["text"]
for at in range(4, len(text) - 4, 7):
    stop = text[at:at + 4]
    if "�" in stop:
        continue
    cut = text[:text.index(stop)]
    one = s.ask(stop=[stop, "never this"], **base)["choices"][0]
    check((one["text"], one["finish_reason"]) == (cut, "stop"), "stop %r: %r of %r" % (stop, one, text))
    check(text_of(s.stream(stop=stop, **base)) == (cut, "", "stop"), "stop %r in a stream" % stop)
check(s.ask(logit_bias={str(ids[0]): 100}, **base)["choices"][0]["text"].startswith("baba"), "logit_bias")

# Chat: roles, parts, an answer that is continued, choices in a stream.
system = [{"role": "system", "content": "ba"}, {"role": "user", "content": "do"}]
parts = [{"role": "developer", "content": [{"type": "text", "text": "ba"}]}, system[1]]
greedy = dict(chat=True, max_tokens=6, temperature=0)
check(s.ask(messages=system, **greedy)["choices"] == s.ask(messages=parts, **greedy)["choices"], "parts of a message")
both = [s.post("/tokenize", {"messages": system + more})[1]["tokens"] for more in
        ([], [{"role": "assistant", "content": "ki"}])]
check(both[0] != both[1], "prompts of a chat: %s" % both)
check(s.ask(messages=system, **greedy)["choices"][0]["message"]["role"] == "assistant", "the role of an answer")
events = s.stream(chat=True, messages=system, n=3, max_tokens=5, seed=1, stream_options={"include_usage": True})
check(events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] > 0, "usage of a stream: %s" % events[-1])
whole = s.ask(chat=True, messages=system, n=3, max_tokens=5, seed=1)["choices"]
for i in range(3):
    check(text_of(events, i)[0] == whole[i]["message"]["content"], "choice %d of a stream" % i)
check(len({(e["id"], e["system_fingerprint"], e["object"]) for e in events}) == 1, "events of one answer differ")
# Schemas and tools: the model knows nothing of them, and is held to them all the same.
schema = {"type": "object", "additionalProperties": False, "required": ["a", "b"],
          "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "yz"]}}}
held = {"type": "json_schema", "json_schema": {"name": "held", "schema": schema, "strict": True}}
tools = [{"type": "function", "function": {"name": "add", "parameters": schema}},
         {"type": "function", "function": {"name": "sub", "parameters": schema}}]


def fits(text):
    value = json.loads(text)
    return value.keys() == {"a", "b"} and value["a"] in range(100) and value["b"] in ("x", "yz")


for seed in range(6):
    more = dict(chat=True, messages=system, seed=seed, max_tokens=400, temperature=1)
    c = s.ask(response_format=held, ignore_eos=seed % 2 == 0, **more)["choices"][0]
    check(c["finish_reason"] == "stop" and fits(c["message"]["content"]), "a schema: %s" % c)
    c = text_of(s.stream(response_format={"type": "json_object"}, **more))
    check(c[2] == "length" or isinstance(json.loads(c[0]), dict), "json_object: %s" % (c,))
    c = s.ask(tools=tools, tool_choice="required" if seed % 2 else {"type": "function", "function": {"name": "sub"}},
              parallel_tool_calls=False, **more)["choices"][0]
    calls = c["message"].get("tool_calls", [])
    check(c["finish_reason"] == "tool_calls" and len(calls) == 1 and fits(calls[0]["function"]["arguments"]) and
          calls[0]["function"]["name"] in (("add", "sub") if seed % 2 else ("sub",)), "a call: %s" % c)
    c = s.ask(tools=tools, response_format=held, **more)["choices"][0]
    called = c["message"].get("tool_calls", [])
    held_calls = c["message"]["content"] is None and all(fits(x["function"]["arguments"]) for x in called)
    check(c["finish_reason"] == "length" or (held_calls if called else fits(c["message"]["content"])),
          "a schema beside tools: %s" % c)
s.ask(tools=tools, **more)
before = s.metric("ignored_fields_total")
s.ask(user="me", metadata={"a": 1}, service_tier="auto", tools=None, **{**greedy, "messages": system})
check(s.metric("ignored_fields_total") == before + 3, "ignored fields are counted")
full = s.ask(prompt=[ids[0]] * 1990, max_tokens=100, ignore_eos=True)
check(full["choices"][0]["finish_reason"] == "length" and full["usage"]["total_tokens"] == 2000, "a full context: %s" %
      full["usage"])
models = json.loads(s.request("GET", "/v1/models")[2])
check(models["data"][0]["id"] == "run", "models: %s" % models)
check(s.request("GET", "/health")[0] == 200 and s.request("HEAD", "/health")[2] == "", "health")
status, headers, page = s.request("GET", "/")
check(status == 200 and headers["Content-Type"].startswith("text/html") and "<title>" in page, "the page")
check("innerHTML" not in page and "src=" not in page and "http://" not in page and "https://" not in page,
      "the page loads nothing and writes no HTML")
s.wait_for_metric("pages_used", 0)
finish()
