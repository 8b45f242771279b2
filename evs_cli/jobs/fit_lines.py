"""The lines that do what fits: ``evs prune``, the server's command line, and the request to it."""

from __future__ import annotations

import shlex

from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.requests import ServerRecipe, ServingRequest, evs_flags
from evs_cli.jobs.fit import FitRequest
from evs_cli.jobs.inputs import STDIN
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.together import RequestClips, RequestPlan


def prune_command(plan: RequestPlan, clips: RequestClips, session: SessionRequest, q: float) -> str:
    """The ``evs prune`` line for a choice, as a shell takes it; ``VIDEO`` stands for the file of numbers alone."""
    # What is counted and not run is planned.
    is_run = plan.clips[0].encode.pruning_method == "evs"
    words = ["evs", "prune" if is_run else "plan", *(_file_name(clip.source.path) for clip in plan.clips)]
    words += ["--together"] if len(plan.clips) > 1 and not is_run else []
    words += ["--model", session.model, "--q", f"{q:g}"]
    words += [] if session.revision is None else ["--revision", session.revision]
    words += ["--trust-remote-code"] if session.trust_remote_code else []
    words += [] if session.decoder == "pyav" else ["--decoder", session.decoder]
    options = plan.options
    if clips.planner is not None:
        words += evs_flags(clips.dialect.name, clips.planner.server_options(plan.sampling, options))
        words += [] if options.prompt is None else ["--prompt", options.prompt]
        return shlex.join(words + ([] if options.system is None else ["--system", options.system]))
    flags = {"start_seconds": "--start", "end_seconds": "--end"}
    for values in (vars(plan.sampling), vars(options)):
        for name, value in values.items():
            flag = flags.get(name, "--" + name.replace("_", "-"))
            if isinstance(value, bool):
                words.append(flag if value else "--no-cap")
            elif value is not None:
                words += [flag, f"{value:.15g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def _file_name(path: str | None) -> str:
    """A file as a command line takes it."""
    name = path or "VIDEO"
    return f"./{name}" if name.startswith("-") and name != STDIN else name


def server_recipe(plan: RequestPlan, clips: RequestClips, request: FitRequest, q: float) -> ServerRecipe | None:
    """The server line and the request for a choice; None for ``evs``."""
    planner, options = clips.planner, plan.options
    if planner is None:
        return None
    serving = ServingRequest(
        model=planner.encoder.source.served_location,
        q=q,
        own_rate=planner.rules.pruning(planner.model, ServerOptions()).q,
        context=request.context,
        videos=tuple(clip.source.path for clip in plan.clips),
        prompt=options.prompt,
        system=options.system,
        # What a server keeps anyway is no answer that was asked for.
        max_tokens=request.reserve if request.reserve > planner.rules.context_margin else None,
    )
    return planner.rules.recipe(serving, planner.server_options(plan.sampling, options), planner.options)
