"""What the tests of the command share: a folder as an operator has it, and the command itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import define
from click.testing import CliRunner, Result

from legation_cli import main

__all__ = ["CONFIGURATION", "Operator"]

CONFIGURATION: Final = """
[platform]
id = "front-office"
authorization = true

[authorization_config]
algorithm = "{algorithm}"
require = ["exp"]
verification_keys = ['''
{pem}''']

[databases.main]
url = "sqlite:///{folder}/front-office.db"

[[agents]]
id = "concierge"
"""


@define
class Operator:
    """Somebody at a terminal, in a folder of their own."""

    folder: Path
    environ: Mapping[str, str]

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        """Run the command; an error that is none of the command's own is raised."""
        return CliRunner().invoke(
            main, arguments, input=stdin, env=dict(self.environ), catch_exceptions=False
        )

    def keys(self, algorithm: str = "EdDSA") -> Path:
        """Make keys, and a platform.toml that names the public one; return the private one."""
        assert self.run("keys", "new", "keys", "--algorithm", algorithm).exit_code == 0
        self.configure(pem=Path("keys/public.pem").read_text(), algorithm=algorithm)
        return Path("keys/private.pem")

    def configure(self, more: str = "", **values: str) -> None:
        """Write platform.toml."""
        text = CONFIGURATION.format(folder=self.folder, **values)
        Path("platform.toml").write_text(text + more)

    def token(self, *arguments: str, algorithm: str = "EdDSA") -> str:
        """Return a token of `legation token`."""
        key = ("--key", "keys/private.pem", "--algorithm", algorithm)
        made = self.run("token", *key, *arguments)
        assert made.exit_code == 0, made.output
        return made.output.strip()
