"""The person at this machine, as the audit trail names who used a command."""

from __future__ import annotations

import getpass
import os

__all__ = ["find_local_user"]


def find_local_user() -> str:
    """Return the name of who types this, by the system's list and not by $LOGNAME."""
    try:
        import pwd  # there is none on Windows, where the environment has to do

        return pwd.getpwuid(os.getuid()).pw_name
    except ImportError:
        return getpass.getuser()
    except KeyError:
        return str(os.getuid())
