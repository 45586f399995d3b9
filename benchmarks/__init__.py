"""Benchmarks of fabricio against plain C over libfabric and against streams over TCP."""
