"""What things cost."""


def total(prices):
    return sum(prices)
