"""Text and ids, in this process."""
import ctypes
import threading

from plait._library import Handle, call, library


class Tokenizer:
    """A tokenizer.json, or a folder that has one. Threads may share it."""

    def __init__(self, path):
        self._handle = Handle("plait_tokenizer_open", "plait_tokenizer_close", path)
        self._lock = threading.Lock()  # a call's result belongs to the tokenizer until the next

    def __len__(self):
        """The largest id + 1."""
        return library().plait_tokenizer_size(self._handle.pointer)

    def encode(self, text, special=False):
        """The ids of a text (str or bytes) as a list. special: with what the tokenizer puts around it (BOS, EOS)."""
        text = text.encode(errors="surrogateescape") if isinstance(text, str) else bytes(text)
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int64()
        with self._lock:
            call("plait_tokenizer_encode", self._handle.pointer, text, len(text), int(special), ctypes.byref(ids),
                 ctypes.byref(count))
            return ids[:count.value]

    def decode_bytes(self, ids, special=False):
        """The bytes that ids stand for. special: with the text of special tokens."""
        ids = [int(i) for i in ids]
        array = (ctypes.c_int32 * len(ids))(*ids)
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self._lock:
            call("plait_tokenizer_decode", self._handle.pointer, array, len(ids), int(special), ctypes.byref(text),
                 ctypes.byref(size))
            return ctypes.string_at(text, size.value)

    def decode(self, ids, special=False):
        """The text that ids stand for; what is not UTF-8 in it becomes U+FFFD."""
        return self.decode_bytes(ids, special).decode(errors="replace")
