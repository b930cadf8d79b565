"""Fixtures that the tests of the compat folder have as well."""

from tests.spark import spark

__all__ = ["spark"]
