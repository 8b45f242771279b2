"""EVS inside a model: its own feature method prunes, at a rate above 0, and is left as it is at 0.

``enable_evs(model, q)`` equips an instance, whatever made it; ``class Pruned(EVS, Model)`` is the same for a class
whose configuration carries the rate, as SGLang's models do. Both set a callable on the instance, nothing on the class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from evs_cli.errors import ModelError, UsageError
from evs_cli.integration.method import (
    METHODS,
    SERVER_METHOD,
    TRANSFORMERS_METHOD,
    PrunedMethod,
    can_report_grids,
    vision_number,
)
from evs_cli.integration.results import EVSConfig, EVSEmbeddingResult


class EVS(torch.nn.Module):
    """Base class or mixin of a model: ``class Mine(EVS)`` as SGLang writes it, or ``class Pruned(EVS, Model)``.

    It prunes videos at its configuration's rate. The class needs ``get_video_feature(items)`` (SGLang; items carry
    ``thw_grids``; gives ``EVSEmbeddingResult``) or ``get_video_features(..., video_grid_thw)`` (transformers; gives
    what it gave, pruned). The rate may be given to the constructor, and so to ``from_pretrained``; it is then written
    into the configuration.

    Args:
        config: the model's configuration.
        video_pruning_rate: rate in [0, 1) that takes the place of the configuration's.

    Raises:
        UsageError: no rate is given, or one outside [0, 1).
        ModelError: the class has no such method, or prunes by itself already.
    """

    evs_config: EVSConfig
    evs_enabled: bool
    """Whether it prunes: its rate is above 0."""
    original_get_video_feature: Callable[..., Any]
    """``get_video_feature`` as the class has it, where it has one."""

    def __init__(self, config: Any, *args: Any, video_pruning_rate: float | None = None, **kwargs: Any) -> None:
        if video_pruning_rate is not None:
            config.video_pruning_rate = EVSConfig(video_pruning_rate).video_pruning_rate
        evs_config = self.create_evs_config(config)
        initialise: Any = super().__init__
        if _following(type(self)) is torch.nn.Module:  # SGLang's form, where the class itself is the model
            initialise()
        else:
            initialise(config, *args, **kwargs)
        _install(self, evs_config)

    def evs_video(self, items: Sequence[Any]) -> EVSEmbeddingResult | torch.Tensor:
        """The pruned features of items, by ``original_get_video_feature``: what ``get_video_feature`` is above rate 0.

        Args:
            items: data items with ``thw_grids``; one or several, each of one video or several.

        Returns:
            The result; or the features as they are, where every video is a single frame.
        """
        method = PrunedMethod(self, SERVER_METHOD, self.original_get_video_feature, self.evs_config)
        pruned: EVSEmbeddingResult | torch.Tensor = method(items)
        return pruned

    @classmethod
    def from_pretrained(cls, *args: Any, video_pruning_rate: float | None = None, **kwargs: Any) -> Any:
        """Load a checkpoint as the model's own class does, and prune.

        transformers 5.24 renames the weights of older checkpoints for its own classes alone
        (``PreTrainedModel.is_custom_code``); in a subclass it starts those it does not find at random, with a table
        in the log. So the model's own class loads, and the model becomes one of this class.

        Args:
            args: as the model's own ``from_pretrained`` takes them; ``kwargs`` too.
            video_pruning_rate: rate in [0, 1) that takes the place of the configuration's.
            kwargs: see ``args``.

        Raises:
            ModelError: there is no such loader, or a subclass with an ``__init__`` of its own, which would not run.
        """
        loader = getattr(_following(cls), "from_pretrained", None)
        if loader is None or any("__init__" in vars(base) for base in cls.__mro__[: cls.__mro__.index(EVS)]):
            raise ModelError(
                f"{cls.__name__} cannot load a checkpoint: {_following(cls).__name__} has no from_pretrained, or "
                f"{cls.__name__} an __init__ of its own. Expected a subclass without one.",
                hint="Load the model as it is, then enable_evs(model, q).",
            )
        rate = None if video_pruning_rate is None else EVSConfig(video_pruning_rate).video_pruning_rate
        loaded = loader(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.__class__ = cls
        if rate is not None:
            model.config.video_pruning_rate = rate
        _install(model, cls.create_evs_config(model.config))
        return loaded

    @staticmethod
    def create_evs_config(config: Any) -> EVSConfig:
        """Rate and merge out of a model's configuration: ``video_pruning_rate``, ``vision_config.spatial_merge_size``.

        To be overridden where a configuration has other names.

        Raises:
            UsageError: if the configuration holds no rate.
        """
        rate = getattr(config, "video_pruning_rate", None)
        if rate is None:
            raise UsageError(
                f"No pruning rate: {type(config).__name__} has no video_pruning_rate. Expected 0 <= rate < 1 there.",
                hint="Give it to the model: from_pretrained(..., video_pruning_rate=0.7).",
            )
        return EVSConfig(rate, vision_number(config, "spatial_merge_size"))


def _following(cls: type[EVS]) -> type:
    """The class that EVS hands on to: the model proper, past mixins of this module."""
    behind = cls.__mro__[cls.__mro__.index(EVS) + 1 :]
    return next(base for base in behind if base is not FramesAsImages)


class FramesAsImages:
    """``get_video_features`` for models that encode video frames by ``get_image_features`` (InternVL).

    Nothing in a batch of images says that it is a video, so the caller does, by calling this method and telling the
    frames of each video. ``get_image_features`` stays as it is: images are never pruned.
    """

    def get_video_features(self, pixel_values: torch.Tensor, frames_per_video: Sequence[int], **kwargs: Any) -> Any:
        """Features of the frames of one video or several.

        Args:
            pixel_values: ``(frames, C, H, W)``, video after video.
            frames_per_video: frames of each video.
            kwargs: passed on to ``get_image_features``.

        Returns:
            What ``get_image_features`` gives; with EVS, its ``pooler_output`` is ``(K, D)``.

        Raises:
            UsageError: if the frames are not as many as the pixels hold.
        """
        frames = [int(n) for n in frames_per_video]
        given = int(pixel_values.shape[:-3].numel())
        if not frames or min(frames) < 1 or sum(frames) != given:
            raise UsageError(f"Invalid frames_per_video {frames} for {given} frames of pixels. Expected the same sum.")
        model: Any = self
        return model.get_image_features(pixel_values=pixel_values, **kwargs)


def enable_evs(model: Any, video_pruning_rate: float, *, frames_as_images: bool = False) -> EVSConfig:
    """Make a model that exists already prune the features of its videos.

    The models inside it that have such a method (transformers' ``base_model``) are equipped as well, for ``forward``
    and ``generate`` ask those. Calling again sets another rate; 0 takes everything back.

    Args:
        model: an object with ``get_video_feature`` or ``get_video_features``.
        video_pruning_rate: rate in [0, 1).
        frames_as_images: the model encodes frames by ``get_image_features``: give it a ``get_video_features`` that
            says so (see ``FramesAsImages``).

    Returns:
        The configuration it runs with.

    Raises:
        UsageError: a rate outside [0, 1).
        ModelError: a model that cannot prune, or prunes by itself already.
    """
    # A model of several parts (Qwen Omni) has its vision's configuration in the part that sees.
    sizes = [vision_number(getattr(owner, "config", None), "spatial_merge_size") for owner in _owners(model)]
    evs_config = EVSConfig(video_pruning_rate, max(sizes))
    disable_evs(model)
    if frames_as_images:
        if not _encodes_frames_as_images(model):
            raise ModelError(
                f"{type(model).__name__} does not encode video frames as images. "
                "Expected get_image_features, no get_video_features inside it, and a forward that takes no videos.",
                hint="evs_cli.prune_video prunes its videos from outside.",
            )
        model.__dict__[TRANSFORMERS_METHOD] = FramesAsImages.get_video_features.__get__(model)
    _install(model, evs_config)
    return evs_config


def _encodes_frames_as_images(model: Any) -> bool:
    """Whether a model has a method for images and none for videos: neither itself, nor a part, nor its ``forward``.

    Video-LLaVA has ``get_video_features`` on the model inside alone, and a tower of its own for videos.
    """
    parts = model.modules() if isinstance(model, torch.nn.Module) else [model]
    if not hasattr(model, "get_image_features") or any(hasattr(type(part), TRANSFORMERS_METHOD) for part in parts):
        return False
    forward = getattr(type(model), "forward", None)
    return forward is None or not any("video" in name for name in inspect.signature(forward).parameters)


def disable_evs(model: Any) -> None:
    """Give a model its own methods back; nothing happens to one without EVS."""
    if getattr(model, "evs_enabled", False):
        model.evs_enabled = False
    for owner in _owners(model):
        for name in METHODS:
            method = owner.__dict__.get(name)
            original = method.__wrapped__ if isinstance(method, PrunedMethod) else method
            added = getattr(original, "__func__", None) is FramesAsImages.get_video_features
            if isinstance(method, PrunedMethod) or added:
                del owner.__dict__[name]
                if not added and getattr(owner, name, None) != original:  # it was the instance's own
                    owner.__dict__[name] = original


def _install(model: Any, evs_config: EVSConfig) -> None:
    """Put a ``PrunedMethod`` in front of every feature method of a model and of the models inside it."""
    methods = [
        (owner, name, method)
        for owner in _owners(model)
        for name in METHODS
        if callable(method := getattr(owner, name, None))
    ]
    if not methods:
        raise ModelError(
            f"{type(model).__name__} cannot prune: it has neither {SERVER_METHOD} nor {TRANSFORMERS_METHOD}.",
            hint="A model that encodes frames by get_image_features: enable_evs(model, q, frames_as_images=True).",
        )
    for owner, name, method in methods:
        if isinstance(owner, EVS) and name == SERVER_METHOD:
            owner.original_get_video_feature = method
    if evs_config.enabled:
        for owner, *_ in methods:
            if float(getattr(owner, "video_pruning_rate", None) or 0) > 0:
                raise ModelError(
                    f"{type(owner).__name__} prunes by itself, at {owner.video_pruning_rate}, and would prune twice. "
                    "Expected a model whose own video_pruning_rate is 0."
                )
        if not any(can_report_grids(model, method) for *_, method in methods):
            raise ModelError(
                f"{type(model).__name__} cannot prune: its {methods[0][1]} is told no grid of its videos. Expected "
                "video_grid_thw among its parameters, or a method evs_token_grids(arguments, num_rows).",
                hint="evs_cli.prune_video prunes its videos from outside.",
            )
        for owner, name, method in methods:
            owner.__dict__[name] = PrunedMethod(model, name, method, evs_config)
    model.evs_config, model.evs_enabled = evs_config, evs_config.enabled


def _owners(model: Any) -> list[Any]:
    """The model, and the models inside it that have such a method: a head asks the one underneath, not itself."""
    inside = model.modules() if isinstance(model, torch.nn.Module) else ()
    return [model, *(part for part in inside if part is not model and any(hasattr(type(part), n) for n in METHODS))]
