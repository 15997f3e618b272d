"""generate(stream=True): a text piece by piece, while the command draws it in a process of its own."""
import codecs
import os
import subprocess
import sys
import threading

from plait import _errors
from plait._command import start
from plait._training import _listen


class Generation:
    """What follows a prompt: iterate over its pieces, close() it, or use it in a with statement."""

    def __init__(self, prompt, options, operands):
        self._lines = []  # what the command says for people
        self._process = start("generate", options, operands, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._listener = threading.Thread(target=_listen, args=(self._process.stderr, self._lines, None), daemon=True)
        self._listener.start()
        self._skip = len(os.fsencode(prompt))  # the command prints the prompt first
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._kept = ""  # a newline at the end may be the command's own, which ends its line
        self._ended = False

    def __iter__(self):
        return self

    def __next__(self):
        while not self._ended:
            try:
                data = os.read(self._process.stdout.fileno(), 65536)
            except BaseException:  # Ctrl-C, too
                self.close()
                raise
            if not data:
                return self._end()
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            text = self._take(self._decoder.decode(data[skipped:]))
            if text:
                return text
        raise StopIteration

    def _take(self, text):
        text = self._kept + text
        self._kept = "\n" if text.endswith("\n") else ""
        return text[:-1] if self._kept else text

    def _end(self):
        text = self._decoder.decode(b"", final=True)  # bytes of a character that was not finished
        self._wait()
        if self._process.returncode:
            raise _errors.of_status(self._process.returncode, "generate", "\n".join(self._lines))
        for line in self._lines:
            sys.stderr.write(line + "\n")
        if text:
            return self._kept + text
        raise StopIteration

    def _wait(self):
        self._ended = True
        self._process.wait()
        self._listener.join()
        self._process.stdout.close()

    def close(self):
        """Ends the command, if it still draws."""
        if not self._ended:
            self._process.terminate()
            self._wait()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __del__(self):
        if hasattr(self, "_ended"):
            self.close()
