"""FFTs on a GPU with a multiplication fused in: `callbacks` against peers; `sweep`: fusing never loses; own kernels."""

from __future__ import annotations

import argparse

from benchmarks import fft_blocks, fft_callbacks, fft_configurations, fft_sweep

PARTS = {
    "callbacks": fft_callbacks,
    "sweep": fft_sweep,
    "blocks": fft_blocks,
    "configurations": fft_configurations,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(required=True, metavar="PART")
    for name, module in PARTS.items():
        part = parts.add_parser(name, help=(module.__doc__ or "").splitlines()[0])
        module.add_arguments(part)
        part.set_defaults(measure=module.main)


def main(arguments: argparse.Namespace) -> None:
    arguments.measure(arguments)
