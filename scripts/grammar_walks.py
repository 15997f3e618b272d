#!/usr/bin/env python3
"""Random schemas against an outside judge: PyPI's hypothesis-jsonschema draws schemas and documents, jsonschema judges.

grammar_walks.py BUILD/test_grammar [STEPS [SEED]]: needs `pip install hypothesis-jsonschema jsonschema`. For each schema
that plait builds, the documents of random walks along its masks must be valid, and documents that are drawn for it, as
json.dumps writes them with their keys in the schema's order, must be accepted. Ends after STEPS tokens (1000000) and one
schema for 500 of them, and prints how many schemas were built, and what was found.
"""
import collections
import json
import random
import re
import subprocess
import sys
import unicodedata
import warnings

import jsonschema
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

warnings.simplefilter("ignore")
program = sys.argv[1]
steps_wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
random.seed(seed)
counts = collections.Counter()
reasons = collections.Counter()
findings = []


def find(schema, problem, text):
    findings.append(text)
    print(problem, json.dumps(schema), "\n    ", text, flush=True)


driver = subprocess.Popen([program, "drive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(question):
    driver.stdin.write((json.dumps(question) + "\n").encode())
    driver.stdin.flush()
    line = driver.stdout.readline()
    if not line:
        print("the driver died of", json.dumps(question))
        sys.exit(1)
    return json.loads(line)


# ---- schemas ----

names = ["a", "b", "ab", "name", "é", "x y", "", "\n", "😀", "a\"b"]
texts = st.text(alphabet="ab é\"\\\n😀z0", max_size=5)
patterns = ["^a", "b$", "^[a-c]+$", "^\\d{2,4}$", "a|b", "^(foo|ba[rz])*$", "^[^a]*$", "[0-9]+", "^\\w+$", "^.{2,5}$",
            "\\S", "^\\W*$", "^(é|\\u20ac)?x$", "^$", "ab?c*", "(^a|b)c", "^\\s*\\d+\\D", "^[\\w.-]+@[\\w-]+\\.\\w+$",
            "^[\\u0000-\\u007f]{3}$", "^[^\\n]+$", "^(a|b)*a(a|b){2}$", "😀", "^[a-zé-ü😀-😂]+$"]


def optional(d, **fields):
    return st.fixed_dictionaries(d, optional=fields)


def numbers(kind):
    bound = st.integers(-1000, 1000)
    if kind == "number":
        bound = st.one_of(bound, st.floats(-1e3, 1e3), st.sampled_from([0.1, 1e-7, -2.5e-5, 1e17, -1e300, 5e-324, 1e16]))
    else:
        bound = st.one_of(bound, st.floats(-50, 50), st.sampled_from([10**17, -(10**18), 1e20, 99, 100, -10, -9]))
    both = optional({"type": st.just(kind)}, minimum=bound, maximum=bound, exclusiveMinimum=bound, exclusiveMaximum=bound)
    one = optional({"type": st.just(kind)}, minimum=bound)
    return st.one_of(st.just({"type": kind}), one, both)


strings = st.one_of(
    optional({"type": st.just("string")}, minLength=st.integers(0, 4), maxLength=st.integers(2, 9)),
    optional({"type": st.just("string"), "pattern": st.sampled_from(patterns)}, maxLength=st.integers(3, 9)),
    optional({"type": st.just("string"), "format": st.sampled_from(["date", "time", "date-time", "uuid", "ipv4"])}),
)
values = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
                      lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(st.sampled_from(names), v, max_size=3)), max_leaves=4)
leaves = st.one_of(strings, numbers("integer"), numbers("number"), st.just({"type": "boolean"}), st.just({"type": "null"}), st.just({}),
                   st.just(True), st.just(False), st.builds(lambda v: {"const": v}, values),
                   st.builds(lambda v: {"enum": v}, st.lists(values, min_size=1, max_size=4)),
                   st.just({"$ref": "#"}), st.just({"$ref": "#/$defs/d"}), st.just({"type": ["string", "integer"], "minLength": 2, "minimum": 3}))


def grow(inner):
    objects = optional({"type": st.just("object")}, properties=st.dictionaries(st.sampled_from(names), inner, max_size=4),
                       required=st.lists(st.sampled_from(names), max_size=2, unique=True),
                       additionalProperties=st.one_of(st.booleans(), inner))
    arrays = optional({"type": st.just("array")}, items=inner, prefixItems=st.lists(inner, min_size=1, max_size=3),
                      minItems=st.integers(0, 3), maxItems=st.integers(1, 5))
    untyped = optional({}, properties=st.dictionaries(st.sampled_from(names), inner, max_size=2), items=inner, maxLength=st.integers(0, 5))
    unions = st.one_of(st.builds(lambda v: {"anyOf": v}, st.lists(inner, min_size=1, max_size=3)),
                       st.builds(lambda v: {"oneOf": v}, st.lists(inner, min_size=1, max_size=2)),
                       st.builds(lambda v: {"allOf": v}, st.lists(inner, min_size=1, max_size=2)),
                       st.builds(lambda o, v: {**o, "anyOf": v}, objects, st.lists(inner, min_size=1, max_size=2)))
    return st.one_of(objects, objects, arrays, unions, untyped)


schemas = st.builds(lambda s, d: {**s, "$defs": {"d": d}} if isinstance(s, dict) else s,
                    st.recursive(leaves, grow, max_leaves=8), leaves.filter(lambda d: not isinstance(d, dict) or "$ref" not in d))


# ---- documents in the schema's order ----


def resolve(schema, root):
    for _ in range(20):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        schema = root if schema["$ref"] == "#" else root.get("$defs", {}).get("d", True)
    return True


def parts_of(schema, root, depth=0):
    """The schemas within a schema that say something of the same value."""
    schema = resolve(schema, root)
    if not isinstance(schema, dict) or depth > 4:
        return []
    found = [schema]
    for key in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(key, []):
            found += parts_of(part, root, depth + 1)
    return found


def in_order(value, schema, root):
    """The value with its keys in the order of properties, then of required; None where orders differ."""
    parts = parts_of(schema, root)
    for part in parts:
        for option in [part.get("const")] + part.get("enum", []):
            if isinstance(option, (dict, list)) and option == value:
                return option
    if isinstance(value, list):
        out = []
        for i, v in enumerate(value):
            inner = True
            for part in parts:
                prefix = part.get("prefixItems", [])
                inner = prefix[i] if i < len(prefix) else part.get("items", inner)
            out.append(in_order(v, inner, root))
        return out
    if not isinstance(value, dict):
        return value
    order = []
    where = {}
    for part in parts:
        for key, inner in part.get("properties", {}).items():
            where[key] = inner
            order += [key] if key not in order else []
    for part in parts:
        order += [k for k in part.get("required", []) if k not in order]
        rest = part.get("additionalProperties", True)
        for key in value:
            where.setdefault(key, rest)
    keys = [k for k in order if k in value] + [k for k in value if k not in order]
    return {k: in_order(value[k], where.get(k, True), root) for k in keys}


def texts_of(value):
    return [json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, separators=(",", ":")),
            json.dumps(value, indent=2)]


def not_promised(value):
    """Values that json.dumps writes in a way that docs/schemas.md leaves out: integers as 1.0, halves of pairs."""
    if isinstance(value, float):
        return value == int(value) if abs(value) < 1e300 else True
    if isinstance(value, str):
        return any(0xD800 <= ord(c) < 0xE000 for c in value)
    if isinstance(value, list):
        return any(not_promised(v) for v in value)
    if isinstance(value, dict):
        return any(not_promised(k) or not_promised(v) for k, v in value.items())
    return False


checker = jsonschema.Draft202012Validator.FORMAT_CHECKER


def both_patterns(validator, pattern, text, schema):
    """Python's re and ECMA-262 must agree: classes of ASCII and of Unicode, and $ only at the end."""
    if isinstance(text, str):
        ends = pattern.replace("$", r"\Z")
        if not (re.search(ends, text) and re.search(ends, text, re.ASCII)) or re.search("[\r\u2028\u2029\ufeff\x1c-\x1f\x85]", text) or any(
            unicodedata.category(c) == "Cn" for c in text
        ):
            yield jsonschema.ValidationError("not promised")


Strict = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": both_patterns})


def validators_of(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=checker), Strict(schema, format_checker=checker)


def documents_of(schema):
    try:
        strategy = from_schema(schema)
    except Exception:  # what hypothesis-jsonschema cannot draw
        return []
    found = []

    @hypothesis_seed(random.randrange(1 << 30))
    @settings(max_examples=12, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value):
        found.append(value)

    try:
        collect()
    except BaseException as problem:  # noqa: B036  (hypothesis has several)
        if isinstance(problem, KeyboardInterrupt):
            raise
    return found


def strict(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def look_at(schema):
    question = {"schema": schema, "seed": random.randrange(1 << 40), "walks": 40, "steps": 40, "documents": []}
    try:
        validator, strict_validator = validators_of(schema)
        documents = []
        for value in documents_of(schema):
            if not_promised(value):
                continue
            value = in_order(value, schema, schema if isinstance(schema, dict) else {})
            if strict_validator.is_valid(value):
                documents += texts_of(value)
        question["documents"] = documents
    except (jsonschema.SchemaError, RecursionError):
        return
    answer = ask(question)
    counts["schemas"] += 1
    if "error" in answer:
        counts["refused"] += 1
        reasons[answer["error"].split(".")[-1][:60]] += 1
        return
    counts["built"] += 1
    counts["steps"] += answer["taken"]
    counts["documents"] += len(documents)
    if "wrong" in answer:
        find(schema, answer["wrong"], answer["texts"])
    for text in answer["texts"]:
        counts["walks"] += 1
        try:
            value = json.loads(text, object_pairs_hook=strict)
            if not validator.is_valid(value):
                find(schema, "let through", text)
        except (RecursionError, OverflowError):
            counts["not judged"] += 1
        except (ValueError, TypeError) as problem:
            find(schema, f"not JSON ({problem})", text)
    for text in answer["refused"][:1]:
        find(schema, "stopped", text)


batch = 0
while (counts["steps"] < steps_wanted or counts["schemas"] < steps_wanted // 500) and len(findings) < 20:

    @hypothesis_seed(seed * 1000 + batch)
    @settings(max_examples=50, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(schemas)
    def run(schema):
        look_at(schema)

    run()
    batch += 1
    if "-v" in sys.argv:
        print(dict(counts), len(findings), file=sys.stderr, flush=True)

print(", ".join(f"{n} {name}" for name, n in counts.items()))
if "-v" in sys.argv:
    print(reasons.most_common(30))
sys.exit(bool(findings))
