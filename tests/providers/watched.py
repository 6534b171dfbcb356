"""A platform with everything that is measured: two databases, a model, tools, a team, channels.

`legation serve tests.providers.watched:platform` serves it.  The environment names the databases,
the providers and the folder of the keys, and by how many seconds the clock is wrong.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from legation import (
    Agent,
    AuthorizationConfig,
    Channel,
    Database,
    LimitOverrides,
    ModelPrice,
    OpenAIModel,
    Platform,
    PlatformLimits,
    Prices,
    Retention,
    Team,
    tool,
)

from .deliveries import ENVIRON
from .model_server import KEY

__all__ = ["platform"]

_FRIEND: Final = os.environ["WATCHED_FRIEND"]  # the one person whom WhatsApp answers
_GREEDY: Final = os.environ["WATCHED_GREEDY"]  # the user who may ask twice a minute


def _set_clock(seconds: float) -> None:
    """Let the clock of this process be ahead of that of the machine."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + round(seconds * 1e9)


@tool(again="safe")
def look_up(name: str) -> str:
    """Look a name up in the register."""
    return f"{name}: a hotel in Berlin"


@tool(again="safe")
def stumble() -> str:
    """Fail."""
    raise LookupError("no such page")


@tool(requires_confirmation=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid to {to}"


def _channels(base: str) -> list[Channel]:
    return [
        Channel(
            id="whatsapp",
            kind="whatsapp",
            agent="concierge",
            app_secret_env="APP_SECRET",
            verify_token_env="VERIFY",
            access_token_env="ACCESS",
            phone_number_id="111",
            api_base_url=f"{base}/v22.0",
            allow=(_FRIEND,),
        ),
        Channel(
            id="standard",
            kind="standard",
            agent="concierge",
            secret_env="STANDARD",
            reply_url=f"{base}/replies",
        ),
    ]


def _platform() -> Platform:
    """Return the platform that the environment describes."""
    _set_clock(float(os.environ["WATCHED_CLOCK"]))
    guests = os.environ.get("WATCHED_GUEST", "").split()
    trust = Path(os.environ["WATCHED_TRUST"])
    model_id = os.environ["WATCHED_MODEL"]
    model = OpenAIModel(
        "fast", model_id, base_url=f"{os.environ['WATCHED_MODELS']}/v1", retries=0,
        api_key_env="WATCHED_KEY",
    )  # fmt: skip
    migrated = os.environ.get("WATCHED_MIGRATED", "yes") == "yes"
    return Platform(
        authorization=True,
        authorization_config=AuthorizationConfig(
            jwks_file=str(trust / "jwks.json"),
            revocations_file=str(trust / "revoked.json"),
            algorithm="EdDSA",
        ),
        jwks=(trust / "jwks.json").read_bytes(),
        revocations=(trust / "revoked.json").read_bytes(),
        databases=[
            Database("main", os.environ["WATCHED_MAIN"], auto_migrate=True),
            Database("second", os.environ["WATCHED_SECOND"], auto_migrate=migrated),
        ],
        models=[model],
        agents=[
            Agent(id="concierge", model="fast", tools=[look_up, stumble, pay]),
            Agent(id="guestbook", database="second"),
            *(Agent(id=guest, model="fast") for guest in guests),
        ],
        teams=[Team(id="desk", model="fast", members=("concierge",))],
        channels=_channels(os.environ["WATCHED_CHANNELS"]),
        environ={**ENVIRON, "WATCHED_KEY": KEY},
        limits=PlatformLimits(
            subjects={_GREEDY: LimitOverrides(requests_per_second=1 / 30, request_burst=1)}
        ),
        prices=Prices(models={model_id: ModelPrice(input="1.25", output="10")}),
        retention=Retention(runs_days=30),
        lease_seconds=5.0,
    )


platform = _platform()
