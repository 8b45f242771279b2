"""The table of what was held against servers, and the written reasons of what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cases import Case
from verdicts import Kind, Verdict


@dataclass(frozen=True)
class Reason:
    """Why a kind of clip differs, and where it is so."""

    why: str
    clips: tuple[str, ...]
    dialects: tuple[str, ...]
    families: tuple[str, ...] | None = None
    """None is every family."""

    def holds(self, result: CaseResult, verdict: Verdict) -> bool:
        """Whether it is the reason of this one."""
        is_family = self.families is None or result.case.family in self.families
        return verdict.clip in self.clips and result.dialect in self.dialects and is_family


_SGLANG = ("sglang@0.5.22", "sglang@0.5.23")
REASONS = (
    Reason(
        "FFmpeg 5.1 under torchcodec and libav 8 under evs read another length of the last frame, so another rate",
        ("slow.mp4", "long.mp4", "sixty.mp4"),
        _SGLANG,
    ),
    Reason(
        "torchcodec raises where a sampled frame does not decode, and a plan takes the file for whole",
        ("truncated.mp4", "stream.ts"),
        _SGLANG,
    ),
)
"""Every difference that is known, each with its cause."""


@dataclass(frozen=True)
class CaseResult:
    """One server on all clips."""

    dialect: str
    case: Case
    verdicts: tuple[Verdict, ...]

    @property
    def counts(self) -> Counter[Kind]:
        """Clips of each kind."""
        return Counter(verdict.kind for verdict in self.verdicts)

    @property
    def row(self) -> str:
        """A row of the table."""
        numbers = " | ".join(str(self.counts[kind]) for kind in Kind)
        return f"| {self.dialect} | {self.case.family} | `{self.case.name}` | {numbers} |"


def markdown(results: Sequence[CaseResult]) -> str:
    """A row a server, and the sum of all."""
    head = f"| dialect | family | options | {' | '.join(kind.value for kind in Kind)} |"
    total = sum((result.counts for result in results), Counter())
    last = f"| all | | | {' | '.join(str(total[kind]) for kind in Kind)} |"
    return "\n".join([head, f"|---|---|---|{'--:|' * len(Kind)}", *(result.row for result in results), last])


def summary(results: Sequence[CaseResult]) -> str:
    """A row a dialect and family: option sets, and what came out of all their clips."""
    lines = [
        f"| dialect | family | option sets | {' | '.join(kind.value for kind in Kind)} |",
        f"|---|---|--:|{'--:|' * len(Kind)}",
    ]
    for dialect, family in dict.fromkeys((result.dialect, result.case.family) for result in results):
        found = [result for result in results if (result.dialect, result.case.family) == (dialect, family)]
        total = sum((result.counts for result in found), Counter())
        numbers = " | ".join(str(total[kind]) for kind in Kind)
        lines.append(f"| {dialect} | {family} | {len(found)} | {numbers} |")
    return "\n".join(lines)


def details(results: Sequence[CaseResult]) -> str:
    """What differs, with its reason, and what both refuse."""
    lines = []
    for result in results:
        for verdict in result.verdicts:
            if verdict.kind is Kind.EQUAL:
                continue
            why = reason_of(result, verdict)
            told = "" if verdict.kind is Kind.REFUSED else f" -- {'NO REASON WRITTEN' if why is None else why.why}"
            place = f"{result.dialect} {result.case.family} {result.case.name}"
            lines.append(f"{verdict.kind.value}: {place} {verdict.clip}: {verdict.detail}{told}")
    return "\n".join(lines)


def unexplained(results: Sequence[CaseResult]) -> list[Verdict]:
    """What differs without a written reason."""
    return list(_unexplained(results))


def _unexplained(results: Sequence[CaseResult]) -> Iterator[Verdict]:
    for result in results:
        for verdict in result.verdicts:
            if verdict.kind is Kind.DIFFERS and reason_of(result, verdict) is None:
                yield verdict


def reason_of(result: CaseResult, verdict: Verdict) -> Reason | None:
    """The written reason of a difference; None where there is none."""
    return next((reason for reason in REASONS if reason.holds(result, verdict)), None)
