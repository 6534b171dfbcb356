# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Typical mistakes of authors: a type checker finds them, and the start says each in a sentence.

Both checkers read this file, and an ignored error that is none is one for them: where a mistake has
a comment for the checkers, they have to refuse it.  The others are found at the start alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import (
    Agent,
    AuthorizationConfig,
    ConfigurationError,
    Database,
    EchoModel,
    Model,
    OpenAIModel,
    Platform,
    SlackChannel,
    Team,
    WhatsAppChannel,
    tool,
)
from legation.tools import ToolFault
from legation_testing import Client, Refused, RunCompleted

ECHO: Final = Agent("a")


@tool
def look(place: str) -> str:
    """Look."""
    return place


def misspell_an_argument() -> None:
    Platform(agent=[ECHO])  # type: ignore[call-arg]


def misspell_a_setting() -> None:
    Agent("a", instruction="Be brief.")  # type: ignore[call-arg]


def forget_the_id() -> None:
    Agent(instructions="Be brief.")  # type: ignore[call-arg]


def misspell_a_mode() -> None:
    Platform(agents=[ECHO], teams=[Team("t", members=["a"], mode="paralel")])  # type: ignore[arg-type]


def misspell_what_a_busy_session_does() -> None:
    Platform(on_busy="quue")  # type: ignore[arg-type]


def misspell_a_doubt() -> None:
    Platform(agents=[Agent("a", in_doubt="wait")])  # type: ignore[arg-type]


def misspell_an_algorithm() -> None:
    config = AuthorizationConfig(["key"], algorithm="RS265")  # type: ignore[arg-type]
    Platform(authorization=True, authorization_config=config)


def misspell_a_provider() -> None:
    Platform(models=[Model("fast", "opnai", "gpt")])  # type: ignore[arg-type]


def name_one_tool_without_a_list() -> None:
    Platform(agents=[Agent("a", tools="os:getcwd")])  # type: ignore[arg-type]


def give_one_tool_without_a_list() -> None:
    Platform(agents=[Agent("a", tools=look)])  # type: ignore[arg-type]


def name_a_tool_as_in_a_file() -> None:
    Platform(agents=[Agent("a", tools=["os:getcwd"])])  # type: ignore[list-item]


def give_one_agent_without_a_list() -> None:
    Platform(agents=ECHO)  # type: ignore[arg-type]


def give_the_url_for_a_database() -> None:
    Platform(databases=["sqlite:///x.db"])  # type: ignore[list-item]


def write_a_number_as_a_word() -> None:
    Platform(models=[OpenAIModel("fast", "gpt", temperature="hot")])  # type: ignore[arg-type]


def give_the_model_for_its_name() -> None:
    Platform(agents=[Agent("a", model=EchoModel("slow"))])  # type: ignore[arg-type]


def set_of_a_model_what_it_has_not() -> None:
    EchoModel("slow", temperature=0.5)  # type: ignore[call-arg]


def forget_a_secret_of_a_channel() -> None:
    whatsapp = WhatsAppChannel(
        "w", agent="a", phone_number_id="1", app_secret_env="S", verify_token_env="T"
    )
    Platform(agents=[ECHO], channels=[whatsapp], environ={"S": "secret", "T": "token"})


def give_an_example_for_a_schema() -> None:
    Platform(agents=[Agent("a", output_schema="a name and an age")])  # type: ignore[arg-type]


def misspell_a_field_of_a_run() -> None:
    with Client(Platform(agents=[ECHO])) as client:
        client.run("a", "hi", sesion_id="s")  # type: ignore[call-arg]


def read_what_an_event_has_not() -> None:
    with Client(Platform(agents=[ECHO])) as client:
        last = client.stream("a", "hi")[-1]
        assert isinstance(last, RunCompleted)
        _ = last.reasons  # type: ignore[attr-defined]


def call_a_tool_with_what_it_does_not_take() -> None:
    look(plaice="Rome")  # type: ignore[call-arg]


def forget_the_type_of_a_parameter() -> None:
    @tool  # pyright: ignore[reportUnknownArgumentType]
    def find(what) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
        return ""

    assert find.name == "find"


def take_the_user_from_the_model() -> None:
    @tool
    def orders(user_id: str) -> str:
        return user_id

    assert orders.name == "orders"


def name_a_model_that_is_not_there() -> None:
    Platform(agents=[Agent("a", model="gpt-5")])


def name_a_member_that_is_not_there() -> None:
    Platform(agents=[ECHO], teams=[Team("t", members=["a", "b"])])


def give_two_agents_one_id() -> None:
    Platform(agents=[ECHO, Agent("a")])


def forget_the_environment() -> None:
    Platform(models=[OpenAIModel("fast", "gpt")])


def forget_a_variable() -> None:
    slack = SlackChannel("s", agent="a", signing_secret_env="S", bot_token_env="T")
    Platform(agents=[ECHO], channels=[slack], environ={"S": "secret"})


def name_a_database_that_is_not_there() -> None:
    Platform(agents=[Agent("a", database="mian")], databases=[Database("main", "sqlite://")])


def switch_on_authorization_without_a_key() -> None:
    Platform(authorization=True)


UNEXPECTED: Final = "got an unexpected keyword argument "
MISTAKES: Final[tuple[tuple[Callable[[], None], type[Exception], str], ...]] = (
    (misspell_an_argument, TypeError, UNEXPECTED + "'agent'"),
    (misspell_a_setting, TypeError, UNEXPECTED + "'instruction'"),
    (forget_the_id, TypeError, "missing 1 required positional argument: 'id'"),
    (
        misspell_a_mode,
        ConfigurationError,
        "teams[0].mode: 'paralel' is none of: coordinate, route, collaborate",
    ),
    (
        misspell_what_a_busy_session_does,
        ConfigurationError,
        "platform.on_busy: 'quue' is none of: queue, reject",
    ),
    (
        misspell_a_doubt,
        ConfigurationError,
        "agents[0].in_doubt: 'wait' is none of: ask, tell, end",
    ),
    (
        misspell_an_algorithm,
        ConfigurationError,
        "authorization_config.algorithm: 'RS265' is not one of ",
    ),
    (
        misspell_a_provider,
        ConfigurationError,
        "models.fast.provider: 'opnai' is none of: anthropic, echo, openai",
    ),
    (
        name_one_tool_without_a_list,
        ConfigurationError,
        "agents[0].tools: expected a list, not str",
    ),
    (
        give_one_tool_without_a_list,
        ConfigurationError,
        "agents[0].tools: expected a list, not Tool",
    ),
    (
        name_a_tool_as_in_a_file,
        ConfigurationError,
        "agents[0].tools[0]: 'os:getcwd' is imported from a configuration file alone; give the ",
    ),
    (give_one_agent_without_a_list, ConfigurationError, "agents: expected a list, not Agent"),
    (
        give_the_url_for_a_database,
        ConfigurationError,
        "databases[0]: expected Database(…), not str",
    ),
    (
        write_a_number_as_a_word,
        ConfigurationError,
        "models.fast.temperature: expected a number, not str",
    ),
    (
        give_the_model_for_its_name,
        ConfigurationError,
        "agents[0].model: expected a name: list it in Platform(models=[…]), write model='slow'",
    ),
    (set_of_a_model_what_it_has_not, TypeError, UNEXPECTED + "'temperature'"),
    (
        forget_a_secret_of_a_channel,
        ConfigurationError,
        "channels.w.access_token_env: missing",
    ),
    (
        give_an_example_for_a_schema,
        ConfigurationError,
        "agents[0].output_schema: expected a mapping or a class, not str",
    ),
    (misspell_a_field_of_a_run, Refused, "sesion_id"),
    (read_what_an_event_has_not, AttributeError, "has no attribute 'reasons'"),
    (call_a_tool_with_what_it_does_not_take, TypeError, UNEXPECTED + "'plaice'"),
    (forget_the_type_of_a_parameter, ToolFault, "what"),
    (take_the_user_from_the_model, ToolFault, "parameter 'user_id'"),
    (
        name_a_model_that_is_not_there,
        ConfigurationError,
        "agents[0].model: no model 'gpt-5'; there are: echo",
    ),
    (
        name_a_member_that_is_not_there,
        ConfigurationError,
        "teams[0].members[1]: no agent or team 'b'",
    ),
    (give_two_agents_one_id, ConfigurationError, "agents[1].id: 'a' is taken"),
    (
        forget_the_environment,
        ConfigurationError,
        "the environment variable OPENAI_API_KEY was not read: pass environ=os.environ",
    ),
    (
        forget_a_variable,
        ConfigurationError,
        "channels.s.bot_token_env: the environment variable T is not set",
    ),
    (
        name_a_database_that_is_not_there,
        ConfigurationError,
        "agents[0].database: no database 'mian'; there are: main",
    ),
    (
        switch_on_authorization_without_a_key,
        ConfigurationError,
        "authorization_config.verification_keys: there is no key",
    ),
)
"""Each mistake, with the exception and the sentence of the start."""


@pytest.mark.parametrize(
    ("mistake", "kind", "sentence"), MISTAKES, ids=[one[0].__name__ for one in MISTAKES]
)
def test_mistake_is_told_in_one_sentence(
    mistake: Callable[[], None], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as caught:
        mistake()

    lines = str(caught.value).splitlines()
    assert len(lines) == 1
    assert sentence in lines[0]


def test_every_mistake_of_this_file_is_tried() -> None:
    here: dict[str, Any] = globals()
    mistakes = {
        name
        for name, value in here.items()
        if getattr(value, "__module__", "") == __name__
        and callable(value)
        and not name.startswith("test_")
    }

    assert {one[0].__name__ for one in MISTAKES} == mistakes - {"look"}
    assert len(MISTAKES) >= 15
