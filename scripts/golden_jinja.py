#!/usr/bin/env python3
"""Compares plait's interpreter of Jinja (src/chat) with Python's jinja2, set up as transformers sets it up.

    apt-get install python3-jinja2
    /usr/bin/python3 scripts/golden_jinja.py --write                     # tests/chat/golden/*.json from tests/chat/templates
    /usr/bin/python3 scripts/golden_jinja.py --random N SEED TEST_JINJA  # N random templates; TEST_JINJA: build/test_jinja
    /usr/bin/python3 scripts/golden_jinja.py --folder FOLDER TEST_JINJA  # the .jinja files of a folder, with several chats

The status is 1 where texts differ. Where jinja2 fails, plait must fail, too, but for what needs a list in the place
of a generator.
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..", "tests", "chat")


class Generation(Extension):
    """{% generation %} puts out its body, as transformers' AssistantTracker does."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body, lineno=line)


def environment():
    # The sandbox of transformers refuses append and pop, which plait allows.
    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: __import__("datetime").datetime.now().strftime(f)
    return env


COMPILED = {}


def render(env, template, variables):
    try:
        if template not in COMPILED:
            COMPILED[template] = env.from_string(template)
        return {"text": COMPILED[template].render(**json.loads(json.dumps(variables)))}
    except Exception as e:  # whatever it is, plait must fail, too
        return {"error": "%s: %s" % (type(e).__name__, e)}


def run_plait(program, lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        for line in lines:
            f.write(json.dumps(line) + "\n")
        f.flush()
        out = subprocess.run([program, f.name], stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in out.decode().splitlines()]


def compare(program, cases):
    """cases: (name, template, variables). Prints what differs, returns how many."""
    env = environment()
    wrong = errors = 0
    answers = run_plait(program, [{"template": t, "variables": v} for _, t, v in cases])
    for (name, template, variables), got in zip(cases, answers):
        want = render(env, template, variables)
        errors += "error" in want
        if want.get("text") == got.get("text"):
            continue
        if "generator" in want.get("error", "") and "text" in got:
            continue  # plait has a list where jinja2 has a generator, and can do more with it
        wrong += 1
        if wrong <= 20:
            print("%s:\n  jinja2 %s\n  plait  %s" % (name, shorten(want, got), shorten(got, want)))
            if len(template) < 600:
                print("  " + template.replace("\n", "\n  "))
    print("%d of %d differ; jinja2 fails in %d of them all" % (wrong, len(cases), errors))
    return wrong


def shorten(a, b):
    if "error" in a or "error" in b:
        return json.dumps(a, ensure_ascii=False)[:300]
    n = 0
    while n < min(len(a["text"]), len(b["text"])) and a["text"][n] == b["text"][n]:
        n += 1
    return "at %d: %r" % (n, a["text"][max(0, n - 60):n + 60])


# ---- chats for the templates of models

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a \"city\" <now>",
                                      "parameters": {"type": "object", "properties": {
                                          "city": {"type": "string", "description": "its name", "enum": ["Brno", "Oslo"]},
                                          "days": {"type": "integer", "default": 3},
                                          "tags": {"type": "array", "items": {"type": "string"}},
                                          "opt": {"type": ["string", "null"]}},
                                          "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {
        "type": "object", "properties": {}}}}]


def chats():
    user = {"role": "user", "content": "Grüße, 世界! <b>&</b> 'x' \"y\"\n  z "}
    call = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "abcdefgh1", "type": "function", "function": {"name": "get_weather",
                                                             "arguments": {"city": "Brno", "days": 2, "x": [1.5, None, True]}}}]}
    two = {"role": "assistant", "content": "I ask.", "tool_calls": [
        {"id": "abcdefgh2", "type": "function", "function": {"name": "now", "arguments": {}}},
        {"id": "abcdefgh3", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]}
    text_call = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "abcdefgh1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Brno\"}"}}]}
    result = {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": "{\"t\": -3.5}"}
    answer = {"role": "assistant", "content": "It is cold.", "reasoning_content": "Think\nhard"}
    thought = {"role": "assistant", "content": "<think>\nso\n</think>\n\nYes."}
    system = {"role": "system", "content": "Be brief. "}
    parts = {"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "text", "text": "part two"}]}
    lists = [
        [user], [system, user], [user, answer, user], [system, user, thought, {"role": "user", "content": "More?"}],
        [system, user, call, result], [user, call, result, answer, user], [user, text_call, result],
        [user, two, dict(result, tool_call_id="abcdefgh2"), dict(result, tool_call_id="abcdefgh3"), answer, user],
        [parts], [dict(system, content=parts["content"]), parts, answer, parts],
        [{"role": "developer", "content": "Dev"}, user], [user, user], [answer], [], [user, dict(answer, content="")]]
    for messages in lists:
        for tools in (None, TOOLS):
            for answer_next in (True, False):
                for more in ({}, {"enable_thinking": False}, {"enable_thinking": True, "thinking": True}):
                    variables = {"messages": messages, "tools": tools, "documents": None,
                                 "add_generation_prompt": answer_next, "bos_token": "<s>", "eos_token": "</s>"}
                    yield dict(variables, **more)


def folder_cases(folder):
    paths = sorted(glob.glob(os.path.join(folder, "*.jinja")))
    for path in paths:
        with open(path, encoding="utf-8", newline="") as f:
            template = f.read()
        for i, variables in enumerate(chats()):
            yield "%s chat %d" % (os.path.basename(path), i), template, variables


def main(arguments):
    if arguments[:1] == ["--folder"] and len(arguments) == 3:
        cases = list(folder_cases(arguments[1]))
        return 1 if not cases or compare(arguments[2], cases) else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
