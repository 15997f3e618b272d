"""plan, evaluate, generate and tokenize: the commands, their options as arguments and their results as objects."""
import json
import os

from plait._command import keys_of, run
from plait._generation import Generation


def plan(recipe, **keys):
    """What training would take, as a dict: memory of each pipeline rank by what lies there, FLOPs, seconds.

    It reads no data and takes no memory, so it answers for machines that you do not have: run={"cluster": "h200-node"}.
    """
    return json.loads(run("plan", {"json": True}, [recipe] + keys_of(keys)))


def evaluate(model, data=None, tokenizer=None, seq_len=None, limit=None, across_documents=False, threads=None, **keys):
    """Loss, perplexity and bits per byte of a model on a corpus, as a dict.

    model: a checkpoint, a run (its newest checkpoint) or a Hugging Face folder. data: a prefix that tokenize has written;
    without it, what the run holds out. limit: the most sequences of it.
    """
    options = {"json": True, "progress": 0, "data": data, "tokenizer": tokenizer, "seq_len": seq_len, "limit": limit,
               "across_documents": across_documents, "threads": threads}
    return json.loads(run("eval", options, [model] + keys_of(keys)))


def generate(model, prompt, max_tokens=None, temperature=None, top_k=None, top_p=None, seed=None, ignore_eos=False,
             window=None, tokenizer=None, threads=None, stream=False, **keys):
    """The prompt and its continuation by a model: a checkpoint, a run or a Hugging Face folder. temperature=0: always the
    most likely token. The same seed gives the same text.

    stream=True: an iterator over pieces of the continuation instead, each as soon as it is drawn:

        for piece in plait.generate("runs/my", "Once upon", stream=True): print(piece, end="", flush=True)
    """
    options = {"prompt": prompt, "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
               "seed": seed, "ignore_eos": ignore_eos, "window": window, "tokenizer": tokenizer, "threads": threads}
    if stream:
        return Generation(prompt, options, [model] + keys_of(keys))
    text = run("generate", options, [model] + keys_of(keys)).decode(errors="replace")
    return text[:-1] if text.endswith("\n") else text  # the command ends its line


def tokenize(files, out, tokenizer=None, train=False, vocab_size=None, **options):
    """Turns text files into out.bin and out.idx, which recipes name as out; with train=True, into a tokenizer.json.

    files: one path, or several. options: those of plait tokenize, as jsonl=True, force=True, eot="</s>", threads=4.
    Returns the sentence that the command prints: how many documents, tokens and bytes.
    """
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    options = dict(options, out=out, tokenizer=tokenizer, train=train, vocab_size=vocab_size)
    return run("tokenize", options, list(files)).decode(errors="replace").strip()
