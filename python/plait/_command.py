"""The program `plait` of this package, and how its command line is written."""
import json
import os
import subprocess
import sys

from plait import _errors

FOLDER = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(FOLDER, "bin", "plait")
SHARE = os.path.join(FOLDER, "share", "plait")


def shipped(name):
    """The path of a file that comes with plait: shipped("recipes/demo.yaml"), shipped("models/gpt-small.json")."""
    path = os.path.join(SHARE, *name.split("/"))
    if os.path.exists(path):
        return path
    folders = ", ".join(sorted(folder for folder in os.listdir(SHARE) if os.path.isdir(os.path.join(SHARE, folder))))
    raise _errors.BadInput(f"plait comes with no file \"{name}\"; it has the folders {folders}, as in \"recipes/demo.yaml\"")


def _value(value):
    if isinstance(value, str):
        return value  # as on the command line
    if isinstance(value, os.PathLike):
        value = os.fspath(value)  # in quotes: a name may have what means something in YAML
    return json.dumps(value, ensure_ascii=False, default=lambda other: other.item() if hasattr(other, "item") else str(other))


def keys_of(keys, before=""):
    """Keys of a recipe as words: {"mesh": {"dp": 2}} is mesh.dp=2."""
    words = []
    for name, value in keys.items():
        if isinstance(value, dict) and value:
            words += keys_of(value, f"{before}{name}.")
        else:
            words.append(f"{before}{name}={_value(value)}")
    return words


def options_of(options):
    """Options of a command as words: max_tokens=5 is --max-tokens=5; None and False are left out."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        word = "--" + name.replace("_", "-")
        words.append(word if value is True else f"{word}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return words


def start(command, options, operands, **pipes):
    words = [PROGRAM, command] + options_of(options) + ["--"] + [os.fspath(word) for word in operands]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, **pipes)


def run(command, options, operands):
    """What the command prints on stdout, as bytes. Its notes go to sys.stderr."""
    process = start(command, options, operands, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, text = process.communicate()
    except BaseException:  # Ctrl-C, too: what it was writing is whole or not there
        process.terminate()
        process.communicate()
        raise
    text = text.decode(errors="replace")
    if process.returncode:
        raise _errors.of_status(process.returncode, command, text)
    if text:
        sys.stderr.write(text)
    return out
