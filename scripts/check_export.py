#!/usr/bin/env python3
"""Does transformers load a folder that plait has exported, and continue a text as plait does?

usage: check_export.py FOLDER [--plait build/plait] [--prompt TEXT]… [--max-tokens N]

Loads FOLDER with AutoModelForCausalLM and AutoTokenizer, generates greedily, and compares with plait generate --temperature 0:
the ids of the prompt, the text, and where it ends. Where two next tokens are all but equally likely both are right, and the text is
compared up to there. Exit status 0 when all is the same, 1 when not. Needs torch and transformers (tested with transformers 5).
"""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is in the folder
import torch
import transformers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
NEAR = 1e-3  # of two logits in fp32: within rounding


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="what plait export wrote")
    parser.add_argument("--plait", default=os.path.join(ROOT, "build", "plait"))
    parser.add_argument("--prompt", action="append", help="may be given several times")
    parser.add_argument("--max-tokens", type=int, default=60)
    return parser.parse_args()


def plait_text(options, prompt, count):
    command = [options.plait, "generate", options.folder, "--temperature", "0", "--prompt", prompt, "--max-tokens", str(count), "--verbose"]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.decode()}")
    return done.stdout.decode(errors="replace").removesuffix("\n"), "end of the text" in done.stderr.decode()


def plait_ids(options, text):
    """The ids of a text, without BOS."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        command = [options.plait, "tokenize", "--tokenizer", options.folder, "--eot", "none", "--out", "ids", "text"]
        command[0], command[3] = os.path.abspath(command[0]), os.path.abspath(command[3])
        done = subprocess.run(command, cwd=folder, capture_output=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.decode()}")
        with open(os.path.join(folder, "ids.idx"), "rb") as file:
            width = 2 if file.read(18)[17] == 8 else 4  # uint16, else int32
        data = open(os.path.join(folder, "ids.bin"), "rb").read()
        return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]


def is_near(model, ids):
    """Are the two most likely tokens after `ids` as likely as each other?"""
    with torch.no_grad():
        best = model(ids[None]).logits[0, -1].topk(2).values
    return float(best[0] - best[1]) < NEAR


def compare(options, model, tokenizer, prompt):
    ids, found = tokenizer(prompt, add_special_tokens=False)["input_ids"], plait_ids(options, prompt)
    if ids != found:
        print(f"OTHER {prompt!r}: {type(tokenizer).__name__} of transformers makes other ids of it:\n  transformers {ids}\n  plait        {found}")
        if type(tokenizer).__name__ not in ("TokenizersBackend", "PreTrainedTokenizerFast"):
            print("  (that class splits text in its own way; PreTrainedTokenizerFast.from_pretrained does as tokenizer.json says: docs/text.md)")
        return False
    inputs = tokenizer(prompt, return_tensors="pt")
    start = inputs["input_ids"].shape[1]
    count = max(1, min(options.max_tokens, model.config.max_position_embeddings - start))
    with torch.no_grad():
        output = model.generate(**inputs, max_new_tokens=count, do_sample=False)[0]
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    ended = int(output[-1]) in ends
    new = output[start:-1] if ended else output[start:]
    expected = prompt + tokenizer.decode(torch.cat([inputs["input_ids"][0], new]), clean_up_tokenization_spaces=False)[
        len(tokenizer.decode(inputs["input_ids"][0], clean_up_tokenization_spaces=False)) :]
    found, found_end = plait_text(options, prompt, count)
    if found == expected and found_end == ended:
        print(f"same  {prompt!r}: {len(new)} tokens{', then the end of the text' if ended else ''}: {expected[len(prompt):][:60]!r}")
        return True
    for n in range(start, len(output)):  # the first token whose text is not there may be as likely as another
        text = prompt + tokenizer.decode(output[start : n + 1], clean_up_tokenization_spaces=False)
        if not found.startswith(text) and is_near(model, output[:n]):
            print(f"same  {prompt!r}: {n - start} tokens, then two that are equally likely")
            return True
        if not found.startswith(text):
            break
    print(f"OTHER {prompt!r}:\n  transformers {expected!r}{' (ended)' if ended else ''}\n  plait        {found!r}{' (ended)' if found_end else ''}")
    return False


def main():
    options = arguments()
    model = transformers.AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.folder)
    model.eval()
    print(f"transformers {transformers.__version__}: {type(model).__name__}, {type(tokenizer).__name__}, "
          f"eos {model.generation_config.eos_token_id}, bos {model.generation_config.bos_token_id}")
    prompts = options.prompt or ["The ", "Once upon a time", "int main(", "1, 2, 3,"]
    results = [compare(options, model, tokenizer, prompt) for prompt in prompts]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
