"""Pure: what the scripted upstream answers to a client and where it fails, as data.

A script says what the model does in its n-th turn as an agent. Sleeps are as short as lets a test tell their gaps from
a client's own overhead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FAULT_END = Literal["refused", "cut", "error_event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The model calls the tool that runs a command."""

    command: str
    """For a POSIX shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The model calls the tool that reads a file."""

    name: str
    """A file of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """The model starts a sub-agent."""

    agent: str
    """Its script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The model waits for sub-agents where spawning returns at once; elsewhere a step of nothing else is left out."""


Tool = Shell | Read | Spawn | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer of the model."""

    text: str
    """What it says before it calls tools."""
    thinking: str = ""
    """What it thinks before that; empty for nothing."""
    tools: tuple[Tool, ...] = ()
    """Tools that it calls in this answer."""
    pieces: int = 4
    """Deltas of the text."""
    pause_s: float = 0.02
    """Before each delta of text or arguments, s."""
    input_tokens: int | None = None
    """Size of the prompt as reported; None for a quarter of its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong once the client has come to a step, the first `times` times."""

    step: int
    """Step of the main agent."""
    end: FAULT_END
    """How the request ends instead."""
    status: int = 200
    """HTTP status of a refusal."""
    retry_after_s: int | None = None
    """Header of a refusal; None for none."""
    times: int = 1
    """How often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A script and the prompts that set it going."""

    agents: Mapping[str, tuple[Step, ...]]
    """By name; after its last step an agent says that it is done."""
    faults: tuple[Fault, ...] = ()
    """In order of their steps."""
    prompts: tuple[str, ...] = ("[[agent:main]] please do the scripted job",)
    """What the user types; each continues the session in a new process."""
    interrupt_step: int | None = None
    """Step in the middle of which the user presses Ctrl-C; None for never."""
    context_tokens: int | None = None
    """Size of the context window after which the client compacts; None for its usual one."""


SECOND_PROMPT = "now the second part, please"
SLOW_TEXT = "a long and winding answer " * 12

SCENARIOS: dict[str, Scenario] = {
    "session": Scenario(
        prompts=("[[agent:main]] please do the scripted job", SECOND_PROMPT),
        agents={
            "main": (
                Step(
                    text="I list the folder first.",
                    thinking="A thought.",
                    tools=(Shell(command="sleep 1 && ls"),),
                ),
                Step(
                    text="Two things at once.",
                    tools=(Read(name="notes.txt"), Shell(command="sleep 0.7; echo parallel")),
                ),
                Step(text="A part for a sub-agent.", tools=(Spawn(agent="child"),)),
                Step(text="I wait for it.", tools=(Wait(),)),
                Step(text="All of the first part is finished."),
                Step(text="One more command.", tools=(Shell(command="sleep 0.5 && echo again"),)),
                Step(text="The second part is finished."),
            ),
            "child": (
                Step(text="The child runs a command.", tools=(Shell(command="sleep 0.6 && echo child"),)),
                Step(text="And another.", tools=(Shell(command="echo more"),)),
                Step(text="The child's result: fine."),
            ),
        },
    ),
    "fanout": Scenario(
        agents={
            "main": (
                Step(text="Two sub-agents at once.", tools=(Spawn(agent="left"), Spawn(agent="right"))),
                Step(text="I wait for the first.", tools=(Wait(),)),
                Step(text="I wait for the other.", tools=(Wait(),)),
                Step(text="Both are finished."),
            ),
            "left": (
                Step(text="The left one runs.", tools=(Shell(command="sleep 0.7 && echo left"),)),
                Step(text="The left result."),
            ),
            "right": (
                Step(text="The right one runs.", tools=(Shell(command="sleep 1.2 && echo right"),)),
                Step(text="The right result."),
            ),
        },
    ),
    "eager": Scenario(
        agents={
            "main": (
                Step(
                    text="One.",
                    pieces=1,
                    pause_s=0.3,
                    tools=(Shell(command="sleep 0.8; echo one"), Shell(command="echo two")),
                ),
                Step(text="Finished."),
            ),
        },
    ),
    "refused": Scenario(
        faults=(
            Fault(step=1, end="refused", status=429, retry_after_s=1),
            Fault(step=2, end="refused", status=503, times=2),
            Fault(step=3, end="refused", status=529),
        ),
        agents={
            "main": (
                Step(text="First.", tools=(Shell(command="echo one"),)),
                Step(text="After 429.", tools=(Shell(command="echo two"),)),
                Step(text="After 503.", tools=(Shell(command="echo three"),)),
                Step(text="After 529."),
            ),
        },
    ),
    "refused_bare": Scenario(
        faults=(Fault(step=1, end="refused", status=429, times=2),),
        agents={
            "main": (
                Step(text="First.", tools=(Shell(command="echo one"),)),
                Step(text="After 429."),
            ),
        },
    ),
    "cut": Scenario(
        faults=(Fault(step=1, end="cut"),),
        agents={
            "main": (
                Step(text="First.", tools=(Shell(command="echo one"),)),
                Step(text=SLOW_TEXT, pieces=10, pause_s=0.05, tools=(Shell(command="sleep 0.5; echo two"),)),
                Step(text="Finished."),
            ),
        },
    ),
    "error_event": Scenario(
        faults=(Fault(step=1, end="error_event"),),
        agents={
            "main": (
                Step(text="First.", tools=(Shell(command="echo one"),)),
                Step(text=SLOW_TEXT, pieces=10, pause_s=0.05, tools=(Shell(command="sleep 0.5; echo two"),)),
                Step(text="Finished."),
            ),
        },
    ),
    "abort": Scenario(
        prompts=("[[agent:main]] please do the scripted job", SECOND_PROMPT),
        interrupt_step=1,
        agents={
            "main": (
                Step(text="First.", tools=(Shell(command="echo one"),)),
                Step(text=SLOW_TEXT, pieces=20, pause_s=0.1),
            ),
        },
    ),
    "compaction": Scenario(
        context_tokens=100_000,
        agents={
            "main": (
                Step(text="First.", tools=(Shell(command="echo one"),)),
                Step(text="Second.", tools=(Shell(command="echo two"),), input_tokens=190_000),
                Step(text="Third.", tools=(Shell(command="echo three"),)),
            ),
            "after": (
                Step(text="After the summary.", tools=(Shell(command="echo after"),)),
                Step(text="Finished after the compaction."),
            ),
        },
    ),
}
