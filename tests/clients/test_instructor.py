"""instructor: objects by tools and by schema, whole and in parts, with its errors."""

from __future__ import annotations

from typing import Any

import instructor
import openai
import pytest
from clients import asking
from instructor.core import InstructorRetryException

ASKED: Any = {"messages": [{"role": "user", "content": asking.WHICH}], "temperature": 0}


@asking.ON_BOTH
@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_an_object_comes_whole_and_in_parts(
    openai_client: openai.OpenAI, served: Any, mode: str
) -> None:
    """Its default calls a function by name; the first attempt has the class's shape."""
    client = instructor.from_openai(openai_client, mode=instructor.Mode[mode])
    asked = {"model": served.model, "response_model": asking.Side, **ASKED}
    side = client.chat.completions.create(max_retries=0, **asked)
    assert isinstance(side, asking.Side)
    parts = [*client.chat.completions.create_partial(**asked)]
    asking.Side.model_validate(parts[-1].model_dump())


@asking.ON_BOTH
def test_failures_are_its_own_errors(openai_client: openai.OpenAI) -> None:
    """They name the daemon's error. It reads streams to their end before it yields a part."""
    client = instructor.from_openai(openai_client)
    with pytest.raises(InstructorRetryException, match="no model"):
        client.chat.completions.create(
            model="nobody", response_model=asking.Side, max_retries=0, **ASKED
        )
