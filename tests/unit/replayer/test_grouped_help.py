import re

import click
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from replayer.commands.calibrate import calibrate
from replayer.commands.grouped import GROUPS
from replayer.commands.plan import plan
from replayer.commands.replay import replay
from replayer.commands.search import search

COMMANDS = {"replay": replay, "plan": plan, "search": search, "calibrate": calibrate}


def help_of(name, *, columns=80):
    """Lines of the help on a terminal of so many columns."""
    shown = CliRunner().invoke(main, [name, "--help"], terminal_width=columns)
    return shown.output.splitlines()


def options_of(name):
    return [param for param in COMMANDS[name].params if isinstance(param, click.Option) and not param.hidden]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_stands_under_one_heading(name):
    grouped = [option for names in GROUPS.values() for option in names]
    assert {option.name for option in options_of(name)} <= set(grouped)
    assert len(grouped) == len(set(grouped))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_each_option_once_below_a_heading(name):
    lines = help_of(name)
    first = lines.index(next(line for line in lines if line.rstrip(":") in GROUPS))
    shown = [match[1] for line in lines[first:] if (match := re.match(r"  (?:-\w, )?(--[a-z-]+)", line))]
    assert sorted(shown) == sorted([*(option.opts[-1] for option in options_of(name)), "--help"])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_fits_into_80_columns_but_for_lines_to_paste(name):
    assert [line for line in help_of(name) if len(line) > 80 and "aitrace" not in line] == []


def test_a_group_without_options_has_no_heading():
    headings = [line.rstrip(":") for line in help_of("plan") if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert headings[-6:] == ["Output", "Load", "Timing", "Text and sizes", "Identity", "Help"]
