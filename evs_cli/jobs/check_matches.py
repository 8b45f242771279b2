"""Finds plans that count as the server does: another rate, an option left out, or another dialect.

In: a clip, a model, the request that was planned, what the server answered. Out: sentences. It plans, and asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from evs_cli.dialects import ALL
from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.served import ServedClip
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import EvsError
from evs_cli.jobs.check_plan import CheckedClip
from evs_cli.pipeline.request import SessionRequest
from evs_cli.video.sampling import SamplingRequest

_MOST = 3
_RATES = tuple(index / 100 for index in range(96))
_FPS = (1.0, 2.0, 4.0, 0.5, 8.0)
"""Frames a second that servers are started with."""


@dataclass(frozen=True)
class ServerCount:
    """What the server said, as far as a plan can say it too."""

    prompt_tokens: int
    """L, the whole prompt."""
    video_ids: tuple[int, ...] | None
    """Ids of the video's part; None where the server tells a number alone."""

    @property
    def length(self) -> int:
        """What is compared: ids of the video's part, or of the whole prompt."""
        return self.prompt_tokens if self.video_ids is None else len(self.video_ids)


def matching_plans(clip: CheckedClip, answered: ServerCount) -> tuple[str, ...]:
    """Sentences on the other plans that give the server's very ids, or its number where it tells no ids; three at most.

    Every rate is tried of the plan as it is, and the likely ones of any other: a number is soon met by chance.
    """
    chat = clip.session.options if answered.video_ids is None else EncodeOptions()
    found = []
    for name, other in _others(clip):
        planner, server = other.planner, other.served.server
        likely = sorted({server.pruning.q, clip.q, 0.0}) if server.pruning.can_prune else [0.0]
        without = planner.sequence_length([server], 0.0, chat) - server.total_tokens
        rates = [
            q
            for q in (_RATES if name == clip.session.dialect.name and server.pruning.can_prune else likely)
            if without + sum(server.client_counts(q)) == answered.length
        ]
        if not rates:
            continue
        at_rate = "" if rates[0] == clip.q else f" at q = {rates[0]:g}"
        at_rate += f" to {rates[-1]:g}" if at_rate and len(rates) > 1 else ""
        if answered.video_ids is None:
            found.append(f"{name}{at_rate} counts the same")
        elif tuple(planner.client_ids(other.served, rates[0], EncodeOptions())) == answered.video_ids:
            found.append(f"{name}{at_rate} writes the same ids")
    return tuple(found[:_MOST])


def whole_frame_difference(clip: ServedClip, difference: int) -> tuple[str, ...]:
    """A sentence where an unpruned prompt differs by whole frames of tokens.

    Args:
        clip: as planned.
        difference: ids the server counts beyond the plan.
    """
    layout, per_frame = clip.encode.layout, clip.server.tokens_per_frame
    if clip.q > 0 or difference == 0:
        return ()
    firsts = layout.token_positions.reshape(layout.num_frames, per_frame)[:, 0]
    separators = {int(step) - per_frame for step in (firsts[1:] - firsts[:-1])} or {0}  # times differ in their letters
    for separator in sorted(separators):
        frames, rest = divmod(abs(difference), per_frame + separator)
        if rest == 0:
            between = f" and {separator} separators" if separator else ""
            noun, sign = "frame" if frames == 1 else "frames", "more" if difference > 0 else "fewer"
            return (f"{frames} {noun} of {per_frame:,} tokens{between} {sign} would be {difference:+,}",)
    return ()


def _others(clip: CheckedClip) -> Iterator[tuple[str, CheckedClip]]:
    """The dialect of the plan as it is and less its options one by one, then the other servers; each with its name."""
    # What other options its line would have is asked here too: the request's part may stand in the server's.
    session = replace(clip.session, server=replace(clip.session.server, trusts_requests=None))
    own, plain = session.dialect.name, EncodeOptions(prompt=session.options.prompt, system=session.options.system)
    variants = [(own, session)]
    if session.sampling != SamplingRequest() or session.options != plain:
        unasked = replace(session, sampling=SamplingRequest(), options=plain)
        variants.append((f"{own} without what the request asks of sampling and size", unasked))
    if session.server.changes_plans:
        variants.append((f"{own} without the server's options", replace(session, server=ServerOptions())))
    variants += [(f"{own} at {fps:g} fps", _at_rate(session, fps)) for fps in _FPS]
    for dialect in ALL:
        if not dialect.is_evs and dialect.server != session.dialect.server:
            variants.append((dialect.name, replace(session, dialect=dialect, server=ServerOptions())))
    for name, variant in variants:
        try:
            yield name, clip.replanned(variant)
        except EvsError:  # that server would refuse the clip, so it is not the one that answered
            continue


def _at_rate(session: SessionRequest, fps: float) -> SessionRequest:
    """The request to a server that samples so many frames a second, whether by a request or by its start."""
    rules = session.dialect.rules
    if rules.samples_by_request:
        return replace(session, sampling=SamplingRequest(fps=fps))
    return replace(session, sampling=SamplingRequest(), server=rules.configured(session.server, {"fps": fps}))
