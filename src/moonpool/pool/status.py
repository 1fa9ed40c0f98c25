"""What readers of a /status document need often."""

from __future__ import annotations

import json


def node_state(document: str) -> str:
    """One of warming, ready and stopping."""
    return str(json.loads(document).get("state", ""))
