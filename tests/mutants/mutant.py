"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change that a test has to notice."""

    name: str
    file: str  # below csrc
    old: str
    new: str
    seen_by: tuple[tuple[str, str], ...]  # program, beginning of a case's name ("": all)
    occurrence: int = 0  # of the text, counted from 1; 0: it is there once
    more: tuple[tuple[str, str], ...] = ()  # other places of the file: what is there once, and new
