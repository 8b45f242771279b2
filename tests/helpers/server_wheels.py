"""A server's own functions, taken out of its wheel by ``ast`` and run alone: nothing of the server is installed.

``EVS_VLLM_WHEEL`` and ``EVS_SGLANG_WHEEL`` name the wheels; where one is not set, its tests are skipped and say so.
"""

import ast
import functools
import os
import zipfile

import pytest


@functools.cache
def _module(variable, path):
    wheel = os.environ.get(variable)
    if not wheel:
        pytest.skip(f"{variable} names no wheel: the server's own functions are not at hand")
    with zipfile.ZipFile(wheel) as archive:
        return ast.parse(archive.read(path).decode("utf-8"))


def wheel_function(variable, path_in_wheel, qualified_name, namespace):
    """A function or method of a server, as a plain function.

    Args:
        variable: environment variable that names the wheel.
        path_in_wheel: such as ``vllm/multimodal/video.py``.
        qualified_name: ``function`` or ``Class.method``; decorators are left off.
        namespace: what its global names stand for.
    """
    body = _module(variable, path_in_wheel).body
    for name in qualified_name.split("."):
        (node,) = [n for n in body if getattr(n, "name", None) == name]
        body = getattr(node, "body", [])
    node.decorator_list = []
    for argument in [*node.args.args, *node.args.kwonlyargs]:
        argument.annotation = None
    node.returns = None
    module = ast.fix_missing_locations(ast.Module(body=[node], type_ignores=[]))
    exec(compile(module, path_in_wheel, "exec"), namespace)
    return namespace[node.name]


def wheel_constants(variable, path_in_wheel, names):
    """The literal values that a module, or a class of it, assigns to ``names``."""
    found = {}
    for node in ast.walk(_module(variable, path_in_wheel)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in names and getattr(node, "value", None) is not None:
                try:
                    found[target.id] = eval(compile(ast.Expression(node.value), path_in_wheel, "eval"), dict(found))
                except NameError:
                    continue
    return found
