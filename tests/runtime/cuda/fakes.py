"""A driver without a GPU: its memory is the host's, its streams are done at once; and arrays that pose as a GPU's."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace

import numpy as np

from mathfuse.runtime.cuda import devices
from mathfuse.runtime.cuda.prototypes import TYPES

CACHES = (devices.library, devices.why_unavailable, devices.context, devices._current, devices.architecture)
CONTEXT = 0x1000  # of device 0; the next devices' follow


class Contexts(threading.local):
    def __init__(self):
        self.stack = []


class Driver:
    """The functions of the table; those that are not here only succeed. `calls` has names and arguments."""

    last, left = None, {}  # the driver before, and memory that outlived its own

    def __init__(self, count=2):
        Driver.left.update(Driver.last.blocks if Driver.last else {})
        Driver.last = self
        self.count, self.calls, self.contexts = count, [], Contexts()
        self.blocks, self.page_locked, self.capturing, self.capacity = {}, set(), set(), 1 << 30
        self.device_of, self.pending = {}, set()  # events that streams are not past

    def functions(self):
        return SimpleNamespace(**{name: self._function(name, text) for name, text in devices.PROTOTYPES.items()})

    def _function(self, name, letters):
        body = getattr(self, name, lambda *arguments: 0)

        def call(*arguments):
            assert len(arguments) == len(letters)
            for letter, argument in zip(letters, arguments, strict=True):
                TYPES[letter].from_param(argument)
            self.calls.append((name, arguments))
            return body(*arguments)

        return call

    def named(self, name):
        return [arguments for called, arguments in self.calls if called == name]

    # --- what does more than succeed

    def cuGetErrorName(self, status, place):
        place._obj.value = {1: b"CUDA_ERROR_INVALID_VALUE", 2: b"CUDA_ERROR_OUT_OF_MEMORY"}.get(status)
        return 0 if status in (1, 2) else 1

    def cuGetErrorString(self, status, place):
        place._obj.value = {1: b"invalid argument", 2: b"out of memory"}.get(status)
        return 0 if status in (1, 2) else 1

    def cuDeviceGetCount(self, place):
        place._obj.value = self.count
        return 0

    def cuDeviceGetName(self, text, size, device):
        text.value = b"Fake GPU"
        return 0

    def cuDeviceGetAttribute(self, place, number, device):
        place._obj.value = {16: 132, 36: 3_201_000, 37: 6144, 38: 50 << 20, 75: 9, 76: 0}[number]
        return 0

    def cuDevicePrimaryCtxRetain(self, place, device):
        if device >= self.count:
            return 101
        place._obj.value = CONTEXT + device
        return 0

    def cuCtxGetCurrent(self, place):
        place._obj.value = self.contexts.stack[-1] if self.contexts.stack else None
        return 0

    def cuCtxGetDevice(self, place):
        if not self.contexts.stack:
            return 201
        place._obj.value = self.contexts.stack[-1] - CONTEXT
        return 0

    def cuCtxPushCurrent_v2(self, context):
        self.contexts.stack.append(context)
        return 0

    def cuCtxPopCurrent_v2(self, place):
        place._obj.value = self.contexts.stack.pop()
        return 0

    def cuStreamIsCapturing(self, stream, place):
        if not self.contexts.stack:
            return 201
        if stream == 0 and self.capturing:
            return 906
        place._obj.value = stream in self.capturing
        return 0

    def cuThreadExchangeStreamCaptureMode(self, place):
        return 0

    def cuModuleLoadData(self, place, image):
        if image == b"bad":
            return 1
        place._obj.value = 77
        return 0

    def cuModuleGetFunction(self, place, module, name):
        if name == b"missing":
            return 1
        place._obj.value = 78
        return 0

    def cuFuncGetAttribute(self, place, number, function):
        place._obj.value = {0: 1024, 3: 16, 4: 32}[number]
        return 0

    def cuEventCreate(self, place, flags):
        place._obj.value = 90 + len(self.named("cuEventCreate"))
        return 0

    def cuEventQuery(self, event):
        return devices.NOT_READY if event in self.pending else 0

    def cuEventElapsedTime(self, place, start, end):
        place._obj.value = 1.5
        return 0

    def cuMemAllocAsync(self, place, nbytes, stream):
        if nbytes > self.capacity:
            return 2
        block = np.full(nbytes + 256, 0xA5, np.uint8)
        pointer = block.ctypes.data + -block.ctypes.data % 256
        self.blocks[pointer] = block
        self.device_of[pointer] = self.contexts.stack[-1] - CONTEXT
        place._obj.value = pointer
        return 0

    def cuMemFreeAsync(self, pointer, stream):
        # What an earlier test left to the garbage collector is freed while another driver is in place.
        del (self.blocks if pointer in self.blocks else self.left)[pointer]
        return 0

    def cuMemcpyHtoDAsync_v2(self, pointer, source, nbytes, stream):
        ctypes.memmove(pointer, source, nbytes)
        return 0

    def cuMemcpyDtoHAsync_v2(self, target, pointer, nbytes, stream):
        ctypes.memmove(target, pointer, nbytes)
        return 0

    def cuMemGetInfo_v2(self, free, total):
        free._obj.value, total._obj.value = 3, 4
        return 0

    def cuPointerGetAttribute(self, place, number, pointer):
        if number == 2:
            place._obj.value = 1
            return 0 if pointer in self.page_locked else 1
        place._obj.value = self.device_of.get(pointer, 0)
        return 0


class Interface:
    """A NumPy array that poses as one on a GPU, by `__cuda_array_interface__`."""

    def __init__(self, array, readonly=False, **more):
        self.array = array
        data = array.__array_interface__["data"][0], readonly
        strides = None if array.flags.c_contiguous else array.strides
        described = {"shape": array.shape, "strides": strides, "typestr": array.dtype.str, "data": data, "version": 3}
        records = {"descr": array.dtype.descr} if array.dtype.names else {}
        self.__cuda_array_interface__ = {**described, **records, **more}


class Capsule:
    """A NumPy array that poses as one on GPU 1, by DLPack and nothing else."""

    def __init__(self, array, device=(2, 1)):
        self.array, self.device, self.streams = array, device, []

    def __dlpack__(self, *, stream=None, **options):
        self.streams.append(stream)
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device
