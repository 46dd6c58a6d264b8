"""Medians and spreads."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """The median of some samples and the quartiles around it."""

    median: float
    low: float
    """First quartile."""
    high: float
    """Third quartile."""

    @property
    def spread(self) -> float:
        """Interquartile range as a fraction of the median; 0 where the median is 0."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarize(samples: Sequence[float]) -> Summary:
    """Median and quartiles; ValueError if there are no samples."""
    if not samples:
        raise ValueError("no samples to summarize")
    if len(samples) == 1:
        return Summary(samples[0], samples[0], samples[0])
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Summary(median, low, high)


def ratios(base: Sequence[float], ours: Sequence[float]) -> list[float]:
    """How many times better `ours` is, repetition by repetition; above 1 is a win.

    The two samples of a repetition were taken one after the other, so what the machine did
    meanwhile is in both and cancels. ValueError if the lengths differ.
    """
    return [a / b for a, b in zip(base, ours, strict=True)]
