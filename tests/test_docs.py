"""The documents keep up with the program: commands, summaries, links, words of the README that can be run."""

import re
import shlex
from itertools import takewhile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

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


def example_lines(of):
    """The words of each line of an example, without the program's name."""
    lines = re.findall(r"^ *aitrace ([a-z]+ .*)$", of.help.split("Example:")[1], re.MULTILINE)
    return [shlex.split(line) for line in lines]


def files_of_line(words):
    """The files that a line reads and those that it writes."""
    parser = command(words[0]).make_parser(click.Context(command(words[0])))
    options, arguments, params = parser.parse_args(args=words[1:])
    read, written = [], []
    for param in dict.fromkeys(params):
        if isinstance(param, click.Argument) and param.type is click.UNPROCESSED:
            continue  # the command line of another program
        if isinstance(param, click.Argument):
            value = options[param.name]
            values = value if isinstance(value, (list, tuple)) else [value]
            read += [name for name in values if isinstance(name, str)]  # what was left out is no string
        elif isinstance(param.type, (click.Path, click.File)):
            (written if "--output" in param.opts else read).append(options[param.name])
    assert arguments == []
    return read, written


def missing_inputs(lines, known=()):
    """Files that an example reads, though neither the repository has them nor an earlier line writes them."""
    there, missing = {str(Path(name)) for name in known}, []
    for words in lines:
        read, written = files_of_line(words)
        missing += [name for name in read if str(Path(name)) not in there and not any(ROOT.glob(name))]
        there.update(str(Path(name)) for name in written)
    return missing


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_reads_only_what_a_clone_has_or_an_earlier_line_writes(name):
    """A replay, a report and an export go on from where the example of the overview has come."""
    overview = [name for words in example_lines(main) for name in files_of_line(words)[1]]
    known = overview if name in ("replay", "report", "compare", "export") else ()
    assert missing_inputs(example_lines(command(name)), known) == []


def test_the_example_of_the_overview_reads_only_what_a_clone_has_or_an_earlier_line_writes():
    assert [words[0] for words in example_lines(main)] == ["convert", "replay", "report"]
    assert missing_inputs(example_lines(main)) == []


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (["plan absent.aitrace --trees 3"], ["absent.aitrace"]),
        (["convert absent/*.zst -o all.aitrace"], ["absent/*.zst"]),
        (["plan one.aitrace", "convert tests/data/weka/*.zst -o one.aitrace"], ["one.aitrace"]),
        (["convert tests/data/weka/*.zst -o one.aitrace", "plan one.aitrace"], []),
    ],
)
def test_the_rule_for_examples_finds_what_is_missing(lines, missing):
    assert missing == missing_inputs([line.split() for line in lines])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("plann", "plan"), ("repaly", "replay"), ("chek", "check"), ("xyzzy", None), ("plan", None)],
)
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(typed, meant):
    result = CliRunner().invoke(main, [typed, "--help"])
    assert (result.exit_code == 0) == (typed in COMMANDS)
    assert re.findall(r"Did you mean '(.*)'\?", result.stderr) == ([] if meant is None else [meant])


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
            for word in takewhile(lambda word: word != "--", words[2:])
            if word.startswith("--") and word.split("=")[0] not in known | {"--help"}
        ]
    assert unknown == []
