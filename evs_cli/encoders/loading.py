"""What all families share when they call transformers: quiet logs, errors in our words, the vision part alone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from evs_cli.encoders.source import ModelSource
from evs_cli.errors import EvsError, ModelError

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars and warnings off the terminal, unless evs itself logs at DEBUG (``-vv``)."""
    from transformers.utils import logging as library_logging

    if logging.getLogger("evs_cli").isEnabledFor(logging.DEBUG):
        yield
        return
    verbosity, bars = library_logging.get_verbosity(), library_logging.is_progress_bar_enabled()
    library_logging.set_verbosity_error()
    library_logging.disable_progress_bar()
    try:
        yield
    finally:
        library_logging.set_verbosity(verbosity)
        if bars:
            library_logging.enable_progress_bar()


@contextlib.contextmanager
def loading_errors(source: ModelSource) -> Iterator[None]:
    """Turn what transformers, safetensors and the hub raise while loading into a ``ModelError``."""
    from huggingface_hub.errors import HfHubHTTPError
    from safetensors import SafetensorError

    try:
        yield
    except EvsError:
        raise
    except ImportError as error:
        raise ModelError(
            f"cannot load {source.name}: {_first_line(error)}.", hint="pip install the package."
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, HfHubHTTPError) as error:
        raise ModelError(
            f"cannot load {source.name} ({source.model_type}): {_first_line(error)}",
            hint="Check that its files are whole, and the transformers version; --debug shows the whole error.",
        ) from error


def load_vision_part(source: ModelSource, device: str, dtype: torch.dtype, *, auto_class: str = "AutoModel") -> Any:
    """The model without its language layers: vision tower, projector and token embedding.

    A text model of zero layers is transformers' own configuration, so the features are the whole model's, bit for
    bit; the tensors of the language layers are never read from the files. ``auto_class`` is the class of transformers
    that knows the family.
    """
    import transformers

    with loading_errors(source), quiet_transformers():
        config = transformers.AutoConfig.from_pretrained(source.location, **source.pretrained_arguments())
        text = config.get_text_config()
        for name in ("layer_types", "layers_block_type", "mlp_layer_types"):
            if getattr(text, name, None):
                setattr(text, name, [])
        text.num_hidden_layers = 0
        model = getattr(transformers, auto_class).from_pretrained(
            source.location, config=config, dtype=dtype, **source.pretrained_arguments()
        )
    return model.to(device).eval()


def load_processor(source: ModelSource) -> Any:
    """The checkpoint's processor: tokenizer, chat template and video processor."""
    from transformers import AutoProcessor

    with loading_errors(source), quiet_transformers():
        return AutoProcessor.from_pretrained(source.location, **source.pretrained_arguments())


def _first_line(error: Exception) -> str:
    """The first line of an error's text, without a full stop at its end."""
    text = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return text[:300].rstrip(".")
