"""The tensors of a checkpoint as numpy arrays."""
import ctypes
import json
from collections.abc import Mapping

from plait._library import Handle, call, library

# The dtypes that plait stores, and those as which numpy reads them. numpy has no bf16: fp32 holds each of its values exactly.
_dtypes = {"fp64": "float64", "fp32": "float32", "bf16": "float32", "fp16": "float16", "int64": "int64", "int32": "int32",
           "uint16": "uint16", "uint8": "uint8"}
_names = {"float64": "fp64", "float32": "fp32", "float16": "fp16"}


class Checkpoint(Mapping):
    """A checkpoint (runs/my/checkpoints/step-100), or the newest of a run (runs/my): a mapping from names to arrays.

    Each tensor is whole, whatever ranks have written it, and read when it is asked for. Beside the parameters there are the
    optimizer's moments and counters. step, path and extra (what the run keeps beside its tensors) are attributes.
    """

    def __init__(self, path):
        self._handle = Handle("plait_checkpoint_open", "plait_checkpoint_close", path)
        of, pointer = library(), self._handle.pointer
        self.path = of.plait_checkpoint_path(pointer).decode(errors="surrogateescape")
        self.step = of.plait_checkpoint_step(pointer)
        self.extra = json.loads(of.plait_checkpoint_extra(pointer))
        count = of.plait_checkpoint_count(pointer)
        self._index = {of.plait_checkpoint_name(pointer, i).decode(): i for i in range(count)}

    def __len__(self):
        return len(self._index)

    def __iter__(self):
        return iter(self._index)

    def __contains__(self, name):
        return name in self._index

    def dtype(self, name):
        """As it is stored: "fp32", "bf16", "int64"."""
        return library().plait_checkpoint_dtype(self._handle.pointer, self._index[name]).decode()

    def shape(self, name):
        dims = (ctypes.c_int64 * 8)()
        return tuple(dims[:library().plait_checkpoint_dims(self._handle.pointer, self._index[name], dims)])

    def __getitem__(self, name):
        self._index[name]  # KeyError before anything else
        try:
            import numpy
        except ImportError:
            raise ImportError("a checkpoint's tensors are numpy arrays, and numpy is not installed: pip install numpy") from None
        dtype = self.dtype(name)
        array = numpy.empty(self.shape(name), _dtypes[dtype])
        call("plait_checkpoint_read", self._handle.pointer, self._index[name], _names.get(array.dtype.name, dtype).encode(),
             array.ctypes.data, array.nbytes)
        return array

    def close(self):
        self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()
