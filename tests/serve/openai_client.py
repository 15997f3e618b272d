"""PyPI's openai as a user has it: openai_client.py PORT KEY."""
import sys

import openai

from client import Server, check, finish

client = openai.OpenAI(base_url="http://127.0.0.1:%s/v1" % sys.argv[1], api_key=sys.argv[2], max_retries=0)
server = Server(sys.argv[1], sys.argv[2])
ask = dict(model="run", seed=1)
user = [{"role": "system", "content": "ba"}, {"role": "user", "content": [{"type": "text", "text": "do ki"}]}]

check([m.id for m in client.models.list()] == ["run"], "models")
text = client.completions.create(prompt="ba do", max_tokens=9, logprobs=2, echo=True, **ask)
check(text.choices[0].text.startswith("ba do") and text.choices[0].finish_reason == "length", text)
check(len(text.choices[0].logprobs.tokens) == 11 and text.choices[0].logprobs.token_logprobs[0] is None, text)
check(text.usage.completion_tokens == 9 and text.system_fingerprint.startswith("plait-"), text)
pieces = list(client.completions.create(prompt="ba do", max_tokens=9, stream=True, **ask))
check("ba do" + "".join(p.choices[0].text for p in pieces) == text.choices[0].text, pieces)

chat = client.chat.completions.create(messages=user, n=2, max_completion_tokens=8, logprobs=True, top_logprobs=3, **ask)
check(len(chat.choices) == 2 and chat.choices[0].message.role == "assistant", chat)
check(len(chat.choices[0].logprobs.content[0].top_logprobs) == 3, chat)
parts, usage = "", None
for event in client.chat.completions.create(messages=user, max_tokens=8, stream=True, stream_options={"include_usage": True}, **ask):
    if event.choices:
        parts += event.choices[0].delta.content or ""
    usage = event.usage or usage
check(parts == chat.choices[0].message.content, (parts, chat))
check(usage.prompt_tokens == chat.usage.prompt_tokens and usage.prompt_tokens_details.cached_tokens >= 0, usage)
with client.chat.completions.stream(messages=user, max_tokens=8, **ask) as stream:  # the client puts the pieces together
    stream.until_done()
    check(stream.current_completion_snapshot.choices[0].message.content == parts, "the client's own stream")
tools = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}}]
called = client.chat.completions.create(
    messages=user + [{"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]},
                     {"role": "tool", "tool_call_id": "c1", "content": "3"}], tools=tools, max_tokens=4, **ask)
check(called.choices[0].message.role == "assistant", called)

called = client.chat.completions.create(messages=user, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=90, **ask)
check(called.choices[0].message.tool_calls[0].function.name == "add" and called.choices[0].finish_reason == "tool_calls", called)


def fails(kind, code, **fields):
    try:
        client.chat.completions.create(**{**ask, "messages": user, **fields})
        check(False, "%s is taken" % fields)
    except openai.APIStatusError as e:
        check(type(e) is kind and e.code == code, "%s: %r %s" % (fields, e, e.code))


fails(openai.NotFoundError, "model_not_found", model="gpt-4o")
fails(openai.BadRequestError, "invalid_value", temperature=3)
fails(openai.BadRequestError, "not_built", reasoning_effort="high")
fails(openai.BadRequestError, "context_length_exceeded", messages=[{"role": "user", "content": "ba " * 4000}])
good = client
client = client.with_options(api_key="wrong")
fails(openai.AuthenticationError, "invalid_api_key")
client = good

# A stream that is closed, and an answer whose time is over: nothing stays.
stream = client.completions.create(prompt="ba", max_tokens=1900, stream=True, extra_body={"ignore_eos": True}, **ask)
next(iter(stream))
stream.close()
try:
    client.with_options(timeout=0.05).completions.create(prompt="ba", max_tokens=1900, n=20, extra_body={"ignore_eos": True}, **ask)
    check(False, "no timeout")
except openai.APITimeoutError:
    pass
server.wait_for_metric("requests_running", 0)
server.wait_for_metric("pages_used", 0)
finish()
