"""train: a run in a process of its own, whose metrics come line by line."""
import atexit
import json
import subprocess
import threading
import weakref

from plait import _errors
from plait._command import keys_of, start

_running = weakref.WeakSet()


def train(recipe, force=False, log=None, **keys):
    """Trains as the recipe says, and gives the lines of run.dir/metrics.jsonl as dicts, each when it is written:

        for line in plait.train("my.yaml", mesh={"dp": 2}):
            if "loss" in line: print(line["step"], line["loss"])

    A run that has checkpoints resumes from the newest. Ctrl-C stops the run as ever: it finishes the step and saves, and
    then KeyboardInterrupt comes out of the loop. So does leaving the loop, as soon as the Training is closed or forgotten.
    log: a stream, as sys.stderr, that gets what plait train prints for people. force: resume although seed, data,
    tokenizer or model have changed.
    """
    return Training(recipe, force, log, keys)


class Training:
    """A run: iterate over its metrics, close() it, or use it in a with statement."""

    def __init__(self, recipe, force=False, log=None, keys=None):
        self.lines = []  # what plait train says for people
        self.summary = None  # the last line of the metrics, once it is there
        # In our process group: Ctrl-C on a terminal reaches the run even while the caller's code is at work.
        self._process = start("train", {"json": True, "force": force}, [recipe] + keys_of(keys or {}),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._listener = threading.Thread(target=_listen, args=(self._process.stderr, self.lines, log), daemon=True)
        self._listener.start()
        self._told = False  # how it has ended
        _running.add(self)

    def __iter__(self):
        return self

    def __next__(self):
        if self._told:
            raise StopIteration
        try:
            line = self._process.stdout.readline()
            if line:
                return self._take(line)
            self._wait()
        except KeyboardInterrupt:
            self.close()
            raise
        self._told = True
        if self._process.returncode:
            raise _errors.of_status(self._process.returncode, "train", "\n".join(self.lines))
        raise StopIteration

    def _take(self, line):
        values = {key: float(value) if value in ("inf", "-inf") else value for key, value in json.loads(line).items()}
        if "summary" in values:
            self.summary = values
        return values

    def _wait(self):
        self._process.wait()
        self._listener.join()
        self._process.stdout.close()

    def close(self):
        """Stops the run, if it still trains: it finishes the step, saves, and can be resumed. Returns when it has ended."""
        if self._told or self._process.stdout.closed:
            return
        self._told = True
        try:
            # After Ctrl-C on a terminal the run has a SIGINT already. A second would end it at once; SIGTERM changes nothing then.
            self._process.terminate()
            for line in self._process.stdout:
                self._take(line)
            self._wait()
        except KeyboardInterrupt:  # the second one: without saving
            self._process.kill()
            self._wait()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __del__(self):
        if hasattr(self, "_told"):
            self.close()


def _listen(stream, lines, log):
    with stream:
        for line in stream:
            line = line.decode(errors="replace")
            lines.append(line.rstrip("\n"))
            if log:
                log.write(line)
                log.flush()


@atexit.register
def _close_all():
    for training in list(_running):
        training.close()
