"""Directions of imports between the layers of the design, and what the quick commands may not load."""

import ast
from pathlib import Path

import pytest
from fresh_python import run_evs, run_fresh

import evs_cli

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "evs_cli"

# Design, section 3: imports go down this list of parts of evs_cli, from the last line to the first.
LAYERS = (
    {"_version", "errors"},
    *({room} for room in ("core", "video", "cost", "encoders", "integration", "dialects", "pipeline", "files")),
    *({room} for room in ("servers", "jobs", "api", "report", "cli", "__main__")),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
HEAVY = ("torch", "torchvision", "transformers", "decord", "onnx", "av")


def part_of(module):
    """The part of evs_cli that a dotted module name belongs to."""
    return module.split(".")[1]


def imported_modules(source):
    """Dotted names of every module of evs_cli that a source imports, inside functions and TYPE_CHECKING too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("evs_cli.")]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            if node.module == "evs_cli":
                found += [f"evs_cli.{alias.name}" for alias in node.names]
            elif node.module and node.module.startswith("evs_cli."):
                # `from evs_cli.video import decord_reader` names a module too.
                found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def faults(module, source):
    """Sentences on the imports of ``module`` that go up or sideways."""
    own = part_of(module)
    out = []
    for other in imported_modules(source):
        part = part_of(other)
        if part not in LEVEL or own not in LEVEL:
            out.append(f"{module} imports {other}: one of them has no layer")
        elif LEVEL[part] > LEVEL[own]:
            out.append(f"{module} imports {other}, a layer above")
        elif own == "video" and part == "encoders":
            out.append(f"{module} imports {other}: video knows no models")
        elif own == "encoders" and part == "video" and not other.startswith("evs_cli.video.sampling"):
            out.append(f"{module} imports {other}: encoders know no video files")
    return out


def modules():
    """Dotted name and file of each module of the package, but for the facade that is its root."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "evs_cli":
            yield name, path


def test_imports_go_down():
    found = [fault for name, path in modules() for fault in faults(name, path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_every_part_has_a_layer():
    assert {part_of(name) for name, _ in modules()} <= set(LEVEL)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("evs_cli.core.counts", "from evs_cli.video.info import VideoInfo"),
        ("evs_cli.core.counts", "def f():\n    import evs_cli.pipeline.encode"),
        ("evs_cli.errors", "from evs_cli import core"),
        ("evs_cli.video.info", "from evs_cli.encoders.base import Clip"),
        ("evs_cli.encoders.base", "from evs_cli.video.info import VideoInfo"),
        ("evs_cli.encoders.base", "from evs_cli.video import reader"),
        ("evs_cli.pipeline.encode", "if TYPE_CHECKING:\n    from evs_cli.files.artifact import save"),
        ("evs_cli.files.artifact", "from evs_cli.report.console import Sink"),
        ("evs_cli.report.tables", "from evs_cli.cli import options"),
    ],
)
def test_a_wrong_import_is_seen(module, source):
    assert len(faults(module, source)) == 1


def test_terminals_are_known_to_the_upper_layers_alone():
    """Typer belongs to cli, Rich to cli, report and console, and only the console prints."""
    for name, path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            alias.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        roots = {module.split(".")[0] for module in names}
        if part_of(name) != "cli":
            assert "typer" not in roots, name
        if part_of(name) not in ("cli", "report"):
            assert "rich" not in roots, name
        if part_of(name) in ("cli", "report"):
            assert "torch" not in roots or all(not isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("-h",),
        ("--version",),
        ("prune", "--help"),
        ("sweep", "--help"),
        ("encode", "--help"),
        ("bench", "--help"),
        ("show", "--help"),
        ("check", "--help"),
        ("models", "--help"),
        ("models",),
        ("models", "--json"),
        ("cache", "--help"),
        ("cache", "ls", "--help"),
        ("cache", "ls"),
        ("cache", "rm", "--all"),
    ],
    ids=" ".join,
)
def test_quick_commands_load_nothing_heavy(tmp_path, arguments):
    done, loaded = run_evs(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not loaded & set(HEAVY)


def test_a_refused_command_line_loads_nothing_heavy(tmp_path):
    for arguments in (("prun",), ("prune", "x.mp4", "--q", "1.5"), ("prune", "x.mp4", "--print", "all")):
        done, loaded = run_evs(tmp_path, *arguments)
        assert done.returncode == 2
        assert not loaded & set(HEAVY), arguments


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", "evs pru", "prune"),
        ("bash", "evs prune --model dino", "dinov2-small"),
        ("bash", "evs prune --device c", "cuda"),
        ("bash", "evs sweep --format j", "json"),
        ("zsh", "evs prune --decoder ", "decord"),
        ("fish", "evs prune --dtype b", "bfloat16"),
    ],
)
def test_completion_loads_nothing_heavy(tmp_path, shell, words, expected):
    env = {
        "_EVS_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done, loaded = run_evs(tmp_path, env=env)
    assert expected in done.stdout, done.stderr
    assert not loaded & set(HEAVY)


def test_completion_offers_only_names_that_the_program_knows():
    """The lists are written out so that completion needs no import; here they are held to what they copy."""
    from evs_cli.cli import options
    from evs_cli.encoders.runtime import DTYPES
    from evs_cli.encoders.source import SHORT_NAMES
    from evs_cli.report.console import FORMATS
    from evs_cli.video.decoder import DECODERS

    assert set(options._MODELS) <= set(SHORT_NAMES)
    assert options._FORMATS == FORMATS
    assert ("auto", *DTYPES) == options._DTYPES
    assert options._DECODERS == DECODERS


def test_the_root_is_light_and_its_names_resolve(tmp_path):
    code = (
        "import sys, evs_cli\n"
        "assert not {m for m in sys.modules if m.startswith('evs_cli.')} - {'evs_cli._version'}, 'a submodule came'\n"
        f"assert not set(sys.modules) & {set(HEAVY) | {'numpy', 'rich', 'typer'}!r}, 'a library came'\n"
        "assert set(dir(evs_cli)) == set(evs_cli.__all__)\n"
        "for name in evs_cli.__all__: assert getattr(evs_cli, name) is getattr(evs_cli, name), name\n"
    )
    run_fresh(code, tmp_path)


def test_counts_need_no_torch(tmp_path):
    code = (
        "import sys; from evs_cli import tokens_per_frame\n"
        "assert sum(tokens_per_frame(q=.7, num_frames=32, frame_num_tokens=256)) == 2457\n"
        "assert 'torch' not in sys.modules\n"
    )
    run_fresh(code, tmp_path)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'prune_'"):
        _ = evs_cli.prune_
