#!/usr/bin/env python3
"""Makes tests/fuzz/seeds/idx again: small indexed datasets, whole (byte 0 is 0) and as arrays (byte 0 is 1); see fuzz_idx.c.

    scripts/fuzz_seeds.py            # writes them
    scripts/fuzz_seeds.py --check    # compares them with what is there
"""
import os, struct, sys

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/fuzz/seeds/idx")
SETS = {  # Megatron's dtype code, bytes of a token, lengths of sequences, first sequence of each document and the end
    "empty": (8, 2, [], [0]),
    "int32": (4, 4, [2, 6], [0, 2]),
    "int64": (5, 8, [1, 1, 1, 1], [0, 1, 1, 4]),
    "uint16": (8, 2, [3, 1, 0, 4], [0, 1, 2, 3, 4]),
}

wrong = 0
for name, (code, width, lengths, documents) in SETS.items():
    pointers = [width * sum(lengths[:i]) for i in range(len(lengths))]
    n, d, words = len(lengths), len(documents), width * sum(lengths) // 4  # size of .bin in words of 4 bytes
    arrays = struct.pack(f"<{n}i{n}q{d}q", *lengths, *pointers, *documents)
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, n, d)
    for path, data in ((name, struct.pack("<BH", 0, words) + header + arrays),
                       ("arrays-" + name, bytes([1, words, code, n, d, 1]) + arrays)):
        path = os.path.join(folder, path)
        if "--check" not in sys.argv:
            open(path, "wb").write(data)
        elif open(path, "rb").read() != data:
            wrong += 1
            print(f"{path} differs")
sys.exit(wrong > 0)
