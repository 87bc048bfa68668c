"""``python -m benchmarks NAME``: run one benchmark, print its table, write ``benchmarks/results/NAME.json``."""

from __future__ import annotations

import argparse

from benchmarks import convolve, elementwise, fft, filter2d, overhead, plans, report

BENCHMARKS = {
    "filter2d": filter2d,
    "convolve": convolve,
    "fft": fft,
    "elementwise": elementwise,
    "overhead": overhead,
    "plans": plans,
    "report": report,
}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="NAME")
    for name, module in BENCHMARKS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary.replace("%", "%%"), description=summary)
        module.add_arguments(command)
        command.set_defaults(run=module.main)
    return parser


def main() -> None:
    arguments = parser().parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
