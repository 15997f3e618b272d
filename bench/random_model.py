"""Hugging Face folders of Llamas with random weights in bf16, for measurements: write_model(folder, SHAPES["S"])."""
import collections, json, os, struct

Shape = collections.namedtuple("Shape", "layers width heads keys wide words tied")

SHAPES = {  # keys: heads that have keys of their own; wide: of the feed-forward part; words: of the vocabulary
    "S": Shape(30, 576, 9, 3, 1536, 49152, True),
    "T": Shape(22, 2048, 32, 4, 5632, 32000, False),
    "tiny": Shape(2, 64, 4, 2, 128, 320, True),
}


def byte_tokens():
    """The characters that stand for bytes in byte-level vocabularies, in the order of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


def parameters(s):
    """Names and shapes, in the order of the file."""
    keys = s.width // s.heads * s.keys
    shapes = {"model.embed_tokens.weight": (s.words, s.width), "model.norm.weight": (s.width,)}
    if not s.tied: shapes["lm_head.weight"] = (s.words, s.width)
    for i in range(s.layers):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in {
            "input_layernorm": (s.width,), "post_attention_layernorm": (s.width,), "self_attn.q_proj": (s.width, s.width),
            "self_attn.k_proj": (keys, s.width), "self_attn.v_proj": (keys, s.width), "self_attn.o_proj": (s.width, s.width),
            "mlp.gate_proj": (s.wide, s.width), "mlp.up_proj": (s.wide, s.width), "mlp.down_proj": (s.width, s.wide)}.items()}
    return shapes


def read_bytes(s):
    """Bytes of the weights that a decode step reads: all matrices once, but for the table of words, of which it looks rows up."""
    return sum(2 * shape[0] * shape[1] for name, shape in parameters(s).items()
               if len(shape) > 1 and (s.tied or "embed" not in name))


def write_weights(path, shapes):
    header, at = {}, 0
    for name, shape in shapes.items():
        bytes_ = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + bytes_]}
        at += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    high = bytes(0x3C if b & 1 else 0xBC for b in range(256))  # ±0.008 to 0.03
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            if len(shape) == 1:
                f.write(b"\x80\x3f" * shape[0])
                continue
            n = shape[0] * shape[1]
            numbers = bytearray(2 * n)
            numbers[0::2], numbers[1::2] = os.urandom(n), os.urandom(n).translate(high)
            f.write(numbers)


def write_model(folder, s):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": s.width, "intermediate_size": s.wide,
              "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "num_key_value_heads": s.keys,
              "head_dim": s.width // s.heads, "max_position_embeddings": 4096, "vocab_size": s.words, "rms_norm_eps": 1e-5,
              "hidden_act": "silu", "tie_word_embeddings": s.tied, "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False,
              "bos_token_id": 1, "eos_token_id": 2, "dtype": "bfloat16"}
    write_weights(os.path.join(folder, "model.safetensors"), parameters(s))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:  # a token for each byte
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": level, "post_processor": None, "decoder": level,
                   "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                             "vocab": {c: i + 3 for i, c in enumerate(byte_tokens())}, "merges": []}}, f)
