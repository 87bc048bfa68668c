"""The one base of every stateful plan: specify → plan → execute → free.

    with SomePlan(x, …) as p:          # specify what is computed
        p.plan(epilog=…)               # decide, compile, prepare
        y = p.execute()                # run, as often as wanted, from any thread
        p.reset_operands(other_x)      # the same on other data
        print(p.explain())             # what was chosen and why
        p.save("some.plan")            # for SomePlan.load("some.plan", x, …) in another process

A pipeline derives its class from `Plan` and supplies functions of plain data: `_prepare`, which turns operands and
choices into something that runs, `_replace`, which puts other operands in their places, and for files `_told` and
`_remade`.
"""

from __future__ import annotations

import html
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mathfuse.fusion import saved
from mathfuse.runtime.cache import Artifact
from mathfuse.runtime.errors import PlanError
from mathfuse.runtime.log import logger
from mathfuse.runtime.notes import noting


@dataclass(frozen=True)
class Explanation:
    """What a plan decided; `str()` makes readable lines of it.

    Parameters
    ----------
    title
        What is computed.
    strategy, reason
        The strategy taken, and why.
    rejected
        (strategy, why not) for the others.
    passes
        The passes over memory, in order.
    details
        (name, decision) for the rest: back ends, threads, sizes of blocks.
    workspace_bytes
        Scratch memory of one execution, beside operands and result.
    moved_bytes
        What all passes read and write, operands included; 0 where it is not counted.
    limit_seconds
        The least time for that, at the highest rate of the memory; 0 where that is not known.
    timings
        (way, milliseconds) of everything that was timed, the fastest first; it is taken.
    """

    title: str
    strategy: str
    reason: str
    rejected: tuple[tuple[str, str], ...] = ()
    passes: tuple[str, ...] = ()
    details: tuple[tuple[str, str], ...] = ()
    workspace_bytes: int = 0
    moved_bytes: int = 0
    limit_seconds: float = 0.0
    timings: tuple[tuple[str, float], ...] = ()

    @property
    def memory(self) -> tuple[tuple[str, str], ...]:
        """(name, text) on the memory that is used."""
        limit = f", {1e6 * self.limit_seconds:.1f} µs at the memory's highest rate" if self.limit_seconds else ""
        if self.timings and self.limit_seconds:
            times = 1e-3 * self.timings[0][1] / self.limit_seconds
            limit += f", of which {1e3 * self.timings[0][1]:.1f} µs measured are {times:.2f} times"
        moved = (("read and written", f"{self.moved_bytes:,} bytes{limit}"),) if self.moved_bytes else ()
        return (*moved, ("workspace", f"{self.workspace_bytes:,} bytes"))

    def __str__(self) -> str:
        lines = [self.title, f"strategy {self.strategy}: {self.reason}"]
        lines += [f"not {name}: {why}" for name, why in self.rejected]
        lines += [f"pass {i}: {text}" for i, text in enumerate(self.passes, 1)]
        lines += [f"{name}: {text}" for name, text in (*self.details, *self.memory)]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = [("strategy", f"<b>{html.escape(self.strategy)}</b>: {html.escape(self.reason)}")]
        rows += [(f"not {name}", html.escape(why)) for name, why in self.rejected]
        rows += [(f"pass {i}", html.escape(text)) for i, text in enumerate(self.passes, 1)]
        rows += [(name, html.escape(text)) for name, text in (*self.details, *self.memory)]
        cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{text}</td></tr>" for name, text in rows)
        return f"<table><caption>{html.escape(self.title)}</caption>{cells}</table>"


class Prepared(Protocol):
    """A decision ready to run. It never changes, so several threads may run it at once."""

    @property
    def explanation(self) -> Explanation: ...

    def run(self, out: Any, stream: Any) -> Any: ...


Operands = TypeVar("Operands")
Choices = TypeVar("Choices")
Self = TypeVar("Self", bound="Plan[Any, Any]")


class Plan(Generic[Operands, Choices]):
    """States, errors and locking.

    A plan is safe across threads: `plan` and `reset_operands` put one prepared decision in the place of another, and an
    execution that has begun finishes with what it began with.
    """

    choices: ClassVar[type]  # the dataclass of what `plan` takes

    def __init__(self, title: str, operands: Operands) -> None:
        self._title = title
        self._operands: Operands | None = operands
        self._choices: Choices | None = None
        self._prepared: Prepared | None = None
        self._artifacts: dict[str, Artifact] = {}  # the compiled code it uses
        self._lock = threading.RLock()

    def _prepare(self, operands: Operands, choices: Choices) -> Prepared:
        """Check, decide, compile and bind: everything that can fail."""
        raise AssertionError("a plan supplies _prepare")

    def _replace(
        self, operands: Operands, choices: Choices, x: Any, named: Mapping[str, Any]
    ) -> tuple[Operands, Choices]:
        """Operands and choices with another input, unless it is None, and other named operands."""
        raise AssertionError("a plan supplies _replace")

    def plan(self: Self, *, options: Mapping[str, Any] | None = None, **choices: Any) -> Self:
        """Choose a strategy, compile and prepare. May be called again, with other choices.

        Parameters
        ----------
        **choices
            The fields of the class's `choices`.
        options
            The same by name, in one mapping.

        Returns
        -------
        Plan
            Itself.

        Raises
        ------
        PlanError, CallbackError, UnsupportedError
            What is wrong with operands, callbacks or choices is found here, not in `execute`.
        """
        if options is not None and not isinstance(options, Mapping):
            raise PlanError(f"options must be a mapping from names to choices, not {options!r}")
        given = {**(options or {}), **choices}
        known = [field.name for field in fields(self.choices)]
        if unknown := [name for name in given if name not in known]:
            raise PlanError(f"{type(self).__name__}.plan has no option {unknown[0]!r}; it has {', '.join(known)}")
        with self._lock:
            self._install(self._alive(), self.choices(**given))
        return self

    def execute(self, out: Any = None, stream: Any = None) -> Any:
        """Run on the operands as they are now. On a GPU it only queues the work: nothing waits for it.

        Parameters
        ----------
        out : array, optional
            Where the result goes, of its shape and dtype. By default a new array of the input's framework.
        stream : optional
            On a GPU: the stream to queue on, an int (``cudaStream_t``), a CuPy, PyTorch or cuda.core stream, or
            anything with ``__cuda_stream__``. By default the current stream of the input's framework.

        Returns
        -------
        array
            The result; `out` itself where it is given.

        Raises
        ------
        PlanError
            Before `plan`, after `free`, or if `out` does not fit or overlaps an operand.
        """
        prepared = self._prepared
        return (prepared or self._ready("execute")).run(out, stream)

    def reset_operands(self: Self, x: Any = None, /, **operands: Any) -> Self:
        """Put other data in the place of the input `x` and of named operands, of the same shapes and dtypes.

        A name that several callbacks have is replaced in all of them.

        Raises
        ------
        PlanError
            Before `plan`, after `free`, for names that the plan does not have, and for other shapes or dtypes.
        """
        with self._lock:
            held, choices = self._planned("reset_operands")
            self._install(*self._replace(held, choices, x, operands))
        return self

    def explain(self) -> Explanation:
        """What was chosen and why, what was rejected, the passes over memory and the workspace."""
        return self._ready("explain").explanation

    def save(self, path: saved.FilePath) -> None:
        """Write the plan to a file, from which `load` makes it again in another process without compiling.

        It carries what was specified and chosen, callbacks by module and name with the numbers bound to them, and the
        compiled code; no array. Callbacks of a script or notebook itself do not do: another process does not find them.

        Parameters
        ----------
        path : path-like
            The file; one that is there is replaced once the new one is complete.

        Raises
        ------
        PlanError
            Before `plan`, after `free`; if a callback is not found by its name in another process, or two callbacks
            have different arrays under one name.
        OSError
            If the file cannot be written.
        """
        with self._lock:
            held, choices = self._planned("save")
            saved.write(path, {"plan": type(self).__name__, **self._told(held, choices)}, self._artifacts)

    @classmethod
    def load(cls: type[Self], path: saved.FilePath, x: Any, /, **operands: Any) -> Self:
        """The plan that `save` wrote, ready to execute.

        Where the file was made for another GPU or processor, or by other versions, or where a callback or the type of
        an operand has changed since, the plan is compiled anew, which is logged. Load only files that you trust: the
        modules that they name are imported, and the code in them goes into the cache and is run.

        Parameters
        ----------
        path : path-like
            The file.
        x : array
            The input, of the dtype and shape of the one that was saved.
        **operands
            The callbacks' operands by name: all arrays, and numbers in place of those in the file. A name that several
            callbacks have is given to all of them.

        Raises
        ------
        PlanError
            If the file is damaged or of another plan, a callback is gone, `x` or operands do not fit or are missing.
        CallbackError, UnsupportedError
            As for `plan`.
        OSError
            If the file cannot be read.
        """
        header, artifacts = saved.read(path)
        if header["plan"] != cls.__name__:
            raise PlanError(f"{path} holds a plan of {header['plan']}: load it with {header['plan']}.load")
        plan, choices = cls._remade(header, path, x, operands)
        saved.keep(artifacts)
        plan.plan(**choices)
        if new := plan._artifacts.keys() - artifacts.keys():
            logger.info(
                "plan file %s lacks %d artifacts for this machine, program or operands: made anew", path, len(new)
            )
        return plan

    def _told(self, operands: Operands, choices: Choices) -> dict[str, Any]:
        """What `_remade` needs, as JSON."""
        raise AssertionError("a plan supplies _told")

    @classmethod
    def _remade(
        cls: type[Self], header: Mapping[str, Any], path: saved.FilePath, x: Any, operands: Mapping[str, Any]
    ) -> tuple[Self, dict[str, Any]]:
        """The specified plan, and what its `plan` is to be given."""
        raise AssertionError("a plan supplies _remade")

    def free(self) -> None:
        """Let go of operands and workspaces. The plan cannot be used any more; freeing it twice does no harm."""
        with self._lock:
            self._operands = self._choices = self._prepared = None

    def _install(self, operands: Operands, choices: Choices) -> None:
        start = time.perf_counter()
        with noting() as artifacts:
            prepared = self._prepare(operands, choices)  # if it fails, the plan stays as it was
        self._prepared, self._operands, self._choices, self._artifacts = prepared, operands, choices, artifacts
        if logger.isEnabledFor(logging.INFO):
            found, took = self._prepared.explanation, 1e3 * (time.perf_counter() - start)
            logger.info(
                "planned %s: strategy %s, %d passes: %.1f ms", found.title, found.strategy, len(found.passes), took
            )

    def _alive(self) -> Operands:
        if self._operands is None:
            raise PlanError(f"this {type(self).__name__} was freed: make a new one")
        return self._operands

    def _planned(self, wanted: str) -> tuple[Operands, Choices]:
        """What was specified, of a plan that was planned; the caller holds the lock."""
        self._ready(wanted)
        assert self._operands is not None
        assert self._choices is not None
        return self._operands, self._choices

    def _ready(self, wanted: str) -> Prepared:
        prepared = self._prepared
        if prepared is None:
            self._alive()
            raise PlanError(f"{type(self).__name__}.{wanted} needs a plan: call plan(…) first")
        return prepared

    def __reduce__(self) -> Any:
        raise PlanError("a plan holds compiled code and live operands: pickle or copy its callbacks")

    def __enter__(self: Self) -> Self:
        self._alive()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.free()

    def _repr_html_(self) -> str:
        """What notebooks show: the explanation, once there is one."""
        prepared = self._prepared
        return prepared.explanation._repr_html_() if prepared else html.escape(repr(self))

    def __repr__(self) -> str:
        prepared = self._prepared
        state = (
            f"strategy {prepared.explanation.strategy}" if prepared else "not planned" if self._operands else "freed"
        )
        return f"<{type(self).__name__} {self._title}: {state}>"
