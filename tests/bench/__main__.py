"""`make bench`: every figure beside its floor in the same run, interleaved, medians, as a table and JSON."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.database import bench_database
from tests.bench.facts import read_beside_history, write_rates
from tests.bench.forgetting import forgetting
from tests.bench.graph import neighbors
from tests.bench.ground_floor import hot_read, http_rates, queue_rates
from tests.bench.history import hidden_or_never, look_back
from tests.bench.measure import Figure
from tests.bench.objects import objects
from tests.bench.pipeline import pipeline
from tests.bench.recall import lexical, recall, vectors

BENCHES: dict[str, Callable[..., list[Figure]]] = {
    "hot_read": hot_read,
    "http": http_rates,
    "queue": queue_rates,
    "fact_writes": write_rates,
    "fact_reads": read_beside_history,
    "look_back": look_back,
    "hidden": hidden_or_never,
    "neighbors": neighbors,
    "objects": objects,
    "recall": recall,
    "lexical": lexical,
    "vectors": vectors,
    "pipeline": pipeline,
    "forgetting": forgetting,
}


def main() -> int:
    """Runs the benches that were named, or all."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], help="which benches (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each measurement is repeated")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder for the JSON")
    options = parser.parse_args()
    figures: list[Figure] = []
    with bench_database() as database:
        for name in options.names or BENCHES:
            # Others on the same machine make every figure worse.
            print(f"... {name} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
            figures += BENCHES[name](database, rounds=options.rounds)
    print_table(figures)
    options.out.mkdir(exist_ok=True)
    path = options.out / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(
        json.dumps({"python": platform.python_version(), "figures": [figure.as_dict() for figure in figures]}, indent=2)
    )
    print(f"\nwritten to {path}")
    return 0 if all(figure.holds for figure in figures) else 1


def print_table(figures: list[Figure]) -> None:
    """One line a figure: value, floor, ratio, target, and whether it holds."""
    print(f"\n{'figure':<46} {'value':>12} {'floor':>12} {'ratio':>7}  {'target':<12}")
    for figure in figures:
        floor = "" if figure.floor is None else f"{figure.floor:,.1f}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        verdict = "" if figure.target is None else ("holds" if figure.holds else "MISSED")
        shown = figure.target_text
        print(f"{figure.name:<46} {figure.value:>12,.1f} {floor:>12} {ratio:>7}  {shown:<12} {verdict} {figure.unit}")


if __name__ == "__main__":
    sys.exit(main())
