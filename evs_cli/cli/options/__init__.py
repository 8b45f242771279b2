"""Options that several commands share, under one name and one help text each; a file a panel of the help."""

# ruff: noqa: F403
from evs_cli.cli.options.budget import *
from evs_cli.cli.options.input import *
from evs_cli.cli.options.output import *
from evs_cli.cli.options.pruning import *
from evs_cli.cli.options.runtime import *
from evs_cli.cli.options.server import *
