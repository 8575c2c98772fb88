"""instructor: objects by tools and by schema, whole and in parts, with its errors."""

from __future__ import annotations

from typing import Any

import instructor
import openai
import pytest
from clients import asking
from instructor.core import InstructorRetryException

ASKED: Any = {"model": "beta", "messages": [{"role": "user", "content": "Which?"}]}


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_an_object_comes_whole_and_in_parts(openai_client: openai.OpenAI, mode: str) -> None:
    """Its default asks for a function by name; what comes is the class's at the first attempt."""
    client = instructor.from_openai(openai_client, mode=instructor.Mode[mode])
    side = client.chat.completions.create(response_model=asking.Side, max_retries=0, **ASKED)
    assert isinstance(side, asking.Side)
    parts = [*client.chat.completions.create_partial(response_model=asking.Side, **ASKED)]
    asking.Side.model_validate(parts[-1].model_dump())


def test_what_goes_wrong_is_an_error_of_its_own(openai_client: openai.OpenAI) -> None:
    """Which names the daemon's. Its streams are read to their end before anybody sees a part."""
    client = instructor.from_openai(openai_client)
    with pytest.raises(InstructorRetryException, match="no model"):
        client.chat.completions.create(
            response_model=asking.Side, max_retries=0, **ASKED | {"model": "nobody"}
        )
