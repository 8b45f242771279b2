"""The rooms of evs_cli and the directions of imports between them, and what the quick commands may not load."""

import ast
import graphlib
from pathlib import Path

import pytest
from fresh_python import run_evs, run_fresh

import evs_cli

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "evs_cli"

# Lowest first: a module imports from its own room and from rooms before it, never from one behind it.
ROOMS = (
    *("_version", "errors"),
    *("core", "video", "cost", "encoders", "integration", "dialects"),
    *("pipeline", "files", "servers", "jobs"),
    *("api", "__init__", "report", "cli", "__main__"),
)
PACKAGES = {
    *("core", "video", "cost", "encoders", "integration", "dialects"),
    *("pipeline", "files", "servers", "jobs", "report", "cli"),
}
# Rooms that do not know all the rooms before them: what they may import beside their own, a room or one module of it.
KNOWN = {
    "core": ("errors",),
    "video": ("errors",),  # no models
    "cost": ("errors",),  # no videos, no weights
    "encoders": ("errors", "core", "video.sampling"),  # no video files
    "integration": ("errors", "core"),  # no videos, no files
    "dialects": ("errors", "core", "video", "encoders"),
    # The plan and the model's name that a file holds, and the result it is made of; no model is loaded here.
    "files": (
        *("errors", "core", "video.own_files", "encoders.base", "encoders.source"),
        *("pipeline.encoded_video", "pipeline.encoding_key"),
    ),
    "servers": ("errors", "video", "dialects"),  # not how a plan is made
}
HEAVY = ("torch", "torchvision", "transformers", "decord", "onnx", "av")


def room_of(module):
    """The room that a dotted module name belongs to; ``__init__`` is the facade at the root."""
    return module.split(".")[1] if "." in module else "__init__"


def modules():
    """Dotted name and source of each module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = path.read_text(encoding="utf-8")
    return found


MODULES = modules()


def imported_modules(source, known=frozenset(MODULES)):
    """Dotted names of every module of evs_cli that a source imports: in functions, under TYPE_CHECKING, by name too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found += imported_by_name(node)
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == "evs_cli"]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            if node.module and node.module.split(".")[0] == "evs_cli":
                # `from evs_cli.video import reader` names a module, `from evs_cli.errors import EvsError` too.
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                found += [name if name in known else node.module for name in names]
    return found


def imported_by_name(call):
    """What a call of ``import_module`` imports of evs_cli: of an f-string the package that stands in front."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if called not in ("import_module", "__import__"):
        return []
    (named, *_) = call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else call.args
    assert isinstance(named, ast.Constant), "a module whose name does not begin with a literal"
    name = named.value.rstrip(".")
    return [name] if name.split(".")[0] == "evs_cli" else []


def faults(module, source):
    """Sentences on the imports of ``module`` that leave the order of the rooms."""
    own = room_of(module)
    out = []
    for other in dict.fromkeys(imported_modules(source)):
        room = room_of(other)
        if room not in ROOMS or own not in ROOMS:
            out.append(f"{module} imports {other}: one of them is in no room")
        elif ROOMS.index(room) > ROOMS.index(own):
            out.append(f"{module} imports {other}, a room above")
        elif room != own and own in KNOWN:
            name = other.removeprefix("evs_cli.")
            if not any(f"{name}.".startswith(f"{allowed}.") for allowed in KNOWN[own]):
                out.append(f"{module} imports {other}, which {own} does not know")
    return out


def cycle(sources):
    """Modules that import each other in a circle, the first one last again; None where there are none.

    Args:
        sources: source of each module, by dotted name.
    """
    graph = {name: set(imported_modules(source, sources.keys())) - {name} for name, source in sources.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_the_top_holds_the_rooms_and_five_files():
    names = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    files = {"__init__.py", "__main__.py", "_version.py", "errors.py", "api.py"}
    assert names == PACKAGES | files | {"py.typed"}  # PEP 561's mark must stand there
    assert all((PACKAGE / name / "__init__.py").is_file() for name in PACKAGES)


def test_every_module_is_in_a_room():
    assert {room_of(name) for name in MODULES} == set(ROOMS)
    assert len(ROOMS) == len(set(ROOMS))


def test_imports_go_down():
    found = [fault for name, source in MODULES.items() for fault in faults(name, source)]
    assert not found, "\n".join(found)


def test_no_modules_import_each_other_in_a_circle():
    assert cycle(MODULES) is None


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("evs_cli.core.counts", "from evs_cli.video.info import VideoInfo"),
        ("evs_cli.core.counts", "def f():\n    import evs_cli.pipeline.encode"),
        ("evs_cli.core.counts", "import importlib\nimportlib.import_module('evs_cli.pipeline.encode')"),
        ("evs_cli.core.counts", "def f(x):\n    import_module(f'evs_cli.jobs.{x}')"),
        ("evs_cli.core.counts", "def f(x):\n    __import__(f'evs_cli.{x}')"),
        ("evs_cli.errors", "from evs_cli import core"),
        ("evs_cli.video.info", "from evs_cli.encoders.base import Clip"),
        ("evs_cli.video.info", "from evs_cli.core.counts import check_grid"),
        ("evs_cli.cost.report", "from evs_cli.core.counts import check_grid"),
        ("evs_cli.encoders.base", "from evs_cli.video.info import VideoInfo"),
        ("evs_cli.encoders.base", "from evs_cli.video import reader"),
        ("evs_cli.integration.mixin", "from evs_cli.encoders.base import Clip"),
        ("evs_cli.pipeline.encode", "if TYPE_CHECKING:\n    from evs_cli.files.artifact import save"),
        ("evs_cli.pipeline.session", "from evs_cli.jobs.cached_session import CachedSession"),
        ("evs_cli.files.artifact", "from evs_cli.report.console import Sink"),
        ("evs_cli.files.encoding.reader", "from evs_cli.encoders.registry import open_encoder"),
        ("evs_cli.files.artifact", "from evs_cli.pipeline.session import Session"),
        ("evs_cli.servers.client", "from evs_cli.pipeline.clips import Clips"),
        ("evs_cli.jobs.check", "from evs_cli.api import prune_video"),
        ("evs_cli.jobs.check", "from evs_cli import prune_video"),
        ("evs_cli.report.tables", "from evs_cli.cli import options"),
        ("evs_cli.core.counts", "from evs_cli.utils import things"),
        ("evs_cli.utils", "from evs_cli.errors import EvsError"),
    ],
)
def test_a_wrong_import_is_seen(module, source):
    assert len(faults(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("evs_cli.encoders.base", "from evs_cli.video.sampling import SamplingDefaults"),
        ("evs_cli.encoders.base", "from evs_cli.core import counts"),
        ("evs_cli.files.artifact", "from evs_cli.core.pruned_video import PrunedVideo"),
        ("evs_cli.jobs.check", "from evs_cli import errors"),
        ("evs_cli.dialects", "import_module(f'evs_cli.dialects.{x}').SERVER"),
        ("evs_cli.core.counts", "import_module('json')"),
    ],
)
def test_a_right_import_is_let_through(module, source):
    assert faults(module, source) == []


@pytest.mark.parametrize("how", ["import evs_cli.core.b", "from evs_cli.core import b", "from evs_cli.core.b import x"])
@pytest.mark.parametrize("where", ["{}", "def f():\n    {}", "if TYPE_CHECKING:\n    {}"])
def test_a_circle_is_seen(how, where):
    one_way = {"evs_cli.core.a": where.format(how), "evs_cli.core.b": "", "evs_cli.core": ""}
    assert cycle(one_way) is None
    assert cycle({**one_way, "evs_cli.core.b": "from evs_cli.core.c import y", "evs_cli.core.c": ""}) is None
    back = {**one_way, "evs_cli.core.b": "from evs_cli.core.c import y", "evs_cli.core.c": "import evs_cli.core.a"}
    assert set(cycle(back)) == {"evs_cli.core.a", "evs_cli.core.b", "evs_cli.core.c"}


def test_terminals_are_known_to_the_upper_layers_alone():
    """Typer belongs to cli, Rich to cli and report, and only the console there prints."""
    for name, source in MODULES.items():
        tree = ast.parse(source)
        names = {
            alias.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        roots = {module.split(".")[0] for module in names}
        if room_of(name) != "cli":
            assert "typer" not in roots, name
        if room_of(name) not in ("cli", "report"):
            assert "rich" not in roots, name
        if room_of(name) in ("cli", "report"):
            assert "torch" not in roots or all(not isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("-h",),
        ("--version",),
        ("-V",),
        ("prune", "--help"),
        ("prune", "--help-all"),
        ("help",),
        ("help", "prune"),
        ("help", "knee"),
        ("help", "topics"),
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
    for arguments in (
        ("prun",),
        ("prune", "x.mp4", "--q", "1.5"),
        ("prune", "x.mp4", "--print", "all"),
        ("prune", "x.mp4", "-q", "0.9"),
        ("help", "nothing"),
    ):
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
    from evs_cli.cli.options import values
    from evs_cli.encoders.runtime import DTYPES
    from evs_cli.encoders.source import SHORT_NAMES
    from evs_cli.report.console import FORMATS
    from evs_cli.video.decoder import DECODERS

    assert set(values.MODELS) <= set(SHORT_NAMES)
    assert values.FORMATS == FORMATS
    assert ("auto", *DTYPES) == values.DTYPES
    assert values.DECODERS == DECODERS


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
