"""Fuzz all that reads bytes of peers: see CONTRIBUTING.md.

python -m tests.fuzz [--minutes 10] [TARGET ...]    for so long, two targets at once
python -m tests.fuzz --replay FILE TARGET           what a run has found, once more
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"
AT_ONCE = 2
MAX_INPUT_BYTES = 4096
# A target that needs more, of time for one input or of memory in all, has found something.
INPUT_LIMIT_S = 20
MEMORY_LIMIT_MB = 1024


def fuzz(target: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """Fuzz one target in a process of its own; the status is 0 if it has found nothing."""
    corpus = FOUND / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.engine", target, str(corpus)),
            f"-max_total_time={seconds}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-timeout={INPUT_LIMIT_S}",
            f"-rss_limit_mb={MEMORY_LIMIT_MB}",
            f"-artifact_prefix={FOUND}/{target}-",
            "-print_final_stats=1",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def main(arguments: list[str] | None = None) -> int:
    """Fuzz or replay; returns the exit status: 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="an input, instead of fuzzing")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    chosen = parser.parse_args(arguments)
    names = chosen.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if chosen.replay is not None:
        for name in names:
            TARGETS[name](chosen.replay.read_bytes())
        return 0
    seconds = max(1, round(chosen.minutes * 60 / len(names)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = dict(zip(names, pool.map(lambda name: fuzz(name, seconds), names), strict=True))
    for name, run in runs.items():
        if run.returncode:
            sys.stdout.write(run.stdout)
        sys.stdout.write(f"{name}: {'failed' if run.returncode else 'nothing found'}\n")
    if any(run.returncode for run in runs.values()):
        sys.stdout.write(f"Inputs are in {FOUND}: python -m tests.fuzz --replay FILE TARGET\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
