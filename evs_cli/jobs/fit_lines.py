"""The lines that do what fits: ``evs prune``, the server's command line, and the request to it."""

from __future__ import annotations

import shlex

from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.requests import ServerRecipe, ServingRequest, evs_flags
from evs_cli.jobs.fit import FitRequest
from evs_cli.jobs.inputs import STDIN
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.clips import Clips
from evs_cli.pipeline.request import SessionRequest


def prune_command(planned: ClipPlan, clips: Clips, session: SessionRequest, q: float) -> str:
    """The ``evs prune`` line for a choice, as a shell takes it; ``VIDEO`` stands for the file of numbers alone."""
    video, options = planned.source.path or "VIDEO", planned.options
    name = f"./{video}" if video.startswith("-") and video != STDIN else video
    # What is counted and not run is planned.
    verb = "prune" if planned.encode.pruning_method == "evs" else "plan"
    words = ["evs", verb, name, "--model", session.model, "--q", f"{q:g}"]
    words += [] if session.revision is None else ["--revision", session.revision]
    words += ["--trust-remote-code"] if session.trust_remote_code else []
    words += [] if session.decoder == "pyav" else ["--decoder", session.decoder]
    if clips.planner is not None:
        words += evs_flags(clips.dialect.name, clips.planner.server_options(planned.sampling, options))
        words += [] if options.prompt is None else ["--prompt", options.prompt]
        return shlex.join(words + ([] if options.system is None else ["--system", options.system]))
    flags = {"start_seconds": "--start", "end_seconds": "--end"}
    for values in (vars(planned.sampling), vars(options)):
        for name, value in values.items():
            flag = flags.get(name, "--" + name.replace("_", "-"))
            if isinstance(value, bool):
                words.append(flag if value else "--no-cap")
            elif value is not None:
                words += [flag, f"{value:.15g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def server_recipe(planned: ClipPlan, clips: Clips, request: FitRequest, q: float) -> ServerRecipe | None:
    """The server line and the request for a choice; None for ``evs``."""
    if clips.planner is None:
        return None
    options = planned.options
    serving = ServingRequest(
        model=clips.planner.encoder.source.served_location,
        q=q,
        own_rate=clips.planner.rules.pruning(clips.planner.model, ServerOptions()).q,
        context=request.context,
        video=planned.source.path,
        prompt=options.prompt,
        system=options.system,
        # What a server keeps anyway is no answer that was asked for.
        max_tokens=request.reserve if request.reserve > clips.planner.rules.context_margin else None,
    )
    planner = clips.planner
    return planner.rules.recipe(serving, planner.server_options(planned.sampling, options), planner.options)
