"""Checks that every provider and every pair of endpoints must pass."""

from fabricio.testing.conformance import check_endpoint_pair

__all__ = ["check_endpoint_pair"]
