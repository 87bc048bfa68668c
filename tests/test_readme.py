"""What the README says runs, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import scipy.signal

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_quick_start_is_two_commands_of_one_line():
    section = README.partition("## Quick start")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert [block.count("\n") for block in blocks] == [1, 1]


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image, kernel = np.random.default_rng(1).random((30, 20), np.float32), np.full((3, 5), 1 / 15)
    names = {"image": image, "kernel": kernel}
    for example in re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE):
        exec(compile(example, "README.md", "exec"), names)
    frequencies = np.meshgrid(np.fft.fftfreq(30), np.fft.rfftfreq(20), indexing="ij")
    transfer = np.exp(-2 * np.pi**2 * 8.0**2 * sum(f**2 for f in frequencies))
    np.testing.assert_allclose(names["spectrum"], np.fft.rfft2(image) * transfer, atol=1e-4)
    reference = np.fft.irfft2(np.fft.rfft2(image) * transfer, s=image.shape)
    np.testing.assert_allclose(names["blurred"], reference, atol=1e-6)
    np.testing.assert_allclose(names["smooth"], scipy.signal.convolve(image, kernel, "same").clip(0, 1), atol=1e-6)
    np.testing.assert_allclose(names["plan"].execute(), names["spectrum"], atol=1e-4)
    audit = names["code"].audit
    assert (audit.calls, audit.helper_calls, audit.float64_instructions, audit.local_memory_bytes) == (0, 0, 0, 0)


def test_the_extra_that_compiling_needs_is_told_beside_the_example():
    after = README.partition("```python\n")[2].partition("```\n")[2].partition("\n## ")[0]
    assert 'pip install ".[cu13]"' in after


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
