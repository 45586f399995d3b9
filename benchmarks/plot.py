"""Draw what `benchmarks.netlab` measured: `python -m benchmarks.plot netlab.json netlab.png`.

Needs matplotlib, which nothing else here does: `pip install matplotlib`.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

GOAL_PERCENT = 97.1  # what the reference reaches on 32 NICs
STYLES = {"fabricio": ("#3949ab", "o"), "plain TCP": ("#9e9e9e", "s")}


def draw(source: str, target: str) -> None:
    """Draw payload in percent of the links' speed over the number of links."""
    pyplot: Any = import_module("matplotlib.pyplot")
    cases = json.loads(Path(source).read_text())["cases"]
    links = [case["parameters"]["links"] for case in cases]
    figure, axes = pyplot.subplots(figsize=(7, 3.6), dpi=120)
    for name, (colour, marker) in STYLES.items():
        runs = [[run["percent"] for run in case["runs"][name]] for case in cases]
        medians = [case["medians"][name]["percent"] for case in cases]
        low = [median - min(values) for median, values in zip(medians, runs, strict=True)]
        high = [max(values) - median for median, values in zip(medians, runs, strict=True)]
        axes.errorbar(
            links, medians, (low, high), label=name, color=colour, marker=marker, capsize=3
        )
    axes.axhline(GOAL_PERCENT, color="#c62828", linestyle="--", linewidth=1)
    axes.annotate(f"{GOAL_PERCENT} %", (links[0], GOAL_PERCENT), color="#c62828", va="bottom")
    axes.set_xscale("log", base=2)
    axes.set_xticks(links, [str(count) for count in links])
    axes.set_ylim(94, 101)
    axes.set_xlabel("links of 100 Mbit/s")
    axes.set_ylabel("payload, % of the links")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(target)


if __name__ == "__main__":
    typer.run(draw)
