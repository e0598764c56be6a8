"""What is expected of prices."""

from prices import total


def test_nothing_costs_nothing():
    assert total([]) == 0


def test_prices_add_up():
    assert total([1, 2]) == 3
