#!/usr/bin/env python3
"""Compares plait's interpreter of Jinja (src/chat) with Python's jinja2, set up as transformers sets it up.

    apt-get install python3-jinja2
    /usr/bin/python3 scripts/golden_jinja.py --write                     # tests/chat/golden/*.json from tests/chat/templates
    /usr/bin/python3 scripts/golden_jinja.py --random N SEED TEST_JINJA  # N random templates; TEST_JINJA: build/test_jinja
    /usr/bin/python3 scripts/golden_jinja.py --folder FOLDER TEST_JINJA  # the .jinja files of a folder, with several chats

The status is 1 where texts differ. Where jinja2 fails, plait must fail, too (but see LENIENT).
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


# jinja2 cannot do this and plait can: it has a list where jinja2 has a generator, compares where jinja2 hashes, and does not
# take the `if` of "x is string if y" for an argument of the test.
LENIENT = ["generator", "unhashable", "expected token ')', got"]
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
        if " object at 0x" in want.get("text", ""):
            continue  # Python's name of an iterator
        if "text" in got and any(word in want.get("error", "") for word in LENIENT):
            continue
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


def write_goldens():
    env = environment()
    some = [v for i, v in enumerate(chats()) if i % 7 in (0, 4)]  # each chat with and without tools, and so on
    golden = {"chats": some, "cases": []}
    for path in sorted(glob.glob(os.path.join(TESTS, "templates", "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as f:
            template = f.read()
        shown = set()
        for i, variables in enumerate(some):
            answer = render(env, template, variables)
            if "error" in answer:
                answer = {"fails": True}
            if json.dumps(answer) in shown:
                continue
            shown.add(json.dumps(answer))
            golden["cases"].append(dict({"template": os.path.basename(path), "chat": i}, **answer))
    with open(os.path.join(TESTS, "golden.json"), "w", encoding="utf-8") as f:
        f.write('{"chats": [\n' + ",\n".join(json.dumps(c, ensure_ascii=False) for c in some) + '],\n"cases": [\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in golden["cases"]) + "]}\n")
    return 0


# ---- random templates

NAMES = ["a", "s", "n", "l", "d", "m", "x"]
VARIABLES = {"a": "Abc déf, ghi", "s": "  x\n y ", "n": 7, "l": [3, 1, 2], "d": {"k": "v", "b": [1, "q"], "z": None},
             "messages": [{"role": "user", "content": "Hi <there>"}, {"role": "assistant", "content": "Yo 'x'\n"}]}


def text_expression(r, depth):
    if depth <= 0:
        return r.choice(["a", "s", "'lit\\n'", '"q"', "messages[0].content", "d.k", "messages[-1]['role']", "''"])
    e = lambda: text_expression(r, depth - 1)
    return r.choice([
        lambda: "(%s + %s)" % (e(), e()), lambda: "%s ~ %s" % (e(), expression(r, depth - 1)),
        lambda: "%s | %s" % (e(), r.choice(["trim", "upper", "lower", "title", "capitalize", "string", "reverse",
                                            "replace('x', 'yy')", "replace('', '.', 3)", "indent(2)",
                                            "indent(width=1, first=true, blank=true)", "default('z')", "tojson",
                                            "first | default('e')", "last | default('e')", "trim('x')"])),
        lambda: "(%s)[%s:%s]" % (e(), r.choice(["", "1", "-3", "9"]), r.choice(["", "2", "-1"])),
        lambda: "(%s)[::%s]" % (e(), r.choice(["-1", "2", "-2"])),
        lambda: "(%s).%s" % (e(), r.choice(["strip()", "lstrip()", "rstrip(' \\n')", "upper()", "title()", "split() | join('|')",
                                            "split('x') | tojson", "replace('i', '')", "strip('aA')", "splitlines() | tojson",
                                            "split(' ', 1) | join('/')", "capitalize()", "zfill(9)", "rsplit('e', 1) | tojson"])),
        lambda: "(%s if %s else %s)" % (e(), condition(r, depth - 1), e()),
        lambda: "%s | join(%s)" % (list_expression(r, depth - 1), e()),
        lambda: "(%s * %d)" % (e(), r.randrange(3)), lambda: "'%%s-%%s' %% (%s, %s)" % (e(), expression(r, depth - 1)),
    ])()


def number_expression(r, depth):
    if depth <= 0:
        return r.choice(["n", "3", "-2", "0", "l | length", "a | length", "2.5", "l[0]", "1e3"])
    e = lambda: number_expression(r, depth - 1)
    return r.choice([
        lambda: "(%s %s %s)" % (e(), r.choice(["+", "-", "*", "//", "%", "/"]), e()),
        lambda: "(%s) | %s" % (e(), r.choice(["abs", "int", "float", "round", "round(1)", "round(0, 'floor')"])),
        lambda: "(%s) | length" % list_expression(r, depth - 1), lambda: "-%s" % e(),
        lambda: "%s | %s" % (list_expression(r, 0), r.choice(["sum", "min", "max", "first", "last", "length"])),
        lambda: "(%s).find('e')" % text_expression(r, depth - 1), lambda: "(%s).count('i')" % text_expression(r, depth - 1),
    ])()


def list_expression(r, depth):
    if depth <= 0:
        return r.choice(["l", "[1, 2.0, 5]", "range(4) | list", "[n, 1]", "l[1:]", "d.b[:1]"])
    e = lambda: list_expression(r, depth - 1)
    return r.choice([
        lambda: "(%s + %s)" % (e(), e()), lambda: "(%s)[%s:]" % (e(), r.choice(["1", "-1", ""])),
        lambda: "[%s, %s]" % (expression(r, depth - 1), expression(r, depth - 1)),
        lambda: "%s | %s" % (e(), r.choice(["sort", "list", "reverse | list", "unique | list", "map('string') | list",
                                            "sort(reverse=true)", "select('number') | list", "reject('equalto', 1) | list"])),
        lambda: "(%s).split('e')" % text_expression(r, depth - 1), lambda: "d.keys() | list", lambda: "d.values() | list",
        lambda: "d | dictsort", lambda: "messages | map(attribute='role') | list",
        lambda: "messages | selectattr('role', '%s', 'user') | list" % r.choice(["equalto", "ne", "in"]),
        lambda: "(%s) | list" % text_expression(r, 0),
    ])()


def condition(r, depth):
    if depth <= 0:
        return r.choice(["true", "false", "a", "x", "none", "n > 3", "l", "d.q", "'k' in d"])
    e = lambda: condition(r, depth - 1)
    return r.choice([
        lambda: "(%s and %s)" % (e(), e()), lambda: "(%s or %s)" % (e(), e()), lambda: "not %s" % e(),
        lambda: "%s %s %s" % (number_expression(r, depth - 1), r.choice(["<", "<=", "==", "!=", ">", ">="]),
                              number_expression(r, depth - 1)),
        lambda: "(%s) is %s" % (expression(r, depth - 1), r.choice(
            ["defined", "none", "string", "number", "mapping", "sequence", "iterable", "boolean", "not defined", "true",
             "false", "float", "integer", "undefined", "not string", "equalto(1)", "in [1, 'a']"])),
        lambda: "%s %s %s" % (text_expression(r, depth - 1), r.choice(["in", "not in", "==", "!="]), text_expression(r, depth - 1)),
        lambda: "(%s).%s('%s')" % (text_expression(r, depth - 1), r.choice(["startswith", "endswith"]), r.choice("aAx ")),
    ])()


def expression(r, depth):
    return r.choice([text_expression, text_expression, number_expression, list_expression, condition,
                     lambda r, k: r.choice(["d | list", "d.b", "{'p': %s}" % text_expression(r, k - 1), "(1, a)", "d | tojson(indent=1)",
                                            "d | items | list", "x"])])(r, depth)


def statements(r, depth):
    out = ""
    for _ in range(r.randrange(1, 4)):
        left, right = r.choice(["{%", "{%-", "{% "]), r.choice(["%}", "-%}", " %}", "%}\n"])
        tag = lambda words: left + " " + words + " " + right
        body = lambda: statements(r, depth - 1) if depth > 0 else "t"
        out += r.choice(["text ", " \n  ", "\n", "", "<b>"])
        out += r.choice([
            lambda: r.choice(["{{ ", "{{- "]) + expression(r, 2) + r.choice([" }}", " -}}"]),
            lambda: "{{ %s }}" % text_expression(r, 3),
            lambda: tag("if " + condition(r, 2)) + body() + tag("elif " + condition(r, 1)) + body() + tag("else") + body() + tag("endif"),
            lambda: tag("for i in " + list_expression(r, 1) + r.choice(["", " if loop is not defined", " if i"])) + "{{ i }}{{ loop.index ~ loop.last }}" +
            r.choice(["", "{% if loop.first %}{% continue %}{% endif %}", "{% if loop.index == 2 %}{% break %}{% endif %}"]) + body() +
            r.choice(["", tag("else") + "none"]) + tag("endfor"),
            lambda: tag("set %s = %s" % (r.choice(["x", "y"]), expression(r, 2))),
            lambda: tag("set x") + body() + tag("endset") + "{{ x }}",
            lambda: tag("macro f(p, q=%d)" % r.randrange(9)) + "{{ p }}/{{ q }}" + tag("endmacro") + "{{ f(%s) }}" % expression(r, 1),
            lambda: tag("set ns = namespace(v=%s)" % number_expression(r, 0)) + tag("for k, v in d.items()") + tag("set ns.v = ns.v ~ k") +
            tag("endfor") + "{{ ns.v }}",
            lambda: tag("for m in messages") + "{{ m.role }}:{{ m.content%s }}" % r.choice(["", "|trim", "[:3]"]) + tag("endfor"),
            lambda: "{# c #}" + r.choice(["\n", " "]),
        ])()
    return out


def random_cases(count, seed):
    r = random.Random(seed)
    for i in range(count):
        yield "random %d" % i, statements(r, 2), VARIABLES


def main(arguments):
    if arguments == ["--write"]:
        return write_goldens()
    if arguments[:1] == ["--random"] and len(arguments) == 4:
        return 1 if compare(arguments[3], list(random_cases(int(arguments[1]), int(arguments[2])))) else 0
    if arguments[:1] == ["--folder"] and len(arguments) == 3:
        cases = list(folder_cases(arguments[1]))
        return 1 if not cases or compare(arguments[2], cases) else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
