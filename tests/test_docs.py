"""The examples in the docstrings run, and the public names have docstrings."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest
from helpers import ROOT

import affinitypool

pytestmark = pytest.mark.timeout(30)

MODULES = ["affinitypool"] + [
    f"affinitypool.{module.name}"
    for module in pkgutil.iter_modules(affinitypool.__path__)
    if module.name not in ("_core", "__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_the_public_functions_have_examples():
    finder = doctest.DocTestFinder()
    for public in ("ThreadPoolExecutor", "Task", "wait", "as_completed", "patch_stdlib"):
        examples = [
            example
            for test in finder.find(getattr(affinitypool, public), public)
            for example in test.examples
        ]
        assert examples, public


@pytest.mark.parametrize("name", affinitypool.__all__)
def test_public_names_have_docstrings(name):
    value = getattr(affinitypool, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert inspect.getdoc(value)


@pytest.mark.parametrize("owner", [affinitypool.ThreadPoolExecutor, affinitypool.Task])
def test_public_methods_have_docstrings(owner):
    ours = [vars(kind) for kind in owner.__mro__ if kind.__module__.startswith("affinitypool")]
    for name in {name for names in ours for name in names}:
        if not name.startswith("_"):
            assert inspect.getdoc(getattr(owner, name)), name


def test_signatures_can_be_asked_for():
    pool, task = affinitypool.ThreadPoolExecutor, affinitypool.Task
    assert list(inspect.signature(pool.submit).parameters) == ["self", "fn", "args", "kwargs"]
    assert list(inspect.signature(task.result).parameters) == ["self", "timeout"]
    assert str(inspect.signature(pool.shutdown)).startswith("(self, wait: 'bool' = True, *, cancel")
    assert list(inspect.signature(task.add_done_callback).parameters)[-1] == "fn"
    for name in ("done", "running", "cancel", "cancelled", "exception", "set_result"):
        inspect.signature(getattr(task, name))


def test_the_tests_that_the_guarantees_name_are_there():
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"(test_\w+\.py)::(test_\w+)", text)
    assert len(named) > 15
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / "faults" / file).read_text(encoding="utf-8")
