"""The connector with faults that a test switches on by a file in the runtime folder, in whatever process it runs.

``lie``: every look-up says that the pool holds everything. ``hold``: reads wait in the worker, after saying so in
``holding``, until the file is gone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from moonpool.connectors.lookup import MatchAnswer
from moonpool.connectors.vllm import MoonpoolConnector

HOLD_S_MAX = 60.0


class FaultyConnector(MoonpoolConnector):
    """See the module."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._folder = Path(extra["moonpool.runtime_folder"])
        if self._face is not None:
            desk = self._face.side._desk
            honest = desk._matcher.now
            desk._matcher = desk._matcher._replace(
                now=lambda namespace_id, block_hashes, budget_ms: (
                    MatchAnswer(len(block_hashes), True)
                    if (self._folder / "lie").exists()
                    else honest(namespace_id, block_hashes, budget_ms)
                )
            )
        if self._worker is not None:
            read = self._worker.read
            self._worker.read = lambda *arguments: (self._wait_released(), read(*arguments))[1]

    def _wait_released(self) -> None:
        deadline = time.monotonic() + HOLD_S_MAX
        while (self._folder / "hold").exists() and time.monotonic() < deadline:
            (self._folder / "holding").touch()
            time.sleep(0.002)
