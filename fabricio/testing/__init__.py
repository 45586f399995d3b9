"""For tests and benchmarks: what every pair of endpoints must pass, and NICs that do not exist."""

from fabricio.testing.conformance import check_endpoint_pair
from fabricio.testing.simulation import NicStatistics, SimulatedNics

__all__ = ["NicStatistics", "SimulatedNics", "check_endpoint_pair"]
