"""Functions that a model may call: how each family is offered them and writes its calls.

A family is recognised by what its chat template holds. Most are variants of one another; one whose
template says nothing of tools is told in the system message, in the way that most were trained on.
"""

from __future__ import annotations

import re

from localspec.text.tools.deepseek import OPENING as DEEPSEEK
from localspec.text.tools.deepseek import DeepSeek
from localspec.text.tools.format import Format, Offer
from localspec.text.tools.gpt_oss import CHANNEL, GptOss
from localspec.text.tools.hermes import OPENING as HERMES
from localspec.text.tools.hermes import Generic, Hermes
from localspec.text.tools.llama3 import Llama3
from localspec.text.tools.mistral import OPENING as MISTRAL
from localspec.text.tools.mistral import Mistral
from localspec.text.tools.qwen3_coder import FUNCTION, Qwen3Coder
from localspec.text.tools.tape import Kind, Piece, Reader

__all__ = ["Format", "Kind", "Offer", "Piece", "Reader", "offers_itself", "recognise"]

_TOOLS = re.compile(r"\{%-?\s*(if|for|elif|set)\b[^%]*\btools\b")


def recognise(template: str) -> Format:
    """The format of the family whose chat template this is."""
    if CHANNEL in template:
        return GptOss()
    if DEEPSEEK in template:
        return DeepSeek(fenced="```json" in template)
    if MISTRAL in template:
        return Mistral(named="[ARGS]" in template)
    if "<|start_header_id|>" in template and offers_itself(template):
        return Llama3()
    if HERMES in template and offers_itself(template):
        return Qwen3Coder() if FUNCTION in template else Hermes()
    return Generic()


def offers_itself(template: str) -> bool:
    """Whether the template shows the functions that it is given."""
    return bool(_TOOLS.search(template))
