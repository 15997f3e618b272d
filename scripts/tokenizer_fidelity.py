#!/usr/bin/env python3
"""Compares plait's token ids with Hugging Face's on random strings, and the speed of both.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3
    /tmp/venv/bin/python scripts/tokenizer_fidelity.py --plait build/plait               # 100000 strings a tokenizer
    /tmp/venv/bin/python scripts/tokenizer_fidelity.py --plait build/plait --kinds qwen2,llama3 --strings 5000 --seed 7
    /tmp/venv/bin/python scripts/tokenizer_fidelity.py --plait build/plait --expressions 2000   # random expressions as well
    /tmp/venv/bin/python scripts/tokenizer_fidelity.py --plait build/plait --speed              # time on 50 MB of text

The tokenizers are small ones, trained here, with the constructs of well-known ones. The strings come from all planes of
Unicode: random code points, and mixes of white space, digits, letters, emoji, combining marks, special tokens, line ends
and contractions. Exit status 1 when an id differs.
"""
import argparse
import copy
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ["RUST_BACKTRACE"] = "0"
from tokenizers import AddedToken, Regex, Tokenizer, __version__, decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from golden_tokenizer import byte_level, kinds as golden_kinds  # noqa: E402

CATEGORIES = ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "N", "Nd", "Nl", "No", "P", "Pd", "S", "So", "Sk", "Z", "Zs", "C", "Cf",
              "Han", "Hiragana", "Katakana", "Hangul", "Latin", "Cyrillic", "Greek", "Arabic", "Alpha", "Punct", "Emoji"]


def all_kinds():
    yield from golden_kinds()


# ---- strings ---------------------------------------------------------------------------------------------------------

def code_points():
    """Every code point but surrogates, and those that matter more often than their number."""
    planes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assigned = [c for c in planes if c < 0x3400 or 0xA000 <= c < 0xAC00 or 0xD7A0 <= c < 0xD800 or 0xF900 <= c < 0x20000
                or 0x2F800 <= c < 0x2FA20 or 0xE0000 <= c < 0xE0200]
    return planes, assigned


PIECES = {
    "spaces": [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028",
               "\u2029", "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\ufeff", "\x1c", "\x1f"],
    "digits": ["0", "7", "12", "345", "6789", "\u00bd", "\u00b2", "\u0663", "\u0967", "\u4e09", "\u216b", "\u2460", "\u3007",
               "\U0001d7d9", "\U0001fbf0", "\U00011de1", "\uff11"],
    "letters": ["a", "B", "the", "River", "WORD", "word", "\u00e9", "\u00df", "\u0130", "\u01c5", "\u02b0", "\u0439", "\u03c3\u03c2",
                "\u0627\u0644", "\u0928\u093f", "\u6cb3\u6c34", "\u304c", "\u30ac", "\uac15", "\u1112\u1161\u11ab", "\ufb01", "\U00010d50", "\U0001e900",
                "\U0002ebf0", "\u212a", "\u017f", "\u24b6", "\U0001f130", "\U0001f170", "\u1e9e", "\ua7cb"],
    "emoji": ["\U0001f600", "\U0001fa77", "\U0001fae9", "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
              "\U0001f1e9\U0001f1ea", "\u00a9", "\u2122", "\U0001f6dc"],
    "marks": ["\u0301", "\u0308", "\u0323", "\u0334", "\u0345", "\u05b0", "\u064b", "\u093c", "\u094d", "\u0bbe", "\u0e38", "\u1dfa",
              "\u20d0", "\u3099", "\U00011938", "\U0001e8d0", "\U00010eff", "\u0897", "\u1abf", "\u115f", "\u11a8", "\u1175"],
    "marked": ["e\u0301", "A\u030a", "a\u0323\u0302", "\u1e69", "s\u0323\u0307", "\u212b", "\u2126", "\uf900", "\U0002f800", "\ufdfa", "\u0344",
               "\u0958", "\u1fc1", "\U0001d15e", "\u30ab\u3099", "\u1100\u1161\u11a8", "\uac00\u11a8", "\uff76\uff9e", "\u2474"],
    "words": ["'s", "'S", "'\u017f", "'t", "'re", "'LL", "'ve", "n't", "I'm", "'d", "\u2019s", "don't", "camelCase", "x_y", "a-b", "...", "==",
              "//", "({", "\"", "#!", "%d", "\u00ab", "\u2014", "\u3002", "\uff0c", "\u20ac", "^", "`", "~"],
    "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<tool>", "<mask>", "<pad>", "<|begin_of_text|>",
                "<\uff5cend\u2581of\u2581sentence\uff5c>", "\u2581", "<0x0A>", "<|endoftext|", "[MASK]"],
    "odd": ["\x00", "\x01", "\x1b", "\x7f", "\u00ad", "\u200d", "\u200c", "\ufffd", "\uffff", "\ue000", "\U000f0000", "\U0010ffff",
            "\u0378", "\U000e0001", "\U000e0100"],
}


def make_strings(rng, count):
    planes, assigned = code_points()
    families, out = list(PIECES.values()), []
    for _ in range(count):
        temper, n = rng.random(), rng.randrange(1, 25)
        if temper < 0.15:
            out.append("".join(chr(rng.choice(planes)) for _ in range(n)))
        elif temper < 0.4:
            out.append("".join(chr(rng.choice(assigned)) for _ in range(n)))
        elif temper < 0.5:  # one stretch of 256 characters
            base = rng.choice(assigned) & ~0xFF
            out.append("".join(chr(base + rng.randrange(256)) if not 0xD800 <= base < 0xE000 and rng.random() < 0.8 else
                               rng.choice(rng.choice(families)) for _ in range(n)))
        else:
            few = [rng.choice(families) for _ in range(rng.randrange(1, 4))] + [[chr(rng.choice(assigned))], [" "]]
            out.append("".join(rng.choice(rng.choice(few)) for _ in range(n)))
    return out


# ---- plait -----------------------------------------------------------------------------------------------------------

def read_ids(prefix):
    """The documents of an indexed dataset: PREFIX.idx has the sizes, PREFIX.bin the ids."""
    index = open(prefix + ".idx", "rb").read()
    kind, = struct.unpack_from("<B", index, 17)
    count, documents = struct.unpack_from("<QQ", index, 18)
    sizes = struct.unpack_from("<%di" % count, index, 34)
    letter = {8: "H", 4: "i", 1: "B", 3: "h", 5: "q"}[kind]
    data, at, out = open(prefix + ".bin", "rb").read(), 0, []
    for n in sizes:
        out.append(list(struct.unpack_from("<%d%s" % (n, letter), data, at)))
        at += n * struct.calcsize("<" + letter)
    return out


def plait_ids(plait, tokenizer, texts, folder):
    path, lines = os.path.join(folder, "t.json"), os.path.join(folder, "texts.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        f.write(tokenizer)
    with open(lines, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
    for name in ("ids.bin", "ids.idx"):
        if os.path.exists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))
    done = subprocess.run([plait, "tokenize", "--tokenizer", path, "--eot", "none", "--out", os.path.join(folder, "ids"), lines],
                          capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    return read_ids(os.path.join(folder, "ids")), ""


def compare(name, content, texts, plait, folder, shown):
    theirs = Tokenizer.from_str(content)
    want = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    have, message = plait_ids(plait, content, texts, folder)
    if have is None:
        print("%-16s REFUSED: %s" % (name, message))
        return len(texts)
    wrong = [i for i in range(len(texts)) if want[i] != have[i]]
    print("%-16s %d strings, %d differ" % (name, len(texts), len(wrong)), flush=True)
    for i in sorted(wrong, key=lambda i: len(texts[i]))[:shown]:
        print("   %s\n     %s\n     want %s\n     have %s" % (
            ascii(texts[i]), [p for p, _ in theirs.pre_tokenizer.pre_tokenize_str(texts[i])] if theirs.pre_tokenizer else "",
            [theirs.id_to_token(k) for k in want[i]], [theirs.id_to_token(k) for k in have[i]]))
    return len(wrong)


# ---- random expressions ----------------------------------------------------------------------------------------------

def random_class(rng, depth=0):
    members = []
    for _ in range(rng.randrange(1, 4)):
        members.append(rng.choice([
            lambda: rng.choice(["a-z", "A-Z", "0-9", "\\r\\n", "\\s", "\\S", "\\w", "\\W", "\\d", "\\D", "\\h", "_", "'", ".", "\\-", "\\]", "^", "\u4e00-\u9fa5"]),
            lambda: "\\%s{%s}" % (rng.choice("ppP"), rng.choice(CATEGORIES)),
            lambda: "[:%s%s:]" % (rng.choice(["", "^"]), rng.choice("alnum alpha blank cntrl digit graph lower print punct space upper xdigit word".split())),
            lambda: random_class(rng, depth + 1) if depth < 2 else "x"])())
    text = "".join(members)
    if text[0] == "^":
        text = "\\" + text
    if rng.random() < 0.15:
        text += "&&" + rng.choice(["\\w", "[^aeiou]", "\\p{L}", "\\P{Lu}", "[a-m\\s]"])
    return "[" + rng.choice(["", "", "^"]) + text + "]"


def random_expression(rng, depth=0):
    def atom():
        return rng.choice([
            lambda: rng.choice(["a", "b", " ", "'", "x", ".", "\\.", "\\n", "\\r\\n", "\\t", "\\x20", "\\x{41}", "\\u00e9", "\u00e9", "\\h", "\\H", "\\R"]),
            lambda: rng.choice(["\\w", "\\W", "\\d", "\\D", "\\s", "\\S"]),
            lambda: "\\%s{%s}" % (rng.choice("ppP"), rng.choice(CATEGORIES)),
            lambda: random_class(rng),
            lambda: random_class(rng),
            lambda: rng.choice(["(", "(?:", "(?>", "(?i:", "(?m:"]) + random_expression(rng, depth + 1) + ")" if depth < 2 else "\\p{L}",
        ])()

    def item():
        if rng.random() < 0.12:
            return rng.choice(["^", "$", "\\b", "\\B", "\\A", "\\Z", "\\z", "(?!\\S)", "(?=%s)" % atom(), "(?!%s)" % atom(), "(?<=\\s)", "(?<!a)"])
        repeat = rng.choice(["", "", "", "*", "+", "+", "?", "{1,3}", "{2}", "{,2}", "{1,}", "*?", "+?", "??", "++", "?+", "{1,2}?", "{2}?", "{1,2}+"])
        return atom() + repeat
    return "|".join("".join(item() for _ in range(rng.randrange(1, 4))) for _ in range(rng.randrange(1, 4)))


def compare_expressions(rng, count, plait, folder, shown):
    base = json.loads(byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 257).to_str())
    wrong = used = refused = 0
    reasons = {}
    for _ in range(count):
        expression, behavior = random_expression(rng), rng.choice(["isolated", "isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"])
        invert = rng.random() < 0.2
        try:
            split = pre_tokenizers.Split(Regex(expression), behavior, invert)
        except Exception:
            continue  # Hugging Face refuses it itself
        # Words are seen by what stands before them: every piece begins with a space.
        content = copy.deepcopy(base)
        t = Tokenizer.from_str(json.dumps(content))
        t.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
        texts = make_strings(rng, 60)
        content = t.to_str()
        try:
            want = [e.ids for e in Tokenizer.from_str(content).encode_batch(texts, add_special_tokens=False)]
        except BaseException as e:  # an expression over Oniguruma's limits panics
            if isinstance(e, KeyboardInterrupt):
                raise
            continue
        have, message = plait_ids(plait, content, texts, folder)
        if have is None:
            refused += 1
            reason = message.split("cannot use: ")[-1][:60]
            reasons[reason] = reasons.get(reason, 0) + 1
            continue
        used += 1
        bad = [i for i in range(len(texts)) if want[i] != have[i]]
        if bad:
            wrong += 1
            i = min(bad, key=lambda i: len(texts[i]))
            if wrong <= shown:
                words = t.decode(have[i]).replace("Ġ", " ")
                print("   %s %s invert %d on %s:\n     want %s\n     have %s" % (
                    ascii(expression), behavior, invert, ascii(texts[i]), ascii([p for p, _ in split.pre_tokenize_str(texts[i])]), ascii(words)))
    print("%d random expressions: %d compared on 60 strings each, %d differ, %d refused by plait only" % (count, used, wrong, refused))
    for reason, n in sorted(reasons.items(), key=lambda k: -k[1])[:8]:
        print("   refused %d times: %s" % (n, reason))
    return wrong


# ---- speed -----------------------------------------------------------------------------------------------------------

def sample_text(most):
    """Documents of this machine: Debian's documentation and translations, Python and C."""
    import gzip
    out, total = [], 0
    paths = sorted(p for pattern in ("/usr/share/doc/**/*", "/usr/share/perl/**/*.p[ml]", "/usr/share/perl/**/*.pod", "/usr/lib/python3*/**/*.py",
                                     "/usr/include/**/*.h", "/usr/share/i18n/**/*")
                   for p in glob.glob(pattern, recursive=True) if os.path.isfile(p))
    random.Random(1).shuffle(paths)
    for path in paths:
        try:
            data = gzip.open(path).read() if path.endswith(".gz") else open(path, "rb").read()
            text = data.decode()
        except (OSError, UnicodeDecodeError, EOFError):
            continue
        if 200 < len(text) < 2 << 20 and "\0" not in text:
            out.append(text)
            total += len(data)
        if total >= most:
            break
    return out, total


def speed(plait, folder, most, names):
    texts, size = sample_text(most)
    lines = os.path.join(folder, "speed.jsonl")
    with open(lines, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts)
    print("%d documents, %.1f MB, tokenizers %s, %d cores" % (len(texts), size / 1e6, __version__, len(os.sched_getaffinity(0))))
    for name, content in names:
        path = os.path.join(folder, "t.json")
        with open(path, "w", encoding="utf-8") as f:
            f.write(content)
        theirs = Tokenizer.from_str(content)
        ours, other, used, theirs_used, tokens = [], [], [], [], 0
        for _ in range(3):  # in turns, since other work of the machine slows both
            start, times = time.perf_counter(), os.times()
            for n in ("s.bin", "s.idx"):
                if os.path.exists(os.path.join(folder, n)):
                    os.unlink(os.path.join(folder, n))
            subprocess.run([plait, "tokenize", "--tokenizer", path, "--eot", "none", "--out", os.path.join(folder, "s"), lines],
                           check=True, capture_output=True)
            ours.append(time.perf_counter() - start)
            now = os.times()
            used.append(now.children_user + now.children_system - times.children_user - times.children_system)
            start, times = time.perf_counter(), now
            tokens = sum(len(e.ids) for e in theirs.encode_batch_fast(texts, add_special_tokens=False))
            other.append(time.perf_counter() - start)
            now = os.times()
            theirs_used.append(now.user + now.system - times.user - times.system)
        a, b = min(ours), min(other)
        print("%-12s plait %6.1f MB/s %6.2f million tokens/s   tokenizers %6.1f MB/s %6.2f million tokens/s   %.1f times" % (
            name, size / a / 1e6, tokens / a / 1e6, size / b / 1e6, tokens / b / 1e6, b / a))
        print("%-12s processor time: plait %.2f s, tokenizers %.2f s, %.1f times" % (
            "", min(used), min(theirs_used), min(theirs_used) / min(used)), flush=True)


def trained(content, vocabulary):
    """The same constructs with a vocabulary of a real size, learnt from this machine's text."""
    t = Tokenizer.from_str(content)
    specials = [k["content"] for k in json.loads(content)["added_tokens"]]
    t.train_from_iterator(sample_text(8 << 20)[0], trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=specials, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t.to_str()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plait", default="build/plait")
    parser.add_argument("--strings", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kinds", default="", help="names, with commas; all of the goldens' kinds otherwise")
    parser.add_argument("--expressions", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="how many differences to print of each kind")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--megabytes", type=int, default=50)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    chosen = [k for k in options.kinds.split(",") if k]
    with tempfile.TemporaryDirectory() as folder:
        if options.speed:
            wanted = chosen or ["gpt2", "llama3", "qwen2"]
            speed(options.plait, folder, options.megabytes * 10**6, [(n, trained(t.to_str(), 32768)) for n, t in all_kinds() if n in wanted])
            return
        print("seed %d, tokenizers %s" % (seed, __version__))
        rng = random.Random(seed)
        wrong = compared = 0
        for name, tokenizer in all_kinds():
            if chosen and name not in chosen or not options.strings:
                continue
            wrong += compare(name, tokenizer.to_str(), make_strings(rng, options.strings), options.plait, folder, options.show)
            compared += options.strings
        if options.expressions:
            wrong += compare_expressions(rng, options.expressions, options.plait, folder, options.show)
        print("%d strings compared, %d differ" % (compared, wrong))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
