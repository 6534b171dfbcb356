"""The prices of the real package, which is asked for nothing over a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from legation.models.anthropic import AnthropicMessages
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import ModelProtocol, Usage
from legation.money import NANO
from legation_host.loading import LoadError, from_file

genai_prices: Any = pytest.importorskip("genai_prices")

from legation_host.genai_prices import find_price  # noqa: E402 (it needs the package)

AT: Final = 1_790_000_000_000_000
"""In September 2026, in microseconds."""

CONFIG: Final = """
[prices]
source = "genai-prices"

[prices.models."my-own"]
input = "0.10"
output = "0.40"

[limits]
cost_per_day = "2.50"

[models.big]
provider = "openai"
id = "gpt-5"
api_key_env = "KEY"

[models.own]
provider = "openai"
id = "{own}"
base_url = "http://127.0.0.1:9/v1"

[[agents]]
id = "clerk"
model = "big"

[[agents]]
id = "own"
model = "own"
"""


def price(model: ModelProtocol, **tokens: int) -> int | None:
    return find_price(model, Usage(**tokens), AT)


def test_two_providers_cost_what_their_lists_say() -> None:
    openai = ChatCompletions(id="gpt-5")
    anthropic = AnthropicMessages(id="claude-sonnet-4-5")

    # 1.25, 0.125 and 10 dollars for a million: 800, 200 and 500 tokens.
    tokens = {"input_tokens": 1_000, "output_tokens": 500, "cache_read_tokens": 200}
    assert price(openai, **tokens, reasoning_tokens=400) == 1_000_000 + 25_000 + 5_000_000
    # 3, 0.30, 3.75 and 15 dollars: 700, 200, 100 and 500 tokens.
    assert (
        price(anthropic, **tokens, cache_write_tokens=100)
        == 2_100_000 + 60_000 + 375_000 + 7_500_000
    )


def test_a_model_at_an_address_is_that_providers() -> None:
    assert (
        price(ChatCompletions(id="gpt-5", base_url="http://127.0.0.1:9/v1"), input_tokens=1) is None
    )
    assert price(ChatCompletions(id="nobody-knows"), input_tokens=1) is None
    assert price(ChatCompletions(id="gpt-5", base_url="https://api.openai.com/v1/"), input_tokens=1)


@pytest.mark.parametrize(
    "tokens",
    [
        {"input_tokens": 0, "cache_read_tokens": 99, "cache_write_tokens": 99},
        {"output_tokens": 1, "reasoning_tokens": 99},
        {"input_tokens": 1 << 40, "output_tokens": 1 << 40},
    ],
)
def test_whatever_a_provider_reports_has_a_price(tokens: dict[str, int]) -> None:
    for model in (ChatCompletions(id="gpt-5"), AnthropicMessages(id="claude-sonnet-4-5")):
        found = price(model, **tokens)
        assert found is not None
        assert 0 <= found < NANO * 10**9


def test_a_model_without_a_provider_of_that_name_is_unknown() -> None:
    class Other:
        id = "gpt-5"
        name = provider = "Nobody's"

    other: Any = Other()
    assert price(other, input_tokens=1) is None


def test_a_list_that_the_process_keeps_newer_changes_nothing() -> None:
    snapshot = genai_prices.data_snapshot.DataSnapshot(providers=[], from_auto_update=True)
    genai_prices.data_snapshot.set_custom_snapshot(snapshot)
    try:
        assert price(ChatCompletions(id="gpt-5"), input_tokens=8) == 10_000
    finally:
        genai_prices.data_snapshot.set_custom_snapshot(None)


def test_a_file_names_the_source_and_a_budget_wants_every_price(tmp_path: Path) -> None:
    path = tmp_path / "platform.toml"
    path.write_text(CONFIG.format(own="my-own"))
    made = from_file(path, {"KEY": "k"})
    assert made.find_unpriced() == ()

    path.write_text(CONFIG.format(own="gpt-5"))
    with pytest.raises(LoadError, match=r"agents\[1\].model: OpenAI:gpt-5 has no price"):
        from_file(path, {"KEY": "k"})


LOADED: Final = """
import sys
from pathlib import Path
from legation_host.loading import from_file
from_file(Path(sys.argv[1]), {})
print([name for name in sys.modules if name.startswith(("genai_prices", "pydantic"))])
"""


def test_whoever_asks_for_no_source_does_not_load_it(tmp_path: Path) -> None:
    path = tmp_path / "platform.toml"
    path.write_text('[prices.models.m]\ninput = "1"\noutput = "1"\n')
    command = [sys.executable, "-c", LOADED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


MISSING: Final = """
import sys
from importlib import util
util.find_spec = lambda name: None
import legation_host.genai_prices
"""


def test_what_is_missing_is_said_with_the_extra() -> None:
    command = [sys.executable, "-c", MISSING]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "genai-prices is missing: pip install 'legation[prices]'" in done.stderr
