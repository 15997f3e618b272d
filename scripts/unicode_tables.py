#!/usr/bin/env python3
"""Makes src/tokenizer/unicode_tables.h: what Hugging Face's tokenizers 0.23.3 takes each code point for.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3
    /tmp/venv/bin/python scripts/unicode_tables.py            # writes the header again (some minutes)
    /tmp/venv/bin/python scripts/unicode_tables.py --check    # 1 when the header would change

Nothing is taken from the Unicode database: the script asks `tokenizers` itself, construct by construct, about every code
point of all planes. Its regular expressions (Oniguruma), its normalizers and Rust's own character classes use different
versions of Unicode, so there is a table for each of them.
"""
import argparse
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, __version__, models, normalizers, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "src", "data", "unicode_tables.h")
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
SURROGATES = range(0xD800, 0xE000)
ALL = "".join(chr(c) for c in range(0x110000) if c not in SURROGATES)

CATEGORIES = "Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
PROPERTIES = """alnum alpha blank cntrl digit graph lower print punct space upper xdigit word ascii
 alphabetic lowercase uppercase whitespace ideographic unifiedideograph emoji emojipresentation emojimodifier
 emojimodifierbase emojicomponent extendedpictographic joincontrol math hexdigit idstart idcontinue xidstart xidcontinue
 dash diacritic quotationmark variationselector regionalindicator defaultignorablecodepoint""".split()
BRACKETS = "alnum alpha blank cntrl digit graph lower print punct space upper xdigit word ascii".split()
SCRIPTS = """adlam ahom anatolianhieroglyphs arabic armenian avestan balinese bamum bassavah batak bengali bhaiksuki
 bopomofo brahmi braille buginese buhid canadianaboriginal carian caucasianalbanian chakma cham cherokee chorasmian
 common coptic cuneiform cypriot cyprominoan cyrillic deseret devanagari divesakuru dogra duployan
 egyptianhieroglyphs elbasan elymaic ethiopic garay georgian glagolitic gothic grantha greek gujarati gunjalagondi
 gurmukhi gurungkhema han hangul hanifirohingya hanunoo hatran hebrew hiragana imperialaramaic inherited
 inscriptionalpahlavi inscriptionalparthian javanese kaithi kannada katakana kawi kayahli kharoshthi khitansmallscript
 khmer khojki khudawadi kiratrai lao latin lepcha limbu lineara linearb lisu lycian lydian mahajani makasar malayalam
 mandaic manichaean marchen masaramgondi medefaidrin meeteimayek mendekikakui meroiticcursive meroitichieroglyphs miao
 modi mongolian mro multani myanmar nabataean nagmundari nandinagari newa newtailue nko nushu nyiakengpuachuehmong
 ogham olchiki oldhungarian olditalic oldnortharabian oldpermic oldpersian oldsogdian oldsoutharabian oldturkic
 olduyghur olonal oriya osage osmanya pahawhhmong palmyrene paucinhau phagspa phoenician psalterpahlavi rejang runic
 samaritan saurashtra sharada shavian siddham signwriting sinhala sogdian sorasompeng soyombo sundanese sunuwar
 sylotinagri syriac tagalog tagbanwa taile taitham taiviet takri tamil tangsa tangut telugu thaana thai tibetan
 tifinagh tirhuta todhri toto tulutigalari ugaritic unknown vai vithkuqi wancho warangciti yezidi yi zanabazarsquare""".split()


# ---- numbers as text -------------------------------------------------------------------------------------------------

def number(n):
    """Five bits a letter, lowest first; a letter from `g` on says that more follow."""
    text = ""
    while n >= 32:
        text += DIGITS[32 + n % 32]
        n //= 32
    return text + DIGITS[n]


def signed(n):
    return number(2 * n if n >= 0 else -2 * n - 1)


def ranges_of(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c:
            out[-1][1] = c + 1
        else:
            out.append([c, c + 1])
    return out


def ranges_text(points):
    at, text = 0, ""
    for first, end in ranges_of(points):
        text += number(first - at) + number(end - first)
        at = end
    return text


def mapping_text(mapping):
    """Entries in order: gap, length of the target, then the target; runs of single targets: gap, 0, count, step, offset."""
    at, text, points, done = 0, "", sorted(mapping), 0
    while done < len(points):
        c, target = points[done], mapping[points[done]]
        count, step = 1, 1
        if len(target) == 1:
            for s in (1, 2):
                n = 1
                while mapping.get(c + n * s) == (target[0] + n * s,) and done + n < len(points) and \
                        points[done + n] == c + n * s:
                    n += 1
                if n > count:
                    count, step = n, s
        text += number(c - at)
        if len(target) == 1:
            text += number(0) + number(count) + number(step) + signed(target[0] - c)
        else:
            text += number(len(target)) + "".join(number(t) for t in target)
        at = c + (count - 1) * step + 1
        done += count
    return text


# ---- questions -------------------------------------------------------------------------------------------------------

def pieces(splitter, text):
    return [offsets for _, offsets in splitter.pre_tokenize_str(text)]


def matched(pattern, text=ALL):
    """The characters of text that a regular expression of one character matches."""
    out, at = set(), 0
    for first, end in pieces(pre_tokenizers.Split(Regex("(?:%s)+" % pattern), "removed"), text) + [(len(text),) * 2]:
        out.update(map(ord, text[at:first]))
        at = end
    return out


def digits():
    """Rust's char::is_numeric, by which Digits splits."""
    out, splitter = set(), pre_tokenizers.Digits(individual_digits=False)
    for first, end in pieces(splitter, ALL):
        if splitter.pre_tokenize_str("x" + ALL[first])[-1][1][0] == 1:
            out.update(map(ord, ALL[first:end]))
    return out


def added(**options):
    t = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    t.add_tokens([AddedToken("qq", normalized=False, **options)])
    return t


def stripped():
    """What rstrip takes for white space."""
    t = added(rstrip=True)
    offsets = t.encode("".join("qq" + c for c in ALL if c != "q")).offsets
    ends = {end - 1 for first, end in offsets if end - first == 3}
    points = [c for c in ALL if c != "q"]
    out = {ord(points[e // 3]) for e in ends if e % 3 == 2}
    left = added(lstrip=True)
    for c in range(0x3100):
        assert (left.encode("x" + chr(c) + "qq").offsets[-1][0] == 1) == (c in out), hex(c)
    return out


def word_characters():
    """What single_word takes for a part of a word."""
    t, out = added(single_word=True), set()
    points = [c for c in ALL if c not in "q"]
    qq = t.token_to_id("qq")
    for start in range(0, len(points), 1 << 16):
        part = points[start:start + (1 << 16)]
        e = t.encode(" ".join(c + "qq" for c in part))
        alone = {o[0] // 4 for i, o in zip(e.ids, e.offsets) if i == qq}
        out.update(ord(c) for k, c in enumerate(part) if k not in alone)
    return out | {ord("q")}


def punctuation():
    """What the pre-tokenizers Punctuation and BertPreTokenizer take for punctuation."""
    out, at = set(), 0
    for first, end in pieces(pre_tokenizers.Punctuation("removed"), ALL) + [(len(ALL),) * 2]:
        out.update(map(ord, ALL[at:first]))
        at = end
    return out


def changed(normalizer):
    out = {}
    for c in ALL:
        text = normalizer.normalize_str(c)
        if text != c:
            out[ord(c)] = tuple(map(ord, text))
    return out


def combining_classes(nfd):
    """Canonical combining classes, by where U+0334 (1) and U+0345 (240) are put beside a mark, then by sorting."""
    def swaps(a, b):
        return a != b and nfd(a + b) == b + a
    first, last = "\u0334", "\u0345"
    decomposes = {c for c in ALL if nfd(c) != c}
    marks = [c for c in ALL if c not in decomposes and (swaps(c, first) or swaps(last, c))]
    marks += [c for c in (first, last) if c not in marks]
    # One mark of each class that is met; their order is found by asking about pairs.
    classes = []
    for m in marks:
        if not any(not swaps(m, k[0]) and not swaps(k[0], m) for k in classes):
            classes.append([m])
    import functools
    classes.sort(key=functools.cmp_to_key(lambda a, b: 1 if swaps(a[0], b[0]) else -1))
    out = {}
    for m in marks:
        out[ord(m)] = next(i + 1 for i, k in enumerate(classes) if not swaps(m, k[0]) and not swaps(k[0], m))
    return out


# ---- normalization, simulated from the tables alone, so that a wrong table is noticed here ---------------------------

HANGUL = range(0xAC00, 0xD7A4)


class Simulated:
    def __init__(self, canonical, compatible, excluded, classes):
        self.classes, self.tables = classes, {"D": canonical, "KD": {**canonical, **compatible}}
        whole = {t: c for c, t in canonical.items() if len(t) > 1 and c not in excluded}
        self.pairs = {}
        for target, c in whole.items():
            head = target[0] if len(target) == 2 else whole[target[:-1]]
            self.pairs[head, target[-1]] = c

    def compose(self, a, b):
        if 0x1100 <= a < 0x1113 and 0x1161 <= b < 0x1176:
            return 0xAC00 + ((a - 0x1100) * 21 + b - 0x1161) * 28
        if a in HANGUL and (a - 0xAC00) % 28 == 0 and 0x11A7 < b < 0x11C3:
            return a + b - 0x11A7
        return self.pairs.get((a, b))

    def __call__(self, form, text):
        points, out = [], []
        table = self.tables[form.replace("C", "D")]
        for c in map(ord, text):
            if c in HANGUL:
                s = c - 0xAC00
                points += [0x1100 + s // 588, 0x1161 + s % 588 // 28] + [0x11A7 + s % 28] * (s % 28 > 0)
            else:
                points += table.get(c, (c,))
        start = 0
        for i in range(len(points) + 1):
            if i == len(points) or not self.classes.get(points[i], 0):
                points[start:i] = sorted(points[start:i], key=lambda c: self.classes.get(c, 0))
                start = i + 1
        if "C" not in form:
            return "".join(map(chr, points))
        starter, last = -1, 0
        for c in points:
            k = self.classes.get(c, 0)
            joined = self.compose(out[starter], c) if starter >= 0 and (last < k or last == 0 and
                                                                       starter == len(out) - 1) else None
            if joined is not None:
                out[starter] = joined
                continue
            out.append(c)
            last = k
            if k == 0:
                starter = len(out) - 1
        return "".join(map(chr, out))


def check_normalization(simulated):
    import random
    rng = random.Random(20261122)
    special = [c for c in range(0x110000) if c in simulated.tables["KD"] or c in simulated.classes]
    special += list(range(0x1100, 0x11FF)) + list(range(0xAC00, 0xAD00)) + list(range(0x41, 0x5B))
    seconds = [b for _, b in simulated.pairs]
    for form, name in (("D", "NFD"), ("C", "NFC"), ("KD", "NFKD"), ("KC", "NFKC")):
        theirs = getattr(normalizers, name)()
        for c in ALL:
            assert theirs.normalize_str(c) == simulated(form, c), (name, hex(ord(c)))
        for _ in range(20000):
            text = "".join(chr(rng.choice(rng.choice((special, seconds)))) for _ in range(rng.randrange(2, 9)))
            assert theirs.normalize_str(text) == simulated(form, text), (name, [hex(ord(c)) for c in text])


# ---- the header ------------------------------------------------------------------------------------------------------

def literal(text, indent="    "):
    width = 110
    lines = [text[i:i + width] for i in range(0, len(text), width)] or [""]
    return "\n".join('%s"%s"' % (indent, line) for line in lines)


def set_row(name, points, categories):
    """A set as those categories of which it has the most part, and the code points where that is not so."""
    mask, base = 0, set()
    for i, members in enumerate(categories):
        if 2 * len(members & points) > len(members):
            mask |= 1 << i
            base |= members
    return '    {"%s", 0x%x,\n%s},' % (name, mask, literal(ranges_text(points ^ base), "     "))


def make():
    progress = lambda text: print(text, file=sys.stderr, flush=True)
    categories = []
    for name in CATEGORIES:
        text = ALL if len(categories) < 4 else assigned
        categories.append(set(SURROGATES) if name == "Cs" else matched(r"\p{%s}" % name, text) - set(SURROGATES))
        if name == "Co":
            known = categories[0] | categories[3]
            assigned = "".join(c for c in ALL if ord(c) not in known)
        progress("%s %d" % (name, len(categories[-1])))
    assert sum(map(len, categories)) == 0x110000 and not set.intersection(*categories)
    by_point = bytearray(0x110000)
    for i, members in enumerate(categories):
        for c in members:
            by_point[c] = i
    runs, start = "", 0
    for c in range(1, 0x110001):
        if c == 0x110000 or by_point[c] != by_point[start]:
            runs += number(by_point[start]) + number(c - start)
            start = c
    rows, unknown = [], []
    for kind, names in (("p", PROPERTIES), ("b", BRACKETS), ("s", SCRIPTS)):
        for name in names:
            text = assigned if kind == "s" and name != "unknown" else ALL
            try:
                points = matched("[[:%s:]]" % name if kind == "b" else r"\p{%s}" % name, text)
            except Exception:
                unknown.append(name)
                continue
            rows.append(set_row("[%s]" % name if kind == "b" else name, points, categories))
            progress("%s %d" % (name, len(points)))
    for name in (r"\w", r"\d", r"\s", r"\h"):  # in brackets they are other sets: [\w] has no superscript digits
        rows.append(set_row("\\" + name, matched(name), categories))
        rows.append(set_row("[\\%s]" % name, matched("[%s]" % name), categories))
    rows.append(set_row("*numeric", digits(), categories))
    rows.append(set_row("*space", stripped(), categories))
    rows.append(set_row("*word", word_characters(), categories))
    rows.append(set_row("*punct", punctuation(), categories))
    rows.append(set_row("*accent", set(changed(normalizers.StripAccents())), categories))
    progress("normalizers")
    nfd, nfkd = changed(normalizers.NFD()), changed(normalizers.NFKD())
    nfc = changed(normalizers.NFC())
    canonical = {c: t for c, t in nfd.items() if c not in HANGUL}
    compatible = {c: t for c, t in nfkd.items() if c not in HANGUL and canonical.get(c) != t}
    excluded = {c for c in nfc if len(canonical[c]) > 1}
    classes = combining_classes(normalizers.NFD().normalize_str)
    check_normalization(Simulated(canonical, compatible, excluded, classes))
    marks, at = "", 0
    for value in sorted(set(classes.values())):
        for first, end in ranges_of(c for c in classes if classes[c] == value):
            marks += number(value) + number(first) + number(end - first)
    lower = changed(normalizers.Lowercase())
    if unknown:
        progress("not known to tokenizers %s: %s" % (__version__, " ".join(unknown)))
    return "\n".join([
        "// Unicode character classes as Hugging Face's tokenizers %s uses them; generated by scripts/unicode_tables.py." % __version__,
        "// unicode.c explains the notation and is the only file that includes this one.",
        "static const char *const category_names[] = {%s};" % (",\n" + 45 * " ").join(
            ", ".join('"%s"' % n.lower() for n in CATEGORIES[i:i + 10]) for i in range(0, len(CATEGORIES), 10)),
        "static const char category_runs[] =\n%s;" % literal(runs),
        "static const UnicodeRow set_rows[] = {", *rows, "};",
        "static const char lower_text[] =\n%s;" % literal(mapping_text(lower)),
        "static const char canonical_text[] =\n%s;" % literal(mapping_text(canonical)),
        "static const char compatible_text[] =\n%s;" % literal(mapping_text(compatible)),
        "static const char excluded_text[] =\n%s;" % literal(ranges_text(excluded)),
        "static const char class_text[] =\n%s;" % literal(marks), ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = make()
    if options.check:
        sys.exit(text != open(OUT, encoding="utf-8").read())
    with open(OUT, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
