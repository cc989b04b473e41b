"""Pure: puts calls into sessions and finds what each waited for, for recordings and local histories alike."""

from aitrace.assembly.assembler import Assembler
from aitrace.assembly.inputs import Answer, Ask

__all__ = ["Answer", "Ask", "Assembler"]
