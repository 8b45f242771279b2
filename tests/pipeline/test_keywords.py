"""The keywords of a run are typed, and a checker sees a wrong one."""

import subprocess
import sys
from pathlib import Path

import pytest

from evs_cli.cli import shared
from evs_cli.dialects.server_command import ServerRequest
from evs_cli.encoders.base import EncodeOptions
from evs_cli.jobs.stored_session import RULE_OPTIONS
from evs_cli.pipeline.keywords import EncodeKeywords, RequestKeywords
from evs_cli.pipeline.request import SessionRequest, make_request
from evs_cli.video.sampling import SamplingRequest

ROOT = Path(__file__).resolve().parents[2]

# A call of each function a line, and what a checker says of it; None where it is right.
CALLS = {
    'evs_cli.prune_video("a.mp4", num_frames=4, min_dissimilarity=0.1, decoder="pyav", server_cmd=None)': None,
    'evs_cli.sweep_video("a.mp4", [0.5], fps=2, cap_pixels_per_frame=True)': None,
    'evs_cli.encode_video("a.mp4", "a.safetensors", size=56, batch_frames=None)': None,
    'evs_cli.plan_video("a.mp4", q=[0, 0.5], context=4096, fps=2).rates[0].sequence_length + 1': None,
    'evs_cli.fit_video("a.mp4", max_tokens=4096, dialect="vllm").others': None,
    'evs_cli.check_video("a.mp4", "http://h", q=0.5, timeout=5.0).differs': None,
    'evs_cli.export_video("a.mp4", "b.json", served_model="m").frames.prompt_tokens': None,
    'evs_cli.plan_video("a.mp4", q="0.5")': 'Argument "q" to "plan_video" has incompatible type "str"',
    'evs_cli.fit_video("a.mp4", contxt=1)': 'Unexpected keyword argument "contxt"',
    'evs_cli.prune_video("a.mp4", num_frame=4)': 'Unexpected keyword argument "num_frame"',
    'evs_cli.prune_video("a.mp4", num_frames="4")': 'Argument "num_frames" to "prune_video" has incompatible type',
    'evs_cli.prune_video("a.mp4", decoder="ffmpeg")': 'Argument "decoder" to "prune_video" has incompatible type',
    'evs_cli.sweep_video("a.mp4", [0.5], fsp=2.0)': 'Unexpected keyword argument "fsp"',
    'evs_cli.sweep_video("a.mp4", [0.5], seed="1")': 'Argument "seed" to "sweep_video" has incompatible type "str"',
    'evs_cli.encode_video("a.mp4", "b.safetensors", method="random")': 'Unexpected keyword argument "method"',
    'evs_cli.encode_video("a.mp4", "b.safetensors", dtype=16)': 'Argument "dtype" to "encode_video" has incompatible',
}


def names(kind):
    return set(kind.__dataclass_fields__)


def test_the_keywords_are_the_fields_of_what_is_made_of_them():
    own = names(SessionRequest) - {"sampling", "options", "server"}
    assert own | names(SamplingRequest) | names(EncodeOptions) | names(ServerRequest) == (
        RequestKeywords.__optional_keys__
    )
    assert RequestKeywords.__optional_keys__ - EncodeKeywords.__optional_keys__ == set(RULE_OPTIONS)
    assert not RequestKeywords.__required_keys__


def test_the_command_line_hands_over_keywords_alone():
    assert {*shared._SOURCE, *shared._SERVER, *shared._RUN} <= RequestKeywords.__optional_keys__
    assert {*shared._SOURCE, *shared._SERVER, *shared._ENCODE} <= EncodeKeywords.__optional_keys__
    assert set(shared._NUMBERS) == shared.NumbersKeywords.__required_keys__


@pytest.mark.parametrize("name", ["num_frame", "sampling", "options", "server"])
def test_another_keyword_is_a_type_error(name):
    with pytest.raises(TypeError, match=f"unexpected keyword '{name}'"):
        make_request(**{name: None})


@pytest.mark.slow
def test_a_checker_sees_a_wrong_keyword_and_a_wrong_type(tmp_path):
    code = "\n".join(["import evs_cli", *CALLS])
    (tmp_path / "calls.py").write_text(code + "\n")
    # torch and its like are long to read, and no keyword is of their types.
    ours = "[mypy-evs_cli.*]\nfollow_imports = silent\n"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nfollow_imports = skip\n{ours}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "calls.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if "calls.py:" in line and " error: " in line]
    wrong = {number: words for number, words in enumerate(CALLS.values(), 2) if words is not None}
    assert len(said) == len(wrong), done.stdout
    for line, (number, words) in zip(said, wrong.items(), strict=True):
        assert line.startswith(f"calls.py:{number}: error: {words}"), line
