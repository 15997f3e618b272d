#!/usr/bin/env python3
"""Makes tests/tokenizer/folders/: the small files of Hugging Face folders, as real families have them, with a vocabulary of a few
hundred tokens; and what AutoTokenizer gives for a text.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install transformers tokenizers sentencepiece
    /tmp/venv/bin/python scripts/golden_folders.py

The keys of tokenizer_config.json, config.json and generation_config.json that say something about begin and end are those of the
families' repositories; ids are those of the small vocabularies. The tests read the files only; they need no Python.
"""
import functools
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from golden_tokenizer import HERE, LLAMA3, LLAMA3_DIGIT, byte_level, with_fallback  # noqa: E402
from tokenizers import Regex, decoders, normalizers, pre_tokenizers, processors  # noqa: E402

OUT = os.path.join(HERE, "..", "tests", "tokenizer", "folders")
TEXT = "The river runs past the mill; we've 37."
ByteLevel, Split, Sequence = pre_tokenizers.ByteLevel, pre_tokenizers.Split, pre_tokenizers.Sequence


def added(text, **flags):
    return {"__type": "AddedToken", "content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, **flags}


def template(begin, end=None):
    names = [t for t in (begin, end) if t]

    def make(ids):
        return processors.TemplateProcessing(
            single=" ".join(["%s:0" % begin] * bool(begin) + ["$A:0"] + ["%s:0" % end] * bool(end)), pair="$A:0 $B:1",
            special_tokens=[(t, ids[t]) for t in names])
    return make


@functools.cache  # training breaks ties as it likes: a family has one vocabulary
def pieces(specials, begin):
    """As SentencePiece's models are in tokenizer.json: byte tokens, ▁ for spaces."""
    t = with_fallback(420, alphabet=60)
    model = json.loads(t.to_str())
    rename = dict(zip(["<unk>", "<s>", "</s>"], specials))
    model["model"]["vocab"] = {rename.get(k, k): v for k, v in model["model"]["vocab"].items()}
    model["model"]["unk_token"] = rename["<unk>"]
    for token in model["added_tokens"]:
        token["content"] = rename[token["content"]]
    model["post_processor"] = None
    t = type(t).from_str(json.dumps(model))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = template(begin)({begin: specials.index(begin)} if begin else {})
    return t


def folders():
    """name, tokenizer, model_type, tokenizer_config, eos_token_id of config.json and of generation_config.json (None: none)"""
    @functools.cache
    def gpt2():
        t = byte_level(ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 320)
        t.post_processor = processors.ByteLevel(trim_offsets=False)
        return t

    @functools.cache
    def llama3():
        specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        t = byte_level(Sequence([Split(Regex(LLAMA3), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]), specials, 320,
                       ignore_merges=True)
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template("<|begin_of_text|>")({"<|begin_of_text|>": 0})])
        return t

    @functools.cache
    def qwen():
        t = byte_level(Sequence([Split(Regex(LLAMA3_DIGIT), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]),
                       ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], 320)
        t.normalizer = normalizers.NFC()
        t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
        return t

    yield "gpt2", gpt2(), "gpt2", {"model_max_length": 1024}, 0, 0
    huge = 1000000000000000019884624838656
    llama2 = {"add_bos_token": True, "add_eos_token": False, "bos_token": added("<s>"), "clean_up_tokenization_spaces": False,
              "eos_token": added("</s>"), "legacy": False, "model_max_length": huge, "pad_token": None, "padding_side": "right",
              "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer", "unk_token": added("<unk>")}
    yield "llama2", pieces(("<unk>", "<s>", "</s>"), "<s>"), "llama", llama2, 2, 2
    yield "llama2-chat", pieces(("<unk>", "<s>", "</s>"), "<s>"), "llama", dict(llama2, chat_template="{{ messages }}"), 2, 2
    llama3_base = {"bos_token": "<|begin_of_text|>", "clean_up_tokenization_spaces": True, "eos_token": "<|end_of_text|>",
                   "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 131072,
                   "tokenizer_class": "PreTrainedTokenizerFast"}
    yield "llama3", llama3(), "llama", llama3_base, 1, 1
    yield "llama3-instruct", llama3(), "llama", dict(llama3_base, eos_token="<|eot_id|>"), [1, 2, 5], [1, 2, 5]
    qwen2 = {"add_prefix_space": False, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "bos_token": None,
             "clean_up_tokenization_spaces": False, "eos_token": "<|endoftext|>", "errors": "replace", "model_max_length": 32768,
             "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    yield "qwen2", qwen(), "qwen2", qwen2, 0, 0
    yield "qwen2-instruct", qwen(), "qwen2", dict(qwen2, eos_token="<|im_end|>"), 2, [2, 0]
    qwen3 = dict(qwen2, add_bos_token=False, extra_special_tokens={})
    yield "qwen3-base", qwen(), "qwen3", qwen3, 0, 0
    yield "qwen3", qwen(), "qwen3", dict(qwen3, eos_token="<|im_end|>"), 2, [2, 0]
    mistral = dict(llama2, additional_special_tokens=[], spaces_between_special_tokens=False, use_default_system_prompt=False)
    yield "mistral", pieces(("<unk>", "<s>", "</s>"), "<s>"), "mistral", mistral, 2, 2
    yield "mistral-instruct", pieces(("<unk>", "<s>", "</s>"), "<s>"), "mistral", dict(mistral, chat_template="{{ bos_token }}"), 2, 2
    gemma = {"add_bos_token": True, "add_eos_token": False, "bos_token": added("<bos>"), "eos_token": added("<eos>"),
             "model_max_length": huge, "pad_token": added("<pad>"), "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": added("<pad>")}
    yield "gemma", pieces(("<pad>", "<eos>", "<bos>"), "<bos>"), "llama", gemma, 1, 1
    phi3 = {"add_bos_token": False, "add_eos_token": False, "bos_token": added("<s>"), "eos_token": added("</s>", rstrip=True),
            "model_max_length": 4096, "pad_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": added("<unk>")}
    yield "phi3", pieces(("<unk>", "<s>", "</s>"), None), "llama", phi3, 2, [2, 1]
    smol = {"add_prefix_space": False, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "clean_up_tokenization_spaces": False,
            "model_max_length": 8192, "pad_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<|endoftext|>",
            "vocab_size": 49152}
    yield "smollm2-instruct", qwen(), "llama", smol, 2, 2
    yield "no-config", llama3(), "llama", None, [5, 1], None


def write(name, tokenizer, model_type, config, eos, stops):
    from transformers import AutoTokenizer
    folder = os.path.join(OUT, name)
    os.makedirs(folder)

    def put(file, content):
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            json.dump(content, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
    put("tokenizer.json", json.loads(tokenizer.to_str()))
    if config is not None:
        put("tokenizer_config.json", config)
    put("config.json", {"model_type": model_type, "eos_token_id": eos})
    if stops is not None:
        put("generation_config.json", {"_from_model_config": True, "eos_token_id": stops})
    auto = AutoTokenizer.from_pretrained(folder)
    end = auto.eos_token_id
    if end is None:  # no file of the tokenizer says it: config.json does
        end = eos[0] if isinstance(eos, list) else eos
    return {"ids": auto(TEXT)["input_ids"], "end": end}


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    cases = {"text": TEXT, "folders": {}}
    for case in folders():
        cases["folders"][case[0]] = write(*case)
        print(case[0], cases["folders"][case[0]])
    with open(os.path.join(OUT, "cases.json"), "w", encoding="utf-8") as f:
        json.dump(cases, f, separators=(",", ":"))
        f.write("\n")
