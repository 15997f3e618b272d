"""What the module `plait` of a wheel does, in the folder of tests/train/harness.sh. Arguments: the parts to check, or none for all."""
import json
import math
import os
import signal
import subprocess
import sys
import time

import plait

keys = {"schedule": {"steps": 6}, "checkpoint": {"every": 2, "keep": 3}, "eval": {"every": 3}, "run": {"dir": "py"}}


def refused(kind, says, function, *words, **more):
    try:
        function(*words, **more)
    except kind as error:
        assert says in str(error), str(error)
        assert "\n" not in str(error), str(error)
        return error
    raise AssertionError(f"{function.__name__} was not refused ({says})")


def steps(lines):
    return [line["step"] for line in lines if "loss" in line]


def train():
    lines = list(plait.train("recipe.yaml", **keys))
    assert steps(lines) == [1, 2, 3, 4, 5, 6], steps(lines)
    with open("py/metrics.jsonl") as file:
        assert lines == [json.loads(line) for line in file]
    assert any("eval_loss" in line for line in lines) and lines[-1]["summary"] == "finished"
    # it resumes, and says for people what plait train says
    more = plait.train("recipe.yaml", **{**keys, "schedule": {"steps": 8}})
    assert steps(more) == [7, 8]
    assert more.summary["final_loss"] > 0 and any(line.startswith("resuming from") for line in more.lines), more.lines
    # nothing is left to do
    assert list(plait.train("recipe.yaml", **{**keys, "schedule": {"steps": 8}})) == []


def errors():
    error = refused(plait.BadInput, "batch.mikro: unknown key; did you mean batch.micro?", list,
                    plait.train("recipe.yaml", batch={"mikro": 2}))
    assert isinstance(error, plait.Error) and isinstance(error, ValueError)
    refused(plait.BadInput, "nowhere.yaml: cannot be read", plait.plan, "nowhere.yaml")
    refused(plait.BadInput, "give the folder", plait.generate, "recipe.yaml", "x")
    refused(plait.BadInput, "nowhere", plait.evaluate, "nowhere")
    refused(plait.BadInput, "nowhere", plait.tokenize, "nowhere.txt", "out", tokenizer="tokenizer.json")
    refused(plait.BadInput, "nowhere.json", plait.Tokenizer, "nowhere.json")
    refused(plait.BadInput, "nowhere does not exist", plait.Checkpoint, "nowhere")
    refused(plait.BadInput, "recipes/demo.yaml", plait.shipped, "recipes/nothing.yaml")


def plan():
    found = plait.plan("recipe.yaml", mesh={"dp": 2, "pp": 2}, parallel={"zero": 1})
    assert found["ranks"] == 4 and len(found["memory"]) == 2 and found["mesh"]["pp"] == 2
    rank = found["memory"][0]
    assert rank["total"] == rank["arena"] + rank["loader"] + rank["bound_instructions"] + rank["checkpoint_copy"]
    assert found["parameters"] > 0 and found["flops_per_step"] > 0
    there = plait.plan(plait.shipped("recipes/7b.yaml"), run={"cluster": "dgx-a100-superpod"})
    assert there["step_seconds"] > 0 and there["time_from"].startswith("simulated on DGX A100"), there


def evaluate():
    found = plait.evaluate("py", limit=8)
    assert abs(found["perplexity"] - math.exp(found["loss"])) < 1e-9 * found["perplexity"] and found["sequences"] == 8
    one, two = plait.evaluate("py", "valid", limit=4), plait.evaluate("py", "valid", limit=4, mesh={"dp": 2})
    assert abs(one["loss"] - two["loss"]) < 1e-5


def generate():
    text = plait.generate("py", "ba do", max_tokens=5, temperature=0)
    assert text.startswith("ba do") and not text.endswith("\n")
    assert text == plait.generate("py", "ba do", max_tokens=5, temperature=0)
    assert plait.generate("py", "-- lu", max_tokens=0) == "-- lu"
    pieces = list(plait.generate("py", "ba do", max_tokens=5, temperature=0, stream=True))
    assert len(pieces) > 1 and "ba do" + "".join(pieces) == text
    with plait.generate("py", "ba do", max_tokens=100000, ignore_eos=True, stream=True) as endless:
        assert next(endless)
    assert list(endless) == []
    refused(plait.BadInput, "give the folder", lambda: list(plait.generate("recipe.yaml", "x", stream=True)))


def tokenize():
    said = plait.tokenize(["text-00.txt", "text-01.txt"], "made", tokenizer="tokenizer.json")
    assert said.startswith("made: 2 documents"), said
    refused(plait.BadInput, "exists already", plait.tokenize, "text-00.txt", "made", tokenizer="tokenizer.json")
    plait.tokenize("text-00.txt", "small.json", train=True, vocab_size=280)
    small = plait.Tokenizer("small.json")
    text = "lu me\n\u00e9 \U0001f600"
    ids = small.encode(text)
    assert len(small) == 280 and small.decode(ids) == text and all(0 <= i < 280 for i in ids)
    assert small.decode_bytes(small.encode(b"a\xff\x00b")) == b"a\xff\x00b"
    assert small.encode("") == [] and small.decode([]) == ""
    refused(plait.BadInput, "99999", small.decode, [99999])


def arrays():
    import numpy
    with plait.Checkpoint("py") as newest:
        assert newest.step == 8 and newest.path.endswith("py/checkpoints/step-8") and newest.extra["tokens"] > 0
        name = "layer.0.ffn.up.weight"
        array = newest[name]
        assert array.shape == newest.shape(name) and array.dtype == numpy.float32 and newest.dtype(name) == "fp32"
        assert numpy.isfinite(array).all() and array.std() > 0
        # ranks have written it in parts: it is what one rank would have, which the exported file has too
        subprocess.run([sys.executable, "-m", "plait", "export", "py", "--out", "exported"], check=True, stdout=subprocess.DEVNULL)
        with open("exported/model.safetensors", "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
            data = file.read()
        stored = header["transformer.wte.weight"]
        begin, end = stored["data_offsets"]
        other = numpy.frombuffer(data[begin:end], numpy.float32).reshape(stored["shape"])
        assert any(newest.shape(n) == other.shape and (newest[n] == other).all() for n in newest), list(newest)
        scalars = [n for n in newest if newest.shape(n) == ()]
        assert all(newest[n].shape == () for n in scalars)
        try:
            newest["nothing"]
        except KeyError:
            pass
        else:
            raise AssertionError("a tensor that is not there")
    assert plait.Checkpoint("py/checkpoints/step-6").step == 6


LONG = {**keys, "schedule": {"steps": 100000}, "checkpoint": {"every": 0}, "eval": {"every": 0}}


def saved(folder):
    return sorted(name for name in os.listdir(folder + "/checkpoints") if name.startswith("step-"))


def stopping():
    # who leaves the loop stops the run, which saves
    for line in plait.train("recipe.yaml", **{**LONG, "run": {"dir": "left"}}):
        if line.get("step") == 3:
            break
    assert len(saved("left")) == 1, saved("left")
    # a signal from outside
    run = plait.train("recipe.yaml", **{**LONG, "run": {"dir": "signalled"}})
    next(run)
    run._process.send_signal(signal.SIGUSR1)
    error = refused(plait.Interrupted, "stopped by SIGUSR1 after step", list, run)
    assert len(saved("signalled")) == 1 and "is saved" in str(error)
    # a process that is killed
    run = plait.train("recipe.yaml", **{**LONG, "run": {"dir": "killed"}})
    next(run)
    run._process.kill()
    refused(plait.Failed, "plait train was ended by SIGKILL", list, run)


CHILD = """
import plait, sys
try:
    for line in plait.train("recipe.yaml", schedule={"steps": 100000}, checkpoint={"every": 0}, eval={"every": 0}, run={"dir": sys.argv[1]}):
        print(line["step"], flush=True)
        if sys.argv[2:]: input()
except KeyboardInterrupt:
    print("interrupted")
"""


def ctrl_c():
    # alone: a program that signals this process only; group: a terminal, which signals the run too
    for way in ("alone", "group"):
        child = subprocess.Popen([sys.executable, "-c", CHILD, way], stdout=subprocess.PIPE, start_new_session=True, universal_newlines=True)
        for _ in range(3):
            child.stdout.readline()
        if way == "group":
            os.killpg(child.pid, signal.SIGINT)
        else:
            child.send_signal(signal.SIGINT)
        out = child.communicate(timeout=60)[0]
        assert child.returncode == 0 and out.splitlines()[-1] == "interrupted", (child.returncode, out)
        step = int(saved(way)[0].split("-")[1])
        with open(way + "/metrics.jsonl") as file:
            summary = json.loads(file.readlines()[-1])
        assert step >= 3 and summary["step"] == step and summary["summary"].startswith("stopped by SIG"), summary
        assert steps(plait.train("recipe.yaml", schedule={"steps": step + 2}, eval={"every": 0}, run={"dir": way})) == [step + 1, step + 2]
    # a process that is killed leaves no run: nobody reads its lines, so it saves and ends
    child = subprocess.Popen([sys.executable, "-c", CHILD, "orphan", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    child.kill()
    child.communicate()
    end = time.time() + 60
    while not (os.path.isdir("orphan/checkpoints") and saved("orphan")):
        assert time.time() < end, "the run of a dead process trains on"
        time.sleep(0.05)


if __name__ == "__main__":
    for part in sys.argv[1:] or ["train", "errors", "plan", "evaluate", "generate", "tokenize", "stopping", "ctrl_c", "arrays"]:
        began = time.time()
        globals()[part]()
        print(f"{part}: {time.time() - began:.1f} s", flush=True)
