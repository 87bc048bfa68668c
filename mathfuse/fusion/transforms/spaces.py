"""Execution spaces: what a plan needs of the place where it runs, to read arrays and to prepare itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mathfuse.fusion.plan import Prepared
from mathfuse.fusion.transforms.choices import Choices
from mathfuse.fusion.transforms.pipeline import Held, Pipeline
from mathfuse.fusion.tuning import Tuning


@dataclass(frozen=True)
class Request:
    """What a space prepares a pipeline for.

    Parameters
    ----------
    title
        What is computed, in words.
    user_x, x
        The input, and as the space reads it.
    in_place
        Whether the result may replace the input.
    choices
        What the user asked for.
    lasting
        Whether it will run often, so that preparations pay.
    tuning
        How ways are to be timed; None: they are not.
    """

    title: str
    user_x: Any
    x: Held
    in_place: bool
    choices: Choices
    lasting: bool = True
    tuning: Tuning | None = None


class Space(Protocol):
    """The CPU, or a GPU."""

    def read(self, array: Any, what: str) -> Held:
        """An array as the space reads it; `what` is its name in messages."""

    def settle(self) -> None:
        """Wait for what is queued, so that every stream may read it."""

    def prepare(self, pipeline: Pipeline, request: Request) -> Prepared:
        """Choose a strategy, compile and bind."""


@runtime_checkable
class Keeping(Protocol):
    """What a space prepared and is worth keeping for calls of the stateless functions with the same problem."""

    def keep(self, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Be found again by a function's name and arguments, or without a name by other plans of the problem."""
