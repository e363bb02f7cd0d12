"""`make eval`: how good recall is on public questions, beside its single channels and the figures to beat."""

import argparse
import json
import platform
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.database import bench_database
from tests.conftest import TestDatabase
from tests.eval.asking import DEFAULT, WAYS, Answers, ask_all, evaluated_service, stored, without_pruning
from tests.eval.data import CATEGORIES, FOLDER, SETS, first_questions

LOCOMO_METRICS = ("recall@5", "recall@10", "recall@20", "MRR")
PASSAGE_METRICS = ("NDCG@10", "recall@10")
# The best that was measured outside of the service, with nothing tuned on this data.
TO_BEAT: dict[str, dict[str, float]] = {
    "locomo": dict(zip(LOCOMO_METRICS, (0.716, 0.792, 0.856, 0.570), strict=True)),
    "scifact": dict(zip(PASSAGE_METRICS, (0.738, 0.856), strict=True)),
    "hotpotqa300": dict(zip(PASSAGE_METRICS, (0.839, 0.925), strict=True)),
}
UNPRUNED = {f"{way}, every term": WAYS[way] for way in (DEFAULT, "lexical alone")}
Rows = dict[str, dict[str, float]]


def main() -> int:
    """Evaluates the sets that were named, or all; 1 when recall is not above all it is held against."""
    parser = argparse.ArgumentParser(prog="make eval ARGS=...", description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS), help="which sets, separated by commas (default: all)")
    parser.add_argument("--limit", type=int, help="no more than so many questions of each set")
    parser.add_argument("--out", type=Path, default=Path("eval-results"), help="folder for the JSON")
    options = parser.parse_args()
    names = options.sets.split(",")
    if unknown := set(names) - SETS.keys():
        parser.error(f"no such set: {', '.join(sorted(unknown))}")
    if not FOLDER.is_dir():
        print("Nothing to evaluate: the public data is expected beside the project, in ../shared/eval.")
        return 0
    results: dict[str, Any] = {}
    short: list[str] = []
    with bench_database() as database, evaluated_service(database) as url:
        for name in names:
            results[name] = evaluate(database, url, name, limit=options.limit)
            short += print_set(name, results[name])
    options.out.mkdir(exist_ok=True)
    path = options.out / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(
        json.dumps({"python": platform.python_version(), "limit": options.limit, "sets": results}, indent=2)
    )
    print(f"\nwritten to {path}")
    for line in short:
        print(f"SHORT: {line}")
    return 1 if short else 0


def evaluate(database: TestDatabase, url: str, name: str, *, limit: int | None) -> dict[str, Any]:
    """One set, as rows of figures."""
    metrics = LOCOMO_METRICS if name == "locomo" else PASSAGE_METRICS
    corpora = first_questions(SETS[name](), limit)
    notes = sum(len(corpus.notes) for corpus in corpora)
    print(f"... {name}: storing and embedding {notes:,} notes", file=sys.stderr, flush=True)
    started = time.perf_counter()
    with stored(database, url, name, corpora) as projects:
        ready = time.perf_counter() - started
        print(f"... {name}: asking, after {ready:.0f} s", file=sys.stderr, flush=True)
        answers = ask_all(projects, WAYS)
        with without_pruning(database):
            answers |= ask_all(projects, UNPRUNED)
    rows: Rows = {way: {metric: told.value(metric) for metric in metrics} for way, told in answers.items()}
    return {
        "notes": notes,
        "questions": sum(len(corpus.questions) for corpus in corpora),
        "seconds_until_embedded": round(ready, 1),
        "milliseconds": {way: statistics.median(told.seconds) * 1e3 for way, told in answers.items()},
        "figures": rows,
        "to_beat": TO_BEAT[name],
        "by_category": by_category(answers[DEFAULT], metrics) if name == "locomo" else {},
    }


def by_category(told: Answers, metrics: tuple[str, ...]) -> Rows:
    """The same by the kind of question."""
    asked = {question.category for question, _ in told.found}
    return {
        category: {metric: told.value(metric, category) for metric in metrics}
        for category in CATEGORIES.values()
        if category in asked
    }


def print_set(name: str, result: dict[str, Any]) -> list[str]:
    """A table of one set; answers where recall falls short."""
    figures: Rows = result["figures"]
    metrics = list(result["to_beat"])
    print(f"\n{name}: {result['questions']} questions, {result['notes']:,} notes")
    print(f"{'':<30}" + "".join(f"{metric:>11}" for metric in metrics) + f"{'median':>11}")
    for way, row in figures.items():
        print_row(way, row, f"{result['milliseconds'][way]:>8.1f} ms")
    print_row("to beat", result["to_beat"])
    for category, row in result["by_category"].items():
        print_row(f"  {category}", row)
    rivals = {"the figure to beat": result["to_beat"]} | {way: figures[way] for way in WAYS if way.endswith(" alone")}
    return [
        f"{name} {metric}: {figures[DEFAULT][metric]:.3f}, {rival} {row[metric]:.3f}"
        for rival, row in rivals.items()
        for metric in metrics
        if figures[DEFAULT][metric] <= row[metric]
    ]


def print_row(title: str, row: dict[str, float], extra: str = "") -> None:
    """One line of figures."""
    print(f"{title:<30}" + "".join(f"{value:>11.3f}" for value in row.values()) + extra, flush=True)


if __name__ == "__main__":
    sys.exit(main())
