# SPDX-License-Identifier: Apache-2.0
"""The tests that pytest runs in real.py."""
import pytest


@pytest.fixture
def values():
    yield [3, 1, 2]


@pytest.mark.parametrize("reverse", [False, True])
def test_sorted(values, reverse):
    assert sorted(values, reverse=reverse)[1] == 2


def test_error(values):
    with pytest.raises(ZeroDivisionError):
        sum(value // 0 for value in values)
