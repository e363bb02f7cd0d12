"""The public data beside the project, as notes to store and questions with what answers them."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.service import ROOT

FOLDER = ROOT.parent / "shared" / "eval"
SESSION = re.compile(r"session_(\d+)")
TURN = re.compile(r"D\d+:\d+")
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


@dataclass(frozen=True)
class Question:
    """What is asked, and the names of the notes that hold the answer."""

    text: str
    gold: frozenset[str]
    category: str = ""


@dataclass(frozen=True)
class Corpus:
    """What one project knows: notes by name, and the questions about them."""

    name: str
    notes: dict[str, dict[str, Any]]
    questions: list[Question]


def read_locomo(folder: Path = FOLDER) -> list[Corpus]:
    """Five conversations, each a thread."""
    conversations: list[dict[str, Any]] = json.loads((folder / "locomo" / "conversations.json").read_text())
    return [_conversation(f"conversation-{number}", one) for number, one in enumerate(conversations)]


def _conversation(name: str, one: dict[str, Any]) -> Corpus:
    notes: dict[str, dict[str, Any]] = {}
    for when, turn in _turns(one["conversation"]):
        notes[turn["dia_id"]] = {
            "content": turn["text"],
            "author": turn["speaker"],
            "occurred_at": when.isoformat(),
            "thread_id": name,
            "position": len(notes),
        }
    questions: list[Question] = []
    for asked in one["qa"]:
        # Some cells hold several turns, and one names a turn that is not there.
        gold = frozenset(TURN.findall(" ".join(asked["evidence"]))) & notes.keys()
        if gold:
            questions.append(Question(asked["question"], frozenset(gold), CATEGORIES[asked["category"]]))
    return Corpus(name, notes, questions)


def _turns(conversation: dict[str, Any]) -> Iterator[tuple[datetime, dict[str, Any]]]:
    sessions = sorted(int(found[1]) for key in conversation if (found := SESSION.fullmatch(key)))
    for number in sessions:
        said = conversation[f"session_{number}_date_time"]
        when = datetime.strptime(said, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for turn in conversation[f"session_{number}"]:
            yield when, turn


def read_passages(name: str, folder: Path = FOLDER) -> list[Corpus]:
    """One project of passages that stand alone."""
    lines = (folder / name / "corpus.jsonl").read_text().splitlines()
    notes = {str(one["_id"]): {"content": f"{one['title']}. {one['text']}"} for one in map(json.loads, lines)}
    gold: dict[str, set[str]] = {}
    for line in (folder / name / "qrels.tsv").read_text().splitlines()[1:]:
        question, passage, score = line.split("\t")
        if int(score) > 0 and passage in notes:
            gold.setdefault(question, set()).add(passage)
    asked = map(json.loads, (folder / name / "queries.jsonl").read_text().splitlines())
    questions = [Question(one["text"], frozenset(gold[one["_id"]])) for one in asked if one["_id"] in gold]
    return [Corpus(name, notes, questions)]


SETS: dict[str, Callable[[], list[Corpus]]] = {
    "locomo": read_locomo,
    "hotpotqa300": lambda: read_passages("hotpotqa300"),
    "scifact": lambda: read_passages("scifact"),
}


def first_questions(corpora: list[Corpus], most: int | None) -> list[Corpus]:
    """The same with no more than so many questions in all, taken in turn from each."""
    if most is None:
        return corpora
    share = [most // len(corpora) + (number < most % len(corpora)) for number in range(len(corpora))]
    return [Corpus(one.name, one.notes, one.questions[:count]) for one, count in zip(corpora, share, strict=True)]
