"""The comparison of two wheels' rules: on wheels made here, and on the release that is at hand."""

import os
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest


@pytest.fixture
def compare_wheels(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import compare_wheels

    return compare_wheels


def make_wheel(path, sources, edit=lambda file, text: text):
    """A wheel with every part of ``sources``; ``edit`` changes a file's text, or drops it with None."""
    files = defaultdict(list)
    for source in sources:
        for name in source.names or ("whole",):
            owner, _, method = name.partition(".")
            if name.isupper():
                files[source.path].append(f"{name} = 1  # so many\n")
            elif method:
                files[source.path].append(f"class {owner}:\n    def {method}(self):\n        return 1\n")
            else:
                files[source.path].append(f'def {name}():\n    """Says one."""\n    return 1\n')
    with zipfile.ZipFile(path, "w") as wheel:
        for file, parts in files.items():
            text = edit(file, "\n".join(parts))
            if text is not None:
                wheel.writestr(file, text)
    return str(path)


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_words_and_layout_are_no_change(compare_wheels, server, tmp_path, capsys):
    sources = compare_wheels.SOURCES[server]
    old = make_wheel(tmp_path / f"{server}-1.whl", sources)
    new = make_wheel(
        tmp_path / f"{server}-2.whl",
        sources,
        lambda _, text: text.replace("Says one.", "Tells it.").replace("# so many", "# many").replace("\n\n", "\n\n\n"),
    )
    assert compare_wheels.main([old, new]) == 0
    number = sum(len(source.names) or 1 for source in sources)
    assert capsys.readouterr().out == f"{number} of {number} parts are the same code\n"


def test_what_changed_is_named_with_its_rule(compare_wheels, tmp_path, capsys):
    sources = compare_wheels.SOURCES["vllm"]
    old = make_wheel(tmp_path / "vllm-1.whl", sources)

    def edit(file, text):
        if file == "vllm/envs.py":
            return text.replace("VLLM_MAX_IMAGE_PIXELS = 1", "VLLM_MAX_IMAGE_PIXELS = 2")
        if file == "vllm/engine/arg_utils.py":
            return text.replace("return 1", "return 2")
        return None if file == "vllm/multimodal/media/base.py" else text

    new = make_wheel(tmp_path / "vllm-2.whl", sources, edit)
    assert compare_wheels.main([old, new, "--diff"]) == 1
    lines = capsys.readouterr().out.splitlines()
    told = [line.split("  -- ")[0] for line in lines if "  -- " in line]
    assert told == [
        "gone       vllm/multimodal/media/base.py MediaDecodedBudget",
        "changed    vllm/envs.py VLLM_MAX_IMAGE_PIXELS",
        "changed    vllm/engine/arg_utils.py EngineArgs.get_batch_defaults",
    ]
    assert "-VLLM_MAX_IMAGE_PIXELS = 1" in lines
    assert "+VLLM_MAX_IMAGE_PIXELS = 2" in lines
    assert "vllm_0_33_limits.py" in next(line for line in lines if "envs.py" in line)


def test_a_part_in_neither_wheel_is_a_fault_of_the_list(compare_wheels, tmp_path, capsys):
    wheels = [
        make_wheel(
            tmp_path / f"sglang-{version}.whl",
            compare_wheels.SOURCES["sglang"],
            lambda _, text: text.replace("def smart_nframes", "def another"),
        )
        for version in (1, 2)
    ]
    assert compare_wheels.main(wheels) == 2
    assert "in neither sglang/srt/multimodal/processors/qwen_vl.py smart_nframes" in capsys.readouterr().out


@pytest.mark.parametrize(("server", "variable"), [("vllm", "EVS_VLLM_WHEEL"), ("sglang", "EVS_SGLANG_WHEEL")])
def test_the_list_names_parts_of_the_release(compare_wheels, server, variable, capsys):
    wheel = os.environ.get(variable)
    if not wheel:
        pytest.skip(f"{variable} names no wheel: the server's own code is not at hand")
    assert compare_wheels.main([wheel, wheel]) == 0, capsys.readouterr().out
