"""Pure: lines of older trace versions to the current one, as JSON fields before they become dataclasses.

A change of the format adds one step to `STEPS`: from the version it reads to a function from the fields of any line
to those of the next version. Old files are kept in tests/golden/versions and read for ever.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aitrace.errors import InputError
from aitrace.schema import FORMAT_VERSION

Step = Callable[[dict[str, Any]], dict[str, Any]]
"""Fields of a line (its `kind` included) in one version to those in the next."""


def _step_1(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 to 2: as they are.

    Version 2 only adds: lines of a kind that no file of version 1 has, and fields whose defaults say what was true of
    every trace before (not taken from the wire, prompts seen from their start, evidence not told).
    """
    return fields


STEPS: Mapping[int, Step] = {1: _step_1}
"""By the version that the step reads."""


def version_from_header(fields: Mapping[str, Any], *, place: str, current: int = FORMAT_VERSION) -> int:
    """The format version that a header line states.

    Raises:
        InputError: It states none, or one that this program cannot read.
    """
    version = fields.get("version")
    if version is None:
        raise InputError(f"{place}: header.version: missing", hint="every trace states its format version")
    if type(version) is not int or version < 1:
        raise InputError(f"{place}: header.version: expected an integer from 1, got {version!r}")
    if version > current:
        raise InputError(
            f"{place}: written by a newer aitrace (trace format {version}, this one reads up to {current})",
            hint="use a newer aitrace",
        )
    return version


def migrate_fields(
    fields: dict[str, Any], version: int, *, steps: Mapping[int, Step] = STEPS, current: int = FORMAT_VERSION
) -> dict[str, Any]:
    """The fields of a line of format `version` as format `current` has them."""
    for step_version in range(version, current):
        fields = steps[step_version](fields)
    if version != current and fields.get("kind") == "header":
        fields = {**fields, "version": current}
    return fields
