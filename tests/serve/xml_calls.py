"""Calls of tools in XML: python3 xml_calls.py PORT. The model knows nothing of them, and is held to them all the same."""
import json
import sys

from client import Server, check, finish

s = Server(sys.argv[1])
user = [{"role": "user", "content": "ba"}]
parameters = {"type": "object", "required": ["word", "count"], "additionalProperties": False,
              "properties": {"word": {"enum": ["1", "null"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99},
                             "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}}}
tools = [{"type": "function", "function": {"name": "add", "parameters": parameters}}, {"type": "function", "function": {"name": "now"}}]
for seed in range(6):
    ask = dict(chat=True, messages=user, tools=tools, tool_choice="required", parallel_tool_calls=False, seed=seed, max_tokens=400)
    c = s.ask(**ask)["choices"][0]
    call = c["message"]["tool_calls"][0]["function"]
    value = json.loads(call["arguments"])
    fits = value == {} if call["name"] == "now" else value["word"] in ("1", "null") and value["count"] in range(100)
    check(c["finish_reason"] == "tool_calls" and c["message"]["content"] is None and fits, "a call: %s" % c)
    text = ""
    for e in s.stream(**ask):
        for d in e["choices"]:
            text += "".join(t["function"]["arguments"] for t in d["delta"].get("tool_calls", []))
    check(text == call["arguments"], "a stream has the arguments %s, not %s" % (text, call["arguments"]))
    c = s.ask(**{**ask, "tools": [{"type": "function", "function": {
        "name": "say", "parameters": {"properties": {"text": {"type": "string"}}, "required": ["text"]}}}]})["choices"][0]
    call = c["message"]["tool_calls"][0]["function"]
    check(c["finish_reason"] == "length" or isinstance(json.loads(call["arguments"])["text"], str), "a text: %s" % c)
for schema in ({"type": "string", "pattern": "a"}, {"type": "string", "maxLength": 3}, {"not": {}}):
    status, answer = s.post("/v1/chat/completions", {"messages": user, "tools": [{"type": "function", "function": {
        "name": "add", "parameters": {"properties": {"x": schema}}}}]})
    check(status == 400 and answer["error"]["code"] == "not_built" and
          answer["error"]["message"].startswith("tools.0.function.parameters.properties.x"), "%s: %s" % (schema, answer))
finish()
