"""The documents keep up with the program: commands, summaries, links, words of the README that can be run."""

import re
import shlex
from pathlib import Path

import click
import pytest

from aitrace.cli import COMMANDS, SUMMARIES, main

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def command(name):
    with click.Context(main) as context:
        return main.get_command(context, name)


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_on_the_help_page_is_the_commands_own(name):
    assert SUMMARIES[name] == " ".join(command(name).help.split("\n\n")[0].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_an_example(name):
    assert f"aitrace {name}" in command(name).help


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_has_a_help_text(name):
    options = [p for p in command(name).params if isinstance(p, click.Option)]
    assert [p.name for p in options if not p.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_readme_or_docs_mention_each_command(name):
    assert any(f"aitrace {name}" in page.read_text() for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_documents_use_options_that_exist(page):
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    indented = "\n".join(re.findall(r"^ {4}(.*)$", page.read_text(), re.MULTILINE))
    lines = re.findall(r"^\$? *(aitrace [a-z]+ .*)$", f"{fenced}\n{indented}", re.MULTILINE)
    unknown = []
    for line in lines:
        words = shlex.split(line.split(" #")[0].split("|")[0].rstrip("\\ &"))
        known = {option for param in command(words[1]).params for option in param.opts + param.secondary_opts}
        unknown += [
            word
            for word in words[2:]
            if word.startswith("--") and word.split("=")[0] not in known | {"--help"}
        ]
    assert unknown == []
