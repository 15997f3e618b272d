#!/usr/bin/env python3
"""Makes tests/tokenizer/golden/: small tokenizer.json files of each supported kind, and Hugging Face's ids for texts.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers
    /tmp/venv/bin/python scripts/golden_tokenizer.py                     # writes the goldens again
    /tmp/venv/bin/python scripts/golden_tokenizer.py KIND …              # only these
    /tmp/venv/bin/python scripts/golden_tokenizer.py --plain             # writes plain.json again: texts with special tokens
    /tmp/venv/bin/python scripts/golden_tokenizer.py --check PLAIT       # trains with the command PLAIT and with Hugging
                                                                         # Face on this repository, compares both

The tests read the files only; they need no Python.
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "tests", "tokenizer", "golden")

CORPUS = [
    "The river runs past the old mill, and the miller's daughter doesn't mind the noise; they've lived there for 37 years.",
    "We're told that in 1984 it'd cost 12,500 crowns, or 3.75% more than I'll ever see. You've heard it, I'm sure!",
    "struct point { int x, y; };\n\nextern int distance(const struct point *a, const struct point *b);\n\treturn 0x1F + 42;\n",
    "for (int i = 0; i < count; i++) {\n        total += values[i] * weights[i];\n        if (total > 1e9) break;\n}\n",
    "Der Fluß läuft an der alten Mühle vorbei, und die Tochter des Müllers stört der Lärm überhaupt nicht.",
    "Le fleuve coule près du vieux moulin où l'on entend déjà chanter les élèves de l'école à côté.",
    "Река течёт мимо старой мельницы, и дочери мельника шум совсем не мешает; они живут там тридцать лет.",
    "Ο ποταμός κυλά δίπλα στον παλιό μύλο και η κόρη του μυλωνά δεν ενοχλείται από τον θόρυβο.",
    "يجري النهر بجانب الطاحونة القديمة ولا تنزعج ابنة الطحان من الضوضاء.",
    "नदी पुरानी चक्की के पास से बहती है और चक्कीवाले की बेटी को शोर से कोई परेशानी नहीं होती।",
    "河水流过旧磨坊，磨坊主的女儿并不介意噪音。他们在那里住了三十七年。",
    "川は古い水車小屋のそばを流れ、粉屋の娘は音を気にしません。もう37年そこに住んでいます。",
    "강은 오래된 방앗간 옆을 흐르고 방앗간 주인의 딸은 소음을 신경 쓰지 않는다.",
    "Emoji: 😀😀 🚀 ❤️ 👍🏽 👨‍👩‍👧‍👦 🇩🇪 — and “quotes”, dashes – and ellipses…",
] * 4

TEXTS = [
    "", " ", "  ", "   a", "a   ", "\n", "\n\n\n", " \n ", "\t\tx\r\n\r\ny", "a\n\n  b \n", "Hello world", " Hello  world ",
    "The miller's daughter doesn't mind; WE'RE THERE, I'LL SAY, they'Ve'd 'sup 's 't'",
    "1 12 123 1234 12345 3.14159 1,000,000 0x1F ½ ² ٣٤٥ 三十七 Ⅻ x1y22z333",
    "struct point { int x, y; };\n\n\n    extern int distance(const struct point *a);\n\t\treturn 0;\n",
    "Füße läuft naïve café e\u0301 A\u030A Straße ŒUVRE ſt I'ſ",
    "Река течёт мимо мельницы Ёлка", "Ο ποταμός κυλά", "يجري النهر ١٢٣", "नदी पुरानी चक्की के पास", "河水流过旧磨坊。 三十七年",
    "川は古い水車小屋のそば、37年", "강은 오래된 방앗간", "ไทย ភាសាខ្មែร አማርኛ ქართული Հայերեն עברית",
    "😀 😀😀 🚀❤️👍🏽 👨‍👩‍👧‍👦🇩🇪🇫🇷 🫠 🩷 x😀y", "𝕳𝖊𝖑𝖑𝖔 𐍈 𠮷野家 🀄︎",
    "".join(map(chr, range(0, 33))), "".join(map(chr, range(127, 161))), "a\u0000b\u0001\u001b[0m\u007f",
    "nbsp\u00a0x\u1680y\u2003z\u2028w\u3000v\u0085u\u180et\u200bs\ufefff\u00adr",
    " \u00a0 \u3000\u3000 x \u2009\u2009", "a\u200d\u200cb\ufe0f", "\ufffd\ufffe\uffff\U0010ffff", "\ue000\U000f0000",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> \n<|endoftext|><|endoftext|>", "<s>Hi</s> there<unk><s>", "<mask> x <mask>y  <mask>",
    "<|begin_of_text|>Hi<|end_of_text|> <|end_of_text", "<pad><tool> <TOOL> word wordy a word, sword word",
    "<tool>  \n next", "▁ lower ▁▁ one eighth", " ▁x ▁ y", "http://example.org/a_b-c?d=e&f=%20#g", "a,b;c:d!e?f(g)[h]{i}<j>\"k\"'l'",
    "snake_case camelCase PascalCase SCREAMING_CASE iPhone15Pro HTTPServer", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the the thethethethethethethethethethethethethethethethethethethe millermillermiller", "=" * 90 + "\n" + "-+" * 40,
    "x" + " " * 70 + "y" + "\t" * 20 + "\n" * 15, "Zalgo: h\u0335\u0321e\u0334\u0322l\u0336l\u0337o\u0338", "ﬁ ﬂ ǅ İ ı K Å µ μ",
    "<tool>  x", "<tool> \n y<tool>\t \tz", "<tool>   <mask>  <s>  <tool>\n\n", "a  <mask>\n<mask> \t<s> ",
    "\u24b6word word\u24b6 \U0001f130word word\U0001f170 \U0001f1e9word _word word\u200d \u00b2word", "\U0001fa77\U0001fa77 x\U0001fae9 \U0001f6dc",
    "\U00010d50\U00010d70 \U0001e4d0\U0001e4ec \u0897a \U00011de1\U00011de2 \ua7cb\ua7da \U0002ebf0\U000323b0",
    "e\u0301t\u00e9 \u00e9te\u0301 a\u0323\u0302 a\u0302\u0323 \u212b \u2126 \uf900 \ufdfa \u0344 \u0958 \u1100\u1161\u11a8 \uac00\u11a8 \u1fc1",
    "\u01c6 \u01c5 \u0130stanbul \u1e9e\u00df \u03a3\u03c3\u03c2 \uff21\uff42 \u2460 \u00bc \u2167 x\u0334\u0345\u0301", "Shan\u2019t SHAN'T shan't 5 O'CLOCK 12ab",
    "<0x41><0x0A> <0xFF>", "don\u2019t can\u2019t \u2018quoted\u2019 \u00abfr\u00bb", "a  b   c    d     e", "trailing\n    ", "\r\r\n\n\r x",
]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3_DIGIT = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

DEEPSEEK_V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
               r"\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_V1 = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
               r"[一-龥ࠀ-一가-퟿]+"]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def byte_level(split, specials, size, **bpe):
    tokenizer = Tokenizer(models.BPE(**bpe))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def with_fallback(size, fallback=True, fuse=True, alphabet=120):
    """A SentencePiece-like BPE: <unk> <s> </s>, byte tokens, then the trained ones."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False,
                                  limit_alphabet=alphabet)
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)] * fallback
    names += [t for t in sorted(model["vocab"], key=model["vocab"].get) if t not in names]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(names)}, merges=merges, unk_token="<unk>",
                                     byte_fallback=fallback, fuse_unk=fuse))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ["<unk>", "<s>", "</s>"]])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def kinds():
    eot = ["<|endoftext|>"]
    ByteLevel, Split, Sequence = pre_tokenizers.ByteLevel, pre_tokenizers.Split, pre_tokenizers.Sequence

    t = byte_level(ByteLevel(add_prefix_space=False), eot, 700)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "gpt2", t

    t = byte_level(Sequence([Split(Regex(LLAMA3), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]),
                   ["<|begin_of_text|>", "<|end_of_text|>"], 700, ignore_merges=True)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", 0)])])
    # A token that no merges make: only ignore_merges finds it.
    model = json.loads(t.to_str())
    model["model"]["vocab"]["Ġdaughterly"] = 700
    model["model"]["vocab"]["wordy"] = 701
    yield "llama3", Tokenizer.from_str(json.dumps(model))

    yield "digits", byte_level(Sequence([pre_tokenizers.Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
                               eot, 600)
    yield "digits_run", byte_level(Sequence([pre_tokenizers.Digits(individual_digits=False),
                                             ByteLevel(add_prefix_space=True, use_regex=False)]), eot, 500)
    yield "qwen", byte_level(Sequence([Split(Regex(LLAMA3_DIGIT), "isolated"),
                                       ByteLevel(add_prefix_space=False, use_regex=False)]), eot, 600)
    yield "o200k", byte_level(Sequence([Split(Regex(O200K), "removed", invert=True),
                                        ByteLevel(add_prefix_space=False, use_regex=False)]), eot, 600)
    yield "splits", byte_level(Sequence([Split(" ", "merged_with_next"), Split(Regex(r"\d"), "contiguous"),
                                         Split(Regex(r"[\p{P}\s]"), "merged_with_previous"),
                                         ByteLevel(add_prefix_space=False, use_regex=False)]), eot, 500)

    t = byte_level(ByteLevel(add_prefix_space=True), ["<s>", "<pad>", "</s>", "<unk>"], 600)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    yield "roberta", t

    t = byte_level(ByteLevel(add_prefix_space=False), eot, 500)
    t.add_tokens([AddedToken("<tool>", rstrip=True), AddedToken("word", single_word=True), AddedToken("<tool", normalized=False),
                  AddedToken("   "), AddedToken("  "), AddedToken("नदी")])
    yield "added", t

    t = with_fallback(760)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.add_tokens([AddedToken("<tool>", normalized=True), AddedToken("<pad>", normalized=False, lstrip=True, rstrip=True)])
    yield "llama2", t

    t = with_fallback(760)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    yield "metaspace_first", t

    t = with_fallback(500, fallback=False, fuse=False)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    yield "metaspace", t

    t = with_fallback(500, fallback=False, fuse=True)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    t.decoder = decoders.Metaspace(prepend_scheme="never")
    yield "metaspace_fuse", t

    eos = "<|endoftext|>"
    t = byte_level(Sequence([Split(Regex(LLAMA3_DIGIT), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]),
                   [eos, "<|im_start|>", "<|im_end|>"], 600)
    t.normalizer = normalizers.NFC()
    yield "qwen2", t

    t = byte_level(ByteLevel(add_prefix_space=False), eot, 600)
    t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)] + [AddedToken("e\u0301t\u00e9", normalized=True)])
    yield "neox", t

    t = byte_level(Sequence([pre_tokenizers.Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]), eot, 600)
    t.normalizer = normalizers.NFC()
    yield "cohere", t

    t = byte_level(Sequence([Split(Regex(r"\p{N}{1,3}"), "isolated"), Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
                             Split(Regex(DEEPSEEK_V3), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]),
                   ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"], 600)
    yield "deepseek_v3", t

    t = byte_level(Sequence([Split(Regex(e), "isolated") for e in DEEPSEEK_V1] +
                            [pre_tokenizers.Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=False)]), eot, 600)
    yield "deepseek_v1", t

    yield "bloom", byte_level(Sequence([Split(Regex(BLOOM), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]), eot, 600)

    # A vocabulary without letters for some bytes: they are dropped, unless a merge of the text around them has them.
    t = byte_level(Sequence([pre_tokenizers.Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]), eot, 600)
    model = json.loads(t.to_str())
    alphabet = [c for c in pre_tokenizers.ByteLevel.alphabet() if ord(c) > 0x7f and not any(
        c in a or c in b for a, b in model["model"]["merges"])][:60]
    vocab = [k for k in sorted(model["model"]["vocab"], key=model["model"]["vocab"].get) if k not in alphabet]
    model["model"]["vocab"] = {k: i for i, k in enumerate(vocab)}
    yield "smollm2", Tokenizer.from_str(json.dumps(model))

    t = byte_level(Split(Regex(r"\b|(?<=[^\W_])(?=[_.])|(?i:shan't|o'clock)|[\h&&[^a-f]]{2}+|^\s+$|[[:upper:]]\p{Mn}*"), "isolated"),
                   eot, 400)
    t.pre_tokenizer = Sequence([t.pre_tokenizer, ByteLevel(add_prefix_space=False, use_regex=False)])
    yield "oniguruma", t

    t = byte_level(ByteLevel(add_prefix_space=False), eot, 500)
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                         normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.Replace("``", "\"")])
    yield "uncased", t

    t = byte_level(ByteLevel(add_prefix_space=False), eot, 500)
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.NFKC(), normalizers.Lowercase()])
    yield "nfkc", t

    # Tokens that strip the space around them, beside tokens that are white space or begin with it.
    t = byte_level(ByteLevel(add_prefix_space=False), eot, 400)
    t.add_tokens([AddedToken("<tool>", rstrip=True, normalized=False), AddedToken("<mask>", lstrip=True, normalized=False),
                  AddedToken("  ", normalized=False), AddedToken("\n", normalized=False), AddedToken(" \t", normalized=False),
                  AddedToken("word", single_word=True, normalized=False), AddedToken("<s>", lstrip=True, rstrip=True, normalized=False)])
    yield "added_strip", t


    yield from kinds_by_hand()


def words(split, unk="[UNK]", **bpe):
    """As the quick tour of tokenizers makes one: no bytes, a token for what is unknown, no decoder."""
    t = Tokenizer(models.BPE(unk_token=unk, **bpe))
    t.pre_tokenizer = split
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]", "[CLS]"], show_progress=False,
                                                      limit_alphabet=120))
    return t


def kinds_by_hand():
    """Also files that tokenizers does not write, and reads."""
    yield "whitespace", words(pre_tokenizers.Whitespace())
    yield "whitespace_split", words(pre_tokenizers.WhitespaceSplit(), fuse_unk=True)
    yield "punctuation", words(pre_tokenizers.Punctuation("merged_with_previous"))
    yield "bert_words", words(pre_tokenizers.BertPreTokenizer())
    yield "delimiter", words(pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.Punctuation()]))

    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 400)
    t.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Replace("the", " THE ")])
    yield "strip", t
    t.normalizer = normalizers.Strip(left=False)
    yield "strip_right", t

    def token(content, number, **flags):
        return dict({"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                     "special": True}, **flags)
    t.normalizer = None
    odd = json.loads(t.to_str())
    size = len(odd["model"]["vocab"])
    # Declared ids that nobody has, or others have; listed twice; no text; in the vocabulary under another id; no such unk_token.
    odd["added_tokens"] += [token("<mask>", size + 40), token("<s>", size + 2), token("<tool>", 5, special=False), token("", size),
                            token("<s>", size + 2, lstrip=True), token("</s>", 1), token("river", size + 9, special=False)]
    odd["model"]["vocab"]["river"] = size
    odd["model"]["unk_token"] = "<unk>"
    yield "odd_added", odd


def write_goldens(only):
    os.makedirs(OUT, exist_ok=True)
    cases = {"texts": TEXTS, "kinds": {}}
    if only:
        with open(os.path.join(OUT, "cases.json"), encoding="utf-8") as f:
            cases = json.load(f)
        assert cases["texts"] == TEXTS
    for name, tokenizer in kinds():
        if only and name not in only:
            continue
        content = tokenizer if isinstance(tokenizer, dict) else json.loads(tokenizer.to_str())
        if name in ("gpt2", "llama2"):  # the older format of merges
            content["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in content["model"]["merges"]]
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        tokenizer = Tokenizer.from_str(text)
        with open(os.path.join(OUT, name + ".json"), "w", encoding="utf-8") as f:
            f.write(text + "\n")
        ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in TEXTS]
        cases["kinds"][name] = {
            "vocab_size": 1 + max(tokenizer.get_vocab().values()),
            "ids": ids,
            "special": tokenizer.encode("Hello world").ids,
            "decoded": [None if d == t else d for d, t in
                        ((tokenizer.decode(i, skip_special_tokens=False), t) for i, t in zip(ids, TEXTS))],
        }
    with open(os.path.join(OUT, "cases.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(cases, ensure_ascii=True, separators=(",", ":")) + "\n")


def write_plain():
    """Of each golden file: texts that spell out its added tokens; their ids, and those where special tokens stay text."""
    plain = {}
    for path in sorted(glob.glob(os.path.join(OUT, "*.json"))):
        name = os.path.basename(path)[:-5]
        if name in ("cases", "plain"):
            continue
        tokenizer = Tokenizer.from_file(path)
        added = [t.content for _, t in sorted(tokenizer.get_added_tokens_decoder().items())][:6]
        texts = [f"the {t} river{t} {t}{t}x\n{t}" for t in added] + ["".join(added), " mill ".join(added), added[0], "<" + added[-1] + ">"]
        ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
        tokenizer.encode_special_tokens = True
        plain[name] = [[t, i, tokenizer.encode(t, add_special_tokens=False).ids] for t, i in zip(texts, ids)]
    with open(os.path.join(OUT, "plain.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(plain, ensure_ascii=True, separators=(",", ":")) + "\n")


def check(plait):
    """Our trainer against Hugging Face's on the repository's sources, and our file read by Hugging Face."""
    files = sorted(p for e in ("c", "h", "py") for p in glob.glob(os.path.join(HERE, "..", "**", "*." + e), recursive=True))
    with tempfile.TemporaryDirectory() as folder:
        ours = os.path.join(folder, "tokenizer.json")
        subprocess.run([plait, "tokenize", "--train", "--vocab-size", "1024", "--out", ours] + files, check=True)
        mine = Tokenizer.from_file(ours)
        theirs = Tokenizer(models.BPE())
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        theirs.train_from_iterator([open(p, encoding="utf-8").read() for p in files], trainers.BpeTrainer(
            vocab_size=1024, special_tokens=["<|endoftext|>"], show_progress=False, min_frequency=2,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        a, b = mine.get_vocab(), theirs.get_vocab()
        print("vocabularies of 1024:", "equal" if a == b else "%d tokens differ" % len(set(a.items()) ^ set(b.items())))
        random.seed(0)
        texts = TEXTS + ["".join(map(chr, random.choices(range(32, 0x2000), k=40))) for _ in range(200)]
        path = os.path.join(folder, "texts.jsonl")
        with open(path, "w") as f:
            f.writelines(json.dumps({"text": t}) + "\n" for t in texts if t)
        subprocess.run([plait, "tokenize", "--tokenizer", ours, "--out", os.path.join(folder, "ids"), path], check=True)
        data = open(os.path.join(folder, "ids.bin"), "rb").read()
        ids = [int.from_bytes(data[i:i + 2], "little") for i in range(0, len(data), 2)]
        want = [i for t in texts if t for i in mine.encode(t).ids + [mine.token_to_id("<|endoftext|>")]]
        print("ids of %d texts by our file: %s" % (len(texts), "equal" if ids == want else "DIFFER"))
        return a == b and ids == want


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        sys.exit(not check(sys.argv[2]))
    if sys.argv[1:] == ["--plain"]:
        sys.exit(write_plain())
    write_goldens(sys.argv[1:])
