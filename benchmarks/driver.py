"""Interleaved runs of several contenders, their medians and their ratios.

The one driver of all benchmarks: a case file says what one run of each contender is, and this
module runs them in turn (A B A B ...), so that a machine that slows down slows all of them, then
prints one table and writes one JSON file.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from benchmarks.quiet import QUIET_CORES, ForeignWork, wait_until_quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Names of the contenders, as printed and as found in the JSON.
FABRICIO = "fabricio"
PLAIN_C = "plain C"
UVLOOP_STREAMS = "uvloop streams"
ASYNCIO_STREAMS = "asyncio streams"

Figures = dict[str, float]

Providers = Annotated[
    list[str], typer.Option("--provider", help="libfabric provider; may be given several times")
]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="runs of each contender")]
Quick = Annotated[
    bool, typer.Option("--quick", help="at most 3 rounds, each of a quarter of the work")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="file to write every run to")]
Patience = Annotated[
    float, typer.Option("--patience", help="seconds to wait for a quiet machine before each run")
]
Loop = Annotated[str, typer.Option("--loop", help="event loop of fabricio: uvloop or asyncio")]

DEFAULT_PROVIDERS = ["tcp", "shm"]
DEFAULT_ROUNDS = 5
DEFAULT_PATIENCE_S = 10.0
QUICK_ROUNDS = 3
QUICK_PART = 4

# Figure that the driver adds to those of every run: cores that others used meanwhile.
FOREIGN = "foreign_cores"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure.

    Attributes:
        provider: libfabric provider of those contenders that use one.
        parameters: what tells this case from the others, such as page_bytes.
        contenders: name to a function that does one run and returns its figures.
    """

    provider: str
    parameters: Mapping[str, int | str]
    contenders: Mapping[str, Callable[[], Figures]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All runs of one case, by contender, in the order run."""

    case: Case
    runs: Mapping[str, list[Figures]]

    def values(self, contender: str, figure: str) -> list[float]:
        """Return one figure of every run of a contender."""
        return [run[figure] for run in self.runs[contender]]

    def median(self, contender: str, figure: str) -> float:
        """Return the median of one figure over the runs of a contender."""
        return statistics.median(self.values(contender, figure))

    def ratio(self, contender: str, reference: str, figure: str) -> float:
        """Return the contender's median over the reference's."""
        return self.median(contender, figure) / self.median(reference, figure)


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of the table: its title, its key in the figures, its number format."""

    title: str
    figure: str
    form: str


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a benchmark prints.

    Attributes:
        name: the benchmark's, in the table's title and the JSON.
        columns: medians to print; the first one is compared, with its range.
        references: contenders that the others are divided by, where a case has them.
    """

    name: str
    columns: tuple[Column, ...]
    references: tuple[str, ...] = ()

    def run(
        self, cases: Iterable[Case], rounds: int, patience_s: float, json_file: Path | None
    ) -> None:
        """Run all cases, print the table and write the JSON.

        Args:
            cases: run one after the other.
            rounds: runs of each contender of a case.
            patience_s: how long to wait, before each run, until others leave the machine alone.
            json_file: where the JSON goes; None: nowhere.

        Raises:
            Exception: whatever a contender raises; nothing is printed or written then.
        """
        console = Console()
        outcomes: list[Outcome] = []
        with console.status("") as status:
            for case in cases:
                runs: dict[str, list[Figures]] = {name: [] for name in case.contenders}
                for number in range(rounds):
                    for name, contender in case.contenders.items():
                        status.update(f"{_label(case)}: {name}, round {number + 1} of {rounds}")
                        wait_until_quiet(patience_s)
                        work = ForeignWork()
                        figures = contender()
                        runs[name].append(figures | {FOREIGN: work.cores()})
                outcomes.append(Outcome(case, runs))
        console.print(self._table(outcomes, rounds))
        foreign = [run[FOREIGN] for o in outcomes for runs in o.runs.values() for run in runs]
        disturbed = sum(cores > QUIET_CORES for cores in foreign)
        if disturbed:
            console.print(
                f"Others used more than {QUIET_CORES} cores during {disturbed} of {len(foreign)} "
                "runs: ratios flatter whoever spins less. Run it again on a quiet machine."
            )
        if json_file is not None:
            json_file.write_text(json.dumps(self._document(outcomes), indent=1) + "\n")

    def _table(self, outcomes: list[Outcome], rounds: int) -> Table:
        table = Table(title=f"{self.name}: medians of {rounds} interleaved runs")
        table.add_column("case")
        table.add_column("contender")
        columns = (*self.columns, Column("others' cores", FOREIGN, ".2f"))
        for column in columns:
            table.add_column(column.title, justify="right")
        main = self.columns[0]
        table.add_column(f"{main.title} from .. to", justify="right")
        for reference in self.references:
            table.add_column(f"ratio to {reference}", justify="right")
        for outcome in outcomes:
            for name in outcome.runs:
                values = outcome.values(name, main.figure)
                table.add_row(
                    _label(outcome.case),
                    name,
                    *(format(outcome.median(name, c.figure), c.form) for c in columns),
                    f"{min(values):{main.form}} .. {max(values):{main.form}}",
                    *(self._ratio(outcome, name, reference) for reference in self.references),
                )
            table.add_section()
        return table

    def _ratio(self, outcome: Outcome, name: str, reference: str) -> str:
        if name == reference or reference not in outcome.runs:
            return ""
        return f"{outcome.ratio(name, reference, self.columns[0].figure):.3f}"

    def _document(self, outcomes: list[Outcome]) -> dict[str, object]:
        figure = self.columns[0].figure
        return {
            "benchmark": self.name,
            "machine": describe(),
            "cases": [
                {
                    "provider": outcome.case.provider,
                    "parameters": dict(outcome.case.parameters),
                    "runs": outcome.runs,
                    "medians": {
                        name: {key: outcome.median(name, key) for key in runs[0]}
                        for name, runs in outcome.runs.items()
                    },
                    "ratios": {
                        f"{name} / {reference}": outcome.ratio(name, reference, figure)
                        for name in outcome.runs
                        for reference in self.references
                        if reference in outcome.runs and name != reference
                    },
                }
                for outcome in outcomes
            ],
        }


def amount(rounds: int, quick: bool) -> tuple[int, int]:
    """Return how many rounds to run, and the part of the work of each (1: all, 4: a quarter)."""
    return (min(rounds, QUICK_ROUNDS), QUICK_PART) if quick else (rounds, 1)


def _label(case: Case) -> str:
    """Name a case in a few words: `tcp, page_bytes 4096`."""
    return ", ".join([case.provider, *(f"{key} {value}" for key, value in case.parameters.items())])


def percentile(values: list[float], percent: int) -> float:
    """Return the value below which `percent` of 100 of the values lie; the list gets sorted."""
    values.sort()
    return values[len(values) * percent // 100]
