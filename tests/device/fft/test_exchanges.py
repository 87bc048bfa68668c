"""Layouts of shared memory between the stages of a transform."""

from __future__ import annotations

import pytest

from mathfuse.device.fft.block import Block
from mathfuse.device.fft.exchanges import Exchange, exchanges, turns
from mathfuse.device.fft.shapes import Stages, stages_of

LENGTHS = [64, 256, 768, 1000, 1080, 1536, 2000, 2187, 3000, 4096, 8192, 16384]


@pytest.mark.parametrize("length", LENGTHS)
def test_every_element_has_a_place_at_a_constant_distance_from_a_threads_first(length):
    stages = stages_of(length)
    for stage, exchange in enumerate(exchanges(stages)[:-1]):
        assert len({exchange.place(e) for e in range(length)}) == length
        done, count = stages.done(stage), stages.butterflies(stage + 1)
        for j in range(stages.butterflies(stage)):
            first = j // done * exchange.period + j % done
            for leg in range(stages.radices[stage]):
                assert exchange.place(first + leg * done) - exchange.place(first) == leg * done
        for j in range(count):
            for leg in range(stages.radices[stage + 1]):
                assert exchange.place(j + leg * count) - exchange.place(j) == exchange.place(leg * count)


@pytest.mark.parametrize("length", LENGTHS)
def test_threads_beside_each_other_meet_different_banks(length):
    stages = stages_of(length)
    threads = range(min(stages.threads, 64))
    for stage, exchange in enumerate(exchanges(stages)[:-1]):
        done, period = stages.done(stage), stages.done(stage + 1)
        written = turns([exchange.place(j // done * period + j % done) for j in threads])
        read = turns([exchange.place(j) for j in threads])
        assert written + read <= 3 * -(-len(threads) // 16)  # of two at least
    assert exchanges(stages)[-1] == Exchange(length)


def test_turns_are_counted():
    assert turns(range(16)) == 1
    assert turns(range(0, 32, 2)) == 2
    assert turns([0] * 16) == 1  # one place for all
    assert turns(range(0, 256, 16)) == 16
    assert turns(range(17)) == 2


def test_short_transforms_share_a_row_of_banks():
    block = Block(Stages(64, (16, 4), 4), 32)
    assert block.pitch % 16 == 4
    assert block.pitch >= 64 + 64 // 16 - 1
