"""Pure: a call and what became known of it later, as one call."""

from dataclasses import fields, replace
from typing import Any

from aitrace.schema import Call, Update

UPDATED = tuple(field.name for field in fields(Update) if field.name not in ("call", "extra"))
"""Fields of a call that an update may replace."""

_NAMES_OF_CALLS = frozenset({field.name for field in fields(Call)} - {"call_class", "extra"} | {"class"})
"""As in JSON."""


def updated_call(call: Call, update: Update) -> Call:
    """The call with what the update says in place of its own.

    Unknown fields go with the known field that they stood in. Those of the update's own line become the call's, unless
    a call has a field of that name, which means something else there.
    """
    known: dict[str, Any] = {name: value for name in UPDATED if (value := getattr(update, name)) is not None}
    if not known and not update.extra:
        return call
    kept = {name: value for name, value in call.extra.items() if name not in known}
    new = {
        name: value for name, value in update.extra.items() if name in known or name not in _NAMES_OF_CALLS
    }
    return replace(call, **known, extra={**kept, **new})
