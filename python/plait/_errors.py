"""Errors: one class for each thing that a caller can do about it. The text is plait's sentence."""
import signal


class Error(Exception):
    """What plait says when something went wrong."""


class BadInput(Error, ValueError):
    """What was passed in cannot be: a recipe, a file, a name, a shape. Nothing was done."""


class Failed(Error, RuntimeError):
    """The machine refused: a disk, memory, a process that was killed. When the cause is gone, call again."""


class Interrupted(Error):
    """A signal asked training to stop. It has finished the step and saved; the same call resumes."""


for kind in (Error, BadInput, Failed, Interrupted):
    kind.__module__ = "plait"  # as users know them


def of_code(code, message):
    """An error code of the library (include/plait/error.h)."""
    kind = {-2: BadInput, -5: BadInput, -4: Interrupted}.get(code, Failed)
    return kind(message)


def _sentence(command, lines):
    """The last thing that the command said of itself; without one, the last line."""
    for start in (f"plait {command}: ", "plait: "):
        for line in reversed(lines):
            text = line[len(start):]
            if line.startswith(start) and not text.startswith(("warning: ", "note: ")):
                return text
    return lines[-1] if lines else ""


def of_status(status, command, text):
    """The exit status of a command, and what it has written to stderr."""
    lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return Failed(f"plait {command} was ended by {name}" + (f"; its last line was: {lines[-1]}" if lines else ""))
    if status == 75 or status > 128:  # it stopped in order; docs/launch.md has the table
        stopped = [line for line in lines if line.startswith("stopped by ")]
        return Interrupted(stopped[-1] if stopped else _sentence(command, lines))
    kind = BadInput if status == 2 else Failed
    return kind(_sentence(command, lines) or f"plait {command} ended with status {status}")
