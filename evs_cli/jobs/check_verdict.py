"""The verdict of a check: whether a server counts as the plan does, where to look if not, and notes on both."""

from __future__ import annotations

from evs_cli.dialects import dialect_of_owner, dialect_of_server
from evs_cli.errors import PlanDiffersError
from evs_cli.jobs.check_matches import ServerCount
from evs_cli.jobs.check_plan import CheckedClip
from evs_cli.servers.client import PromptUsage, ServedName, TokenizedPrompt
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
    if report.asked.has_server_options:
        return (
            "The options given do not explain it. See what the server was really started with: vLLM logs its "
            "non-default arguments at start, SGLang answers them at /server_info."
        )
    return "Give the options the server was started with: --server-cmd with its command line."


def server_notes(clip: CheckedClip, listed: ServedName, version: str | None) -> list[str]:
    """Where the server is not the one that is planned."""
    dialect, owner = clip.session.dialect, listed.owner
    known = dialect_of_owner(owner)
    if known is not None and known.server != dialect.server:
        return [f"the server calls itself {owner}, and the plan is {dialect.name}'s"]
    if version is None or dialect.note is not None:
        return []
    own = dialect_of_server(dialect.server, version)
    if own.note is not None:
        return [own.note]
    return [] if own == dialect else [f"the server is {dialect.server} {version}, and the plan is {dialect.name}'s"]


def answer_notes(
    clip: CheckedClip, answer: TokenizedPrompt | PromptUsage, answered: ServerCount, limit: int | None
) -> list[str]:
    """Where the server will refuse the prompt, or counts the video itself in another way."""
    notes = []
    if limit is not None and answered.prompt_tokens > limit - clip.planner.rules.context_margin:
        notes.append(f"the server takes {limit:,} tokens with the answer, so it will refuse this prompt")
    if isinstance(answer, PromptUsage) and answer.video_tokens is not None:
        own, separators = clip.planned.video_tokens, clip.planner.inner_separator_tokens(clip.served.server)
        between = f" and {separators:,} separators between them" if separators else ""
        notes.append(f"the server counts {answer.video_tokens:,} for the video; planned are {own:,} tokens{between}")
    return notes
