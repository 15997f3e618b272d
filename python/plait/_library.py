"""libplait.so: the functions of include/plait/files.h. Only numbers, strings and pointers pass, so no struct is known here."""
import ctypes
import os

from plait import _errors
from plait._command import FOLDER

_pointer, _int, _long, _size, _text = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_size_t, ctypes.c_char_p
_to = ctypes.POINTER

_functions = {  # name: result, arguments
    "plait_version": (_text, []),
    "plait_error_create": (_pointer, []),
    "plait_error_message": (_text, [_pointer]),
    "plait_error_destroy": (None, [_pointer]),
    "plait_tokenizer_open": (_int, [_text, _to(_pointer), _pointer]),
    "plait_tokenizer_close": (None, [_pointer]),
    "plait_tokenizer_size": (_int, [_pointer]),
    "plait_tokenizer_encode": (_int, [_pointer, _text, _size, _int, _to(_to(ctypes.c_int32)), _to(_long), _pointer]),
    "plait_tokenizer_decode": (_int, [_pointer, _to(ctypes.c_int32), _long, _int, _to(_pointer), _to(_size), _pointer]),
    "plait_checkpoint_open": (_int, [_text, _to(_pointer), _pointer]),
    "plait_checkpoint_close": (None, [_pointer]),
    "plait_checkpoint_path": (_text, [_pointer]),
    "plait_checkpoint_step": (_long, [_pointer]),
    "plait_checkpoint_extra": (_text, [_pointer]),
    "plait_checkpoint_count": (_int, [_pointer]),
    "plait_checkpoint_name": (_text, [_pointer, _int]),
    "plait_checkpoint_dtype": (_text, [_pointer, _int]),
    "plait_checkpoint_dims": (_int, [_pointer, _int, _to(_long)]),
    "plait_checkpoint_read": (_int, [_pointer, _int, _text, _pointer, _size, _pointer]),
}
_loaded = None


def library():
    global _loaded
    if _loaded is None:
        loaded = ctypes.CDLL(os.path.join(FOLDER, "lib", "libplait.so"))
        for name, (result, arguments) in _functions.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        _loaded = loaded
    return _loaded


def call(name, *arguments):
    """Calls a function that takes a PlaitError last. Its code becomes an exception."""
    of = library()
    error = of.plait_error_create()
    try:
        code = getattr(of, name)(*arguments, error)
        if code:
            raise _errors.of_code(code, of.plait_error_message(error).decode(errors="replace"))
    finally:
        of.plait_error_destroy(error)


def path_bytes(path):
    path = os.fsencode(path)
    if b"\0" in path:
        raise _errors.BadInput("a path has a NUL in it")
    return path


class Handle:
    """What a function has opened; closed with the object."""

    def __init__(self, open_name, close_name, path):
        handle = ctypes.c_void_p()
        call(open_name, path_bytes(path), ctypes.byref(handle))
        self._close, self.pointer = getattr(library(), close_name), handle

    def close(self):
        if self.pointer:
            self._close(self.pointer)
            self.pointer = None

    def __del__(self):
        if hasattr(self, "pointer"):
            self.close()
