"""The verdict of a check: whether a server counts as the plan does, and where to look if not."""

from __future__ import annotations

from evs_cli.errors import PlanDiffersError
from evs_cli.servers.comparison import CheckReport


def difference_of(report: CheckReport) -> PlanDiffersError | None:
    """What differs, and the next step; None where nothing does."""
    return PlanDiffersError(_difference(report), hint=_next_step(report)) if report.differs else None


def _difference(report: CheckReport) -> str:
    """What differs, in a sentence."""
    asked, whole = report.asked, report.comparisons[0]
    if whole.differs:
        return (
            f"{asked.url} counts {whole.served:,} prompt tokens for {asked.video}, "
            f"{asked.dialect} plans {whole.planned:,}"
        )
    kinds = [comparison.kind for comparison in report.comparisons if comparison.differs]
    return f"{asked.url} takes {asked.video} otherwise than {asked.dialect} plans it: {', '.join(kinds)}"


def _next_step(report: CheckReport) -> str:
    """Where to look."""
    if report.suggestions:
        return f"Perhaps the server is started or asked otherwise: {report.suggestions[0]}."
    kinds = {comparison.kind for comparison in report.comparisons if comparison.differs}
    if kinds & {"text before", "text behind"}:
        return "Its chat template, or a system prompt of its own, is not the checkpoint's."
    if kinds == {"longest sequence"}:
        return "Plan with the server's own: --max-model-len."
    return "Give the options the server was started with: --server-cmd with its command line."
