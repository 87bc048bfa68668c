"""The benchmarks' pure parts: bounds, tables, results files, the sweep's problems, and the page made of results."""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks import (
    __main__,
    convolve,
    elementwise,
    fft,
    fft_blocks,
    fft_callbacks,
    fft_sweep,
    filter2d_cuda,
    overhead,
    parts,
    records,
    report,
)
from benchmarks.records import Bound
from benchmarks.sweep_problems import FILL, MOST_BATCHES, SECTIONS, Problem
from mathfuse.runtime.cuda import driver

MACHINE = {"device": "A GPU", "versions": {"mathfuse": "0.1.0", "cuFFT": "12.0.0"}}


def timed(case: str, **ms: float) -> list[records.Row]:
    side = "prolog" if "prolog" in case else "epilog"
    return [{"case": case, "side": side, "name": name.replace("_", " "), "ms": value} for name, value in ms.items()]


def sweep_row(problem: Problem, side: str, rule: float, tuned: float) -> records.Row:
    return {
        "section": "1d", "problem": str(problem), "side": side, "rule": rule, "tuned": tuned, "of_limit": 1.1,
        "rule_strategy": "callback", "tuned_strategy": "sequence", "rule_plan_s": 0.3, "tuned_plan_s": 0.5,
        "ms": {"rule": rule / 10, "tuned": tuned / 10, "cuFFT + CuPy kernel": 0.1},
    }  # fmt: skip


SWEEP = [
    sweep_row(SECTIONS["1d"][0], "prolog", 0.5, 0.4),
    sweep_row(SECTIONS["1d"][1], "prolog", 1.02, 1.01),
    sweep_row(SECTIONS["1d"][1], "both", 1.25, 1.03),
    {"section": "2d", "problem": "another", "side": "both", "failed": "PlanError: no memory"},
]
RECORDS = {
    "filter2d-cpu": {
        "machine": {"processor": "2 × CPU"}, "versions": {"scipy": "1.17"}, "settings": {"size": 64, "workers": 2},
        "variants": [{"case": "blur", "name": "mathfuse", "seconds": [0.003, 0.001, 0.002]}],
    },
    "fft-callbacks": {
        **MACHINE, "settings": {"elements": 1 << 24}, "bounds": [{"what": "a claim", "value": 1.3, "most": 1.25}],
        "rows": timed("N = 256, epilog", limit=0.08, mathfuse=0.104) + timed("rank 3, N = 256, epilog", dense=0.09),
    },
    "fft-blocks": {
        **MACHINE, "settings": {"elements": 1 << 24}, "bounds": [],
        "rows": [
            {"case": f"N = 256, {side}", "side": side, "n": 256, "name": name, "ms": ms, "of_limit": ms / 0.1}
            for side, peer in fft_blocks.PEERS.items()
            for name, ms in (("limit", 0.1), ("mathfuse", 0.104), (peer, 0.2))
        ],
    },
    "fft-sweep": {**MACHINE, "settings": {}, "bounds": [], "rows": SWEEP},
    "filter2d-cuda": {**MACHINE, "settings": {}, "bounds": [], "rows": timed("1 × 64², computed", mathfuse=0.1)},
    "convolve-cpu": {
        "machine": {"processor": "2 × CPU"}, "versions": {"scipy": "1.17"}, "settings": {"workers": 2},
        "variants": [{"case": "a with b", "name": "mathfuse", "seconds": [0.003, 0.001, 0.002]}],
    },
    "convolve-cuda": {**MACHINE, "settings": {}, "bounds": [], "rows": timed("a with b", mathfuse=0.1)},
    "overhead": {
        **MACHINE, "settings": {"calls": 2000, "rounds": 7}, "bounds": [],
        "rows": [{"arrays": "torch", "name": "torch.fft.fft(x)", "us": 9.04}],
    },
    "elementwise": {
        **MACHINE, "settings": {"bytes": 3000}, "bounds": [],
        "rows": [{"case": "uint8, flat", "access": "flat", "name": elementwise.OURS, "ms": 1.0, "share": 0.98}],
    },
}  # fmt: skip


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_bound_is_met_up_to_its_number():
    assert Bound("a", 1.25, 1.25).met
    assert not Bound("a", 1.2501, 1.25).met
    assert not Bound("a", math.nan, 1.25).met
    assert str(Bound("what", 2.0, 1.25)).startswith("NOT MET")


def test_bounds_of_callbacks():
    rows = timed("N = 256, epilog", limit=0.08, mathfuse=0.1, torch=0.2)
    rows += timed("N = 256, prolog", limit=0.08, mathfuse=0.12)
    rows += timed("rank 3, N = 256, epilog", dense=0.1)
    rows += [{"case": "N = 256, epilog", "side": "epilog", "name": fft_callbacks.NVMATH, "ms": 0.2}]
    rows += [{"case": "rank 3, N = 256, epilog", "side": "epilog", "name": fft_callbacks.STRIDED, "ms": 0.12}]
    found = [(round(b.value, 3), b.most, b.met) for b in fft_callbacks.bounds(rows)]
    assert found == [(1.25, 1.25, True), (0.5, 0.62, True), (1.5, 1.45, False), (1.2, 1.1, False)]


def test_bounds_of_own_kernels():
    found = {bound.what: bound for bound in fft_blocks.bounds(RECORDS["fft-blocks"]["rows"])}
    epilog, filtered = (
        found["N = 256, epilog: of the copy limit"],
        found[f"N = 256, filter: of {fft_blocks.PEERS['filter']}"],
    )
    assert (round(epilog.value, 3), epilog.most, epilog.met) == (1.04, 1.1, True)
    assert (round(filtered.value, 3), filtered.most, filtered.met) == (0.52, 0.55, True)


def test_bounds_of_the_sweep_name_the_slowest_and_count_failures():
    rule, tuned, failed = fft_sweep.bounds(SWEEP)
    assert (rule.value, rule.met, tuned.value, tuned.met) == (1.25, False, 1.03, True)
    assert str(SECTIONS["1d"][1]) in rule.what and "both" in rule.what
    assert (failed.value, failed.met) == (1, False)
    assert [row["side"] for row in fft_sweep.over(SWEEP)] == ["both", "both"]
    assert fft_sweep.bounds([]) == [Bound("problems that failed", 0, 0)]


def test_a_failed_problem_is_solved_again():
    assert fft_sweep.without_failed(SWEEP) == SWEEP[:3]
    rows = [SWEEP[0], {**SWEEP[3], "problem": SWEEP[0]["problem"]}]
    assert fft_sweep.without_failed(rows) == []


def test_lines_of_the_sweep():
    assert "rule 1.250, tuned 1.030" in fft_sweep.line(SWEEP[2])
    assert fft_sweep.line(SWEEP[3]) == "another, both: FAILED PlanError: no memory"


def test_bounds_of_overhead_are_multiples_of_torch():
    names = [overhead.EXECUTE, overhead.EXECUTE_OUT + overhead.EPILOG, "cupy.fft.fft(x)"]
    rows = [{"arrays": "CuPy", "name": name, "us": 5.0} for name in names]
    assert overhead.bounds(rows) == []
    rows.append({"arrays": "torch", "name": overhead.BASE, "us": 10.0})
    rows.append({"arrays": "torch", "name": overhead.BASE_OUT, "us": 5.0})
    assert [(b.value, b.most, b.met) for b in overhead.bounds(rows)] == [(0.5, 1.0, True), (1.0, 0.6, False)]


def test_bounds_of_elementwise_kernels_and_filters():
    rows = [
        {"case": "a", "access": "flat", "name": name, "share": 0.9} for name in (elementwise.OURS, elementwise.CUPY)
    ]
    (bound,) = elementwise.bounds(rows)
    assert (round(bound.value, 3), bound.most, bound.met) == (1.111, 1.053, False)
    head = {"case": "a", "filter": filter2d_cuda.ARRAY, "size": 512, "ms": 2}
    rows = [{**head, "name": filter2d_cuda.OURS}, {**head, "name": filter2d_cuda.SEPARATE}]
    assert [bound.value for bound in filter2d_cuda.bounds(rows)] == [1.0]
    rows = [{"case": "a", "name": convolve.OURS, "ms": 1}, {"case": "a", "name": convolve.SEPARATE, "ms": 2}]
    assert [bound.value for bound in convolve.bounds(rows)] == [0.5]


# --- the sweep --------------------------------------------------------------------------------------------


def test_processes_share_the_problems_and_what_is_over_a_bound_is_measured_again(monkeypatch, tmp_path):
    rows = [sweep_row(problem, "both", 1.5 if k == 1 else 0.5, 0.5) for k, problem in enumerate(SECTIONS["2d"])]

    def play(command):
        arguments = __main__.parser().parse_args(command[3:])  # after python -m benchmarks
        assert (arguments.run, arguments.measure) == (fft.main, fft_sweep.main)
        i, n = map(int, arguments.part[:2])
        records.save(fft_sweep.NAME, {**MACHINE, "settings": {}}, rows[i::n], [], arguments.results)
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(parts.subprocess, "Popen", play)
    monkeypatch.setattr(fft_sweep, "measured", lambda problem, samples: [{"problem": str(problem), "rule": 1.0}])
    monkeypatch.setattr(fft_sweep, "line", str)
    monkeypatch.setattr(fft_sweep, "bounds", lambda rows: [])
    fft_sweep.main(
        argparse.Namespace(
            processes=4, samples=9, limit=9.0, sections=["2d"], results=tmp_path, resume=False, part=None
        )
    )
    found = records.load(fft_sweep.NAME, tmp_path)["rows"]
    assert [row["problem"] for row in found] == [str(problem) for problem in SECTIONS["2d"]]
    assert found[1] == {"section": rows[1]["section"], "problem": rows[1]["problem"], "rule": 1.0}
    assert found[2:] == rows[2:]


def test_the_sweep_has_each_problem_once_and_what_it_is_to_cover():
    problems = [problem for section in SECTIONS.values() for problem in section]
    assert len(set(map(str, problems))) == len(set(problems)) == len(problems)
    assert {problem.family for problem in problems if problem.double} == {"c2c", "r2c", "c2r"}
    assert {len(problem.lengths) for problem in problems} == {1, 2, 3}
    assert {1, 16, 256, MOST_BATCHES} <= {problem.batch for problem in problems}
    lengths = [problem.lengths[0] for problem in SECTIONS["1d"]]
    assert (min(lengths), max(lengths), len(lengths)) == (64, 65536, 33)


def test_batches_fill_the_elements_but_no_more_than_the_most():
    for problem in SECTIONS["1d"] + SECTIONS["2d"] + SECTIONS["3d"]:
        filled = problem.batch * math.prod(problem.lengths)
        assert problem.batch in (1, MOST_BATCHES) or FILL - math.prod(problem.lengths) < filled <= FILL


# --- tables and files ------------------------------------------------------------------------------------------------


def test_pivot():
    rows = [*timed("a", x=1.0, y=2.34567), *timed("b", y=3.0)]
    assert records.pivot(rows).splitlines() == [
        "|  | x | y |",
        "| --- | --- | --- |",
        "| a | 1 | 2.346 |",
        "| b | – | 3 |",
    ]


def test_a_run_comes_back_from_its_file(tmp_path):
    rows, bounds = timed("µ", a=1.5), [Bound("claim", 1.0, 2.0)]
    path = records.save("name", MACHINE, rows, bounds, tmp_path / "new")
    found = records.load("name", tmp_path / "new")
    assert found["rows"] == rows and records.bounds_of(found) == bounds and found["device"] == "A GPU"
    assert sum("µ" in line for line in path.read_text().splitlines()) == 1  # a line a row
    assert records.load("another", tmp_path) is None
    assert records.load("empty", records.save("empty", MACHINE, [], [], tmp_path).parent)["rows"] == []


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_results_give():
    found = {name: record for name in report.SECTIONS if (record := records.load(name))}
    assert report.PAGE.read_text() == report.render(found), "run python -m benchmarks report"


def test_the_page_of_no_results_is_its_head():
    assert report.render({}) == report.HEAD


@pytest.mark.parametrize("name", report.SECTIONS)
def test_each_section_stands_alone(name):
    page = report.render({name: RECORDS[name]})
    assert page.count("\n## ") == 1 and "\n\n\n" not in page and page.endswith("|\n")
    widths = [line.count("|") for line in page.splitlines() if line.startswith("|")]
    assert widths and all(width > 2 for width in widths)


def test_the_page_of_all_results():
    page = report.render(RECORDS)
    assert "| a claim | 1.300 | 1.25 | **not met** |" in page
    assert "| 1d | 3 | 0.86 | 1.250 | 0.75 | 1.030 | callback 3 | sequence 3 |" in page
    assert "- another, both: PlanError: no memory" in page
    assert "2^24 complex64" in page and "3,000 bytes" in page
    assert "| blur | 2.0 |" in page


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["", "fft", "fft sweep", "elementwise"])
def test_help_needs_no_gpu(name):
    done = run(*name.split(), "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: ")


@pytest.mark.skipif(not driver.why_unavailable(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    done = run("overhead")
    assert done.returncode == 1 and done.stderr.startswith("this benchmark needs a GPU: ")
