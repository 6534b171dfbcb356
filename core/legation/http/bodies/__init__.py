"""The bodies and the queries of requests: pure codecs, and one reader for all.

Each is imported from its own module, so that who reads JSON does not wait for the codec of forms.
"""

from __future__ import annotations
