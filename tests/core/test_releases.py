"""What an older transformers cannot do is refused, with the release that can; what it can do is not."""

from dataclasses import replace

import pytest
from packaging.version import Version
from pruned_made import make_pruned

from evs_cli.core import releases
from evs_cli.core.model_inputs import require_release
from evs_cli.encoders.registry import FAMILIES, encoder_of
from evs_cli.encoders.source import ModelSource
from evs_cli.errors import ModelError


@pytest.fixture
def installed(monkeypatch):
    """``installed("5.16.1")``: the release that transformers says it is."""

    def be(release):
        monkeypatch.setattr(releases, "version", lambda name: release)

    return be


@pytest.mark.parametrize(
    ("model_type", "release", "needed"),
    [
        ("qwen3_vl", "5.16.1", "5.18"),
        ("qwen3_vl", "5.17.0", "5.18"),
        ("smolvlm", "5.17.0", "5.18"),
        ("smolvlm", "5.20.1", "5.21"),
        ("smolvlm", "5.20.2", "5.21"),
        ("qwen3_vl", "5.18.0", None),
        ("qwen3_vl", "5.20.2", None),
        ("smolvlm", "5.19.0", None),
        ("smolvlm", "5.20.0", None),
        ("smolvlm", "5.21.0", None),
        ("smolvlm", "6.0.0.dev0", None),
    ],
)
def test_which_release_takes_a_pruned_video(installed, monkeypatch, model_type, release, needed):
    installed(release)
    video = replace(make_pruned(), modality="video", provenance={"model": {"model_type": model_type}})
    if needed is None:
        require_release(model_type)
        return
    with pytest.raises(ModelError, match=rf"needs transformers {needed} or newer; {release} is installed\.$") as error:
        video.model_inputs()
    assert error.value.exit_code == 4
    assert error.value.hint == f"pip install 'transformers>={needed}'"


def test_a_family_that_needs_a_newer_release_names_it(installed):
    source = ModelSource("some-nemotron", "nowhere", None, {"model_type": "nemotron_h_omni"})
    installed("5.23.0")
    with pytest.raises(ModelError, match=r"^cannot use some-nemotron: .* needs transformers 5\.24 or newer; 5\.23"):
        encoder_of(source)
    installed("5.24.0")
    assert encoder_of(source)


def test_the_table_of_families_names_what_it_needs():
    for family in FAMILIES.values():
        assert (family.min_transformers is None) == ("transformers" not in family.needs)
        assert family.min_transformers is None or Version(family.min_transformers)
