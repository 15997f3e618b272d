"""plait trains transformers: one recipe, any number of ranks.

    import plait

    for line in plait.train("my.yaml", schedule={"steps": 100}, run={"dir": "runs/my"}):
        print(line.get("step"), line.get("loss"))
    print(plait.evaluate("runs/my")["perplexity"])
    print(plait.generate("runs/my", "Once upon a time", max_tokens=50))

train, plan, evaluate, generate and tokenize do what the commands of the same names do (plait eval for evaluate). Keys of a
recipe are given as keywords: mesh={"dp": 2} is mesh.dp=2 of the command line. Tokenizer has ids in this process, and
Checkpoint has tensors as numpy arrays. What goes wrong is an Error with plait's sentence. docs/python.md explains all of it.
"""
from plait._checkpoint import Checkpoint
from plait._command import shipped
from plait._commands import evaluate, generate, plan, tokenize
from plait._errors import BadInput, Error, Failed, Interrupted
from plait._tokenizer import Tokenizer
from plait._training import Training, train

__all__ = ["train", "plan", "evaluate", "generate", "tokenize", "Training", "Tokenizer", "Checkpoint", "shipped",
           "Error", "BadInput", "Failed", "Interrupted"]


def __getattr__(name):
    if name == "__version__":  # asked of the library only when somebody wants to know
        from plait._library import library
        return library().plait_version().decode()
    raise AttributeError(f"module 'plait' has no attribute {name!r}")
