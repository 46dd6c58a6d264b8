"""Tells setuptools how the extension module is built; everything else is in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["build_ffi.py:ffibuilder"])
