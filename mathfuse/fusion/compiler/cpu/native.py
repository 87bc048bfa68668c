"""LLVM on the host: textual IR to an optimised object file, and an object file to a function's address."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import platform
import threading

import llvmlite.binding as llvm

_lock = threading.RLock()  # LLVM's global context is not safe across threads
_engines: list[llvm.ExecutionEngine] = []  # they own the code that pointers lead to


@functools.cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    if platform.machine().lower() in ("x86_64", "amd64"):
        features += ",-prefer-256-bit"  # a computed Gaussian on Sapphire Rapids: 0.9 ns an element against 1.5
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="default"
    )


def optimise(text: str) -> llvm.ModuleRef:
    """Parses, verifies and optimises (-O3, loop and straight-line vectorisers) a module for this processor."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def object_code(text: str) -> bytes:
    """The object file of a module."""
    with _lock:
        return _machine().emit_object(optimise(text))


def address_of(payload: bytes, symbol: str = "mathfuse_run") -> int:
    """Loads an object file into the process (it needs nothing but libm) and gives the address of ``symbol``."""
    with _lock:
        _load_libm()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(payload))
        engine.finalize_object()
        _engines.append(engine)
        return engine.get_function_address(symbol)


@functools.cache
def _load_libm() -> None:
    """Makes libm's functions visible to the loader."""
    name = ctypes.util.find_library("m")
    if name:
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
