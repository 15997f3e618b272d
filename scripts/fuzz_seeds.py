#!/usr/bin/env python3
"""Makes the binary seeds of tests/fuzz/seeds again: of idx small indexed datasets, whole (byte 0 is 0) and as arrays (byte 0
is 1); of proof, rendezvous, watch, reply and copies what goes over such a connection; of kind first bytes of files. Byte 0 chooses
what a fuzz target reads, of kind the name of the file.

    scripts/fuzz_seeds.py            # writes them
    scripts/fuzz_seeds.py --check    # compares them with what is there
"""
import json, os, struct, sys

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/fuzz/seeds")
seeds = {}

SETS = {  # Megatron's dtype code, bytes of a token, lengths of sequences, first sequence of each document and the end
    "empty": (8, 2, [], [0]),
    "int32": (4, 4, [2, 6], [0, 2]),
    "int64": (5, 8, [1, 1, 1, 1], [0, 1, 1, 4]),
    "uint16": (8, 2, [3, 1, 0, 4], [0, 1, 2, 3, 4]),
}
for name, (code, width, lengths, documents) in SETS.items():
    pointers = [width * sum(lengths[:i]) for i in range(len(lengths))]
    n, d, words = len(lengths), len(documents), width * sum(lengths) // 4  # size of .bin in words of 4 bytes
    arrays = struct.pack(f"<{n}i{n}q{d}q", *lengths, *pointers, *documents)
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, n, d)
    seeds["idx/" + name] = struct.pack("<BH", 0, words) + header + arrays
    seeds["idx/arrays-" + name] = bytes([1, words, code, n, d, 1]) + arrays

# net/proof.h; of capital letters what is added to good bytes
hello = struct.pack("<8sII32s32s4Q", b"plaitprf", 1, 0, b"1.2", bytes(range(32)), 1, 2, 3, 4)
seeds["proof/server"] = b"s" + hello + bytes(32)
seeds["proof/client"] = b"c" + hello + struct.pack("<II32s", 0, 0, b"proof")
seeds["proof/refused"] = b"c" + hello + struct.pack("<II32s", 4, 0, b"")
seeds["proof/good-server"], seeds["proof/good-client"] = b"S", b"C"
seeds["proof/changed-client"] = b"C" + bytes(16) + b"\x03"

# comm/link_frame.h: a short message, one whose head comes alone, and its data; what a receiver answers
frame = lambda word, flags, number, count, tag, size: struct.pack("<HHIIIQQ", word, flags, number, count, 0, tag, size)
seeds["link/messages"] = b"o" + frame(1, 0, 0, 5, 3, 5) + b"short" + frame(1, 1, 1, 0, 4, 9) + frame(2, 0, 1, 9, 0, 0) + b"nine more"
seeds["link/long"] = b"o" + frame(1, 1, 0, 300, 3, 310) + bytes(300) + frame(2, 0, 0, 4, 0, 0) + b"data" + frame(2, 0, 0, 6, 0, 0) + b"datada"
seeds["link/answers"] = b"i" + frame(3, 0, 0, 0, 0, 0) + frame(4, 0, 1, 0, 0, 0) + frame(5, 0, 0, 9, 0, 1)

# comm/rendezvous_parse.h, comm/net_record.h
link = struct.pack("<4I16s104s", 4, 29502, 0, 0, bytes([127, 0, 0, 1]), b"/tmp/plait-wire-1/socket")
record = struct.pack("<64s40sQII", b"node1", b"0d1c", 7, 29501, 11) + link + b"ucx address"
seeds["rendezvous/greeting"] = b"g" + struct.pack("<8sIIQ", b"plaitnet", 2, 3, 7)
seeds["rendezvous/answer"] = b"a" + struct.pack("<II", 2, len(record))
seeds["rendezvous/place"] = b"p" + struct.pack("<64s40s4Q2I", b"machine", b"boot", 4026531836, 4026531839, 4026531840, 0, 0, 1)
seeds["rendezvous/record"] = b"r" + record
seeds["rendezvous/records"] = b"t" + 3 * (struct.pack("<Q", len(record)) + record)
seeds["rendezvous/reason"] = b"t" + struct.pack("<Q200s", 0, b"another process is rank 2 of this run already")

# comm/watch_frame.h
def frame(word, data=b""):
    return struct.pack("<II", word, len(data)) + data

pulse, notice = frame(1, struct.pack("<Q", 5 << 24 | 3 << 8 | 2 << 3 | 1)), b"rank 2 on node1 has died"
seeds["watch/introduction"] = b"i" + struct.pack("<II", 2, 0)
def told(silent, code, rank, blamed, key=b""):  # Notice: silent and an Error; ranks are (known, rank, host)
    return frame(2, struct.pack("<ii1024sii64sii64s64s", silent, code, notice, *rank, *blamed, key))

dead, nobody = (1, 2, b"node1"), (0, 0, b"")
seeds["watch/to_rank_0"] = b"0" + pulse + told(0, -1, dead, dead) + frame(3)
seeds["watch/from_rank_0"] = b"1" + pulse + told(1, -4, dead, nobody, b"run.comm") + frame(4)

# elastic/store_protocol.h, elastic/job_state.h
def reply(done, version, lease, value=b""):
    return struct.pack("<IIQQ", done, len(value), version, lease) + value

machine = dict(id="3a1c", host="node1", address="10.0.0.1", pid=4711, nproc=2, port=29500, node_rank=-1, first=0, ranks=2,
               copies_port=29600, ended=False, finished=False, leaving=False)
failure = dict(round=-1, weight=0, rank=0, status=0, blamed=-1, wrong_input=False, counted=False, machine="", host="",
               blamed_host="", how="", words="")
state = dict(changes=3, job="77aa", secret="5e" * 32, recipe="8e44", version="1", phase=1, ending=0, round=0, restarts=0, lost=0, lost_host="", stop=0, status=0,
             cause="start", asked=False, failure=failure, machines=[machine, dict(machine, id="5b20", first=2)])
greeting = struct.pack("<8sIIQ", b"plaitsto", 1, 0, 1)
seeds["reply/replies"] = b"r" + greeting + reply(1, 4, 0, b"value") + reply(0, 0, 0) + reply(1, 0, 9)
seeds["reply/state"] = b"s" + json.dumps(state, separators=(",", ":")).encode()

# elastic/copies_protocol.h. T: the target sets the checksums of frames.
def copy(step, rank, pieces, end):
    frames = struct.pack("<qqiiiiQ", step, sum(map(len, pieces)), rank, 4, 1, 0, 0)
    return frames + b"".join(struct.pack("<IIQ", len(p), 0, 0) + p for p in pieces) + struct.pack("<IIQ", 0, end, 0)

greeting = struct.pack("<8sII400s", b"plaitcpy", 1, 0, b"job.token.3")
seeds["copies/images"] = b"T" + greeting + copy(3, 1, [b"image", b" of a rank"], 1) + copy(6, 2, [b"image"], 2)
seeds["copies/frame"] = b"t" + greeting + copy(3, 1, [b"image"], 1)
seeds["copies/replies"] = b"r" + 2 * struct.pack("<qii", 7, 1, 1)

# checkpoint/memory_image.c: the text after the elements
box = {"name": "x", "dtype": "F32", "global": [2048], "offset": [1024], "local": [512], "at": 4096, "spare": False}
label = {"dir": "/nowhere", "keep": 2, "log": "/nowhere/metrics.jsonl", "extra": "{}"}
boxes = [box, dict(box, name="y", at=4096 + 2048, dtype="BF16", spare=True), dict(box, **{"local": [0]})]
seeds["image/text"] = json.dumps({"boxes": boxes, "label": label}, separators=(",", ":")).encode()

# base/file_kind.h, tokenizer/text_kind.h
kinds = dict(lines=b'{"text": "one"}\n{"text": "two"}\n', array=b'[{"text": "one"}]', pretty=b'{\n "text": "one"\n}\n', other=b'{"k": "one"}\n{"k": 2}\n',
             pointer=b"version https://git-lfs.github.com/spec/v1\n", gguf=b"GGUF\3\0\0\0", parquet=b"PAR1\x15\4", pdf=b"%PDF-1.4\n", xz=b"\xfd7zXZ\0",
             safetensors=struct.pack("<Q", 9) + b'{"a": {}}', sentencepiece=b"\n\x0e\n\5<unk>\x15\0\0\0\0", pickle=b"\x80\4\x95",
             tar=b"a.txt".ljust(257, b"\0") + b"ustar", utf16="text".encode("utf-16"), utf16le="text, text".encode("utf-16-le"),
             latin1="schöne Bücher für alle Mädchen".encode("latin1"), text="schöne Bücher für alle Mädchen".encode(), empty=b"")
for number, (name, data) in enumerate(kinds.items()):
    seeds["kind/" + name] = bytes([number % 5]) + data

wrong = 0
for name, data in seeds.items():
    path = os.path.join(folder, name)
    if "--check" not in sys.argv:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "wb").write(data)
    elif not os.path.exists(path) or open(path, "rb").read() != data:
        wrong += 1
        print(f"{path} differs")
sys.exit(wrong > 0)
