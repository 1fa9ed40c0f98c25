"""vLLM on the pool: `MoonpoolConnector`, loaded by vLLM with ``kv_connector_module_path=moonpool.connectors.vllm``.

The one module that imports vLLM, and the one to adapt when vLLM changes. It translates; what is decided is decided
in its siblings. Nothing here raises into the engine's step: what goes wrong is logged once and the engine runs on
without the pool. Importing opens nothing; scheduler and workers connect by themselves once their engine is ready.

One adapter for three minor releases, 0.30 to 0.32. What only some of them have is looked for, never inferred from the
number of the release: here where it has to be imported (`_host_memory`, `_hash_block_size`), in `engine_facts` where it
is an attribute (`replica_count`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)

from moonpool.connectors import engine_facts
from moonpool.connectors.assembly import connector_config, find_peers, make_worker_side
from moonpool.connectors.engine import EngineFace
from moonpool.connectors.event_facts import HashFacts
from moonpool.connectors.groups import CacheGroup, find_obstacle
from moonpool.connectors.pieces import TensorFacts, layer_pieces
from moonpool.connectors.plans import StepPlan, StepReport
from moonpool.connectors.request_reasons import PROMPT_LOGPROBS
from moonpool.connectors.worker import HostPort, Port, Shard
from moonpool.errors import IdentityError
from moonpool.identity import instruction_set

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger("vllm.moonpool")
Result = TypeVar("Result")
STOP_TIMEOUT_MS = 2_000


class PlanMetadata(KVConnectorMetadata):
    """A `StepPlan` on its way from the scheduler to the workers."""

    def __init__(self, plan: StepPlan) -> None:
        self.plan = plan


class ReportMetadata(KVConnectorWorkerMetadata):
    """A `StepReport` on its way back."""

    def __init__(self, report: StepReport) -> None:
        self.report = report

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Of two workers in one step."""
        return ReportMetadata(self.report.merge(other.report))


class Shield:
    """Keeps what goes wrong in the connector out of the engine's step: logged once a place, counted, answered with
    what an engine without a pool would get.
    """

    def __init__(self) -> None:
        self.caught_count = 0
        self._known: set[str] = set()

    def run(self, place: str, call: Callable[[], Result], otherwise: Result) -> Result:
        """The call's result, or ``otherwise`` when it raised."""
        try:
            return call()
        except Exception:
            self.caught_count += 1
            if place not in self._known:
                self._known.add(place)
                logger.exception("moonpool connector failed place=%s: the engine goes on without the pool here", place)
            return otherwise


class VllmProbe:
    """What only vLLM itself can tell of an engine; see `engine.EngineProbe`."""

    def __init__(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
        self.vllm_config = vllm_config
        self.kv_cache_config = kv_cache_config

    def engine_version(self) -> str:
        """As in ``0.32.0``."""
        import vllm

        return str(vllm.__version__)

    def hash_block_size(self) -> int:
        """Tokens of one block hash."""
        return _hash_block_size(self.vllm_config, self.kv_cache_config)

    def local_folder(self, name: str, revision: str | None = None) -> Path:
        """The folder of weights or of an adapter; a hub name is looked up in the local cache only."""
        path = Path(name).expanduser()
        if path.exists():
            return path
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=revision, local_files_only=True))

    def adapters_may_change(self) -> bool:
        """Whether users may load adapters while the engine runs, also in place of others."""
        from vllm import envs

        return bool(envs.VLLM_ALLOW_RUNTIME_LORA_UPDATING)

    def hash_seed(self) -> tuple[str, str]:
        """(fingerprint, name) of what the first block's hash starts from. vLLM draws it after the scheduler is
        made: IdentityError `incomplete_identity` until then.
        """
        from vllm.v1.core import kv_cache_utils

        if not hasattr(kv_cache_utils, "NONE_HASH"):
            raise IdentityError("vLLM has not drawn the seed of its block hashes yet", kind="incomplete_identity")
        algorithm = str(self.vllm_config.cache_config.prefix_caching_hash_algo)
        open_seed = algorithm.startswith("sha256")  # that of other algorithms is to stay secret
        name = kv_cache_utils.get_none_hash_seed() if open_seed else "not shown"
        return bytes(kv_cache_utils.NONE_HASH).hex(), str(name)

    def hash_facts(self) -> HashFacts:
        """How blocks are hashed, shown by vLLM's own functions."""
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core import kv_cache_utils

        digest = get_hash_fn_by_name(self.vllm_config.cache_config.prefix_caching_hash_algo)
        sample = kv_cache_utils.hash_block_tokens(digest, None, range(1, self.hash_block_size() + 1))
        return HashFacts(root=bytes(kv_cache_utils.NONE_HASH).hex(), extra_keys=_extra_keys(), sample=sample.hex())

    def attention_backend(self) -> str:
        """What writes the cache. Where vLLM chooses by itself: what it chooses by."""
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            return "CPU_ATTN"
        chosen = self.vllm_config.attention_config.backend
        return f"{chosen}" if chosen is not None else f"chosen for {current_platform.device_type}"

    def instruction_set(self) -> str:
        """What the order of bytes inside a block depends on, besides the backend."""
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return f"{current_platform.get_device_name()} {current_platform.get_device_capability()}"
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        model, cache = self.vllm_config.model_config, self.vllm_config.cache_config
        kernels = _get_attn_isa(model.dtype, cache.block_size, model.get_head_size(), cache.cache_dtype)
        return f"{instruction_set()}, {kernels} kernels"


def _extra_keys() -> str:
    """How this release hashes the adapter of a request; see `moonpool.conductor.hashes.ExtraKeys`."""
    from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

    adapter = SimpleNamespace(lora_name="a", lora_path="b")
    request: Any = SimpleNamespace(lora_request=adapter, mm_features=[], cache_salt=None, prompt_embeds=None)
    keys, _ = generate_block_hash_extra_keys(request, 0, 1, 0)
    if keys == (("lora", "a", "b"),):
        return "tagged"
    return "tagged_names" if keys == (("lora", "a"),) else "untagged"


def _host_memory() -> Any:
    """How vLLM's metrics call hits out of a host's memory: since 0.32; None before, and never asked for."""
    try:
        from vllm.v1.metrics.cache_hit_source import CacheHitSource
    except ImportError:
        return None
    return CacheHitSource.HOST


class MoonpoolConnector(KVConnectorBase_V1, SupportsHMA):
    """vLLM's connector to the pool. One instance in the scheduler, one in each worker."""

    _cache_hit_source = _host_memory()

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._shield = Shield()
        self._groups = engine_facts.read_groups(kv_cache_config)
        self._face: EngineFace | None = None
        self._worker: Any = None
        if role is KVConnectorRole.SCHEDULER:
            self._face = EngineFace(VllmProbe(vllm_config, kv_cache_config), self._groups)
        else:
            self._worker = self._make_worker()

    @property
    def requires_kv_delivery(self) -> bool:
        """A save that was dropped is a later miss, nothing more."""
        return False

    # Scheduler ----------------------------------------------------------------------------------------------

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """The scheduler is ready."""
        super().bind_kv_cache_manager(kv_cache_manager)
        if self._face is not None:
            self._shield.run("start", self._face.start, None)

    def on_new_request(self, request: Request) -> None:
        """Nothing is remembered of a request before it is asked for."""
        if self._face is not None:
            self._face.wait_ready()

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """(tokens to load beyond the engine's own hit, whether asynchronously); (None, False): ask again."""
        nothing: tuple[int | None, bool] = (0, False)
        return self._shield.run("lookup", lambda: self._matched(request, num_computed_tokens), nothing)

    def _matched(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        assert self._face is not None
        sharing = self._face.sharing(request)
        if sharing.pending:
            return None, False
        if request.skip_reading_prefix_cache and not sharing.obstacle:
            sharing = sharing._replace(obstacle=PROMPT_LOGPROBS)
        decision = self._face.side.matched(
            engine_facts.RequestFacts(request), local_token_count=num_computed_tokens, sharing=sharing
        )
        if decision.pending:
            return None, False
        return decision.token_count, decision.token_count > 0

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """The request got its blocks; those of ``num_external_tokens`` tokens are to be loaded."""
        face = self._face
        assert face is not None
        self._shield.run(
            "allocated",
            lambda: face.side.admitted(
                engine_facts.RequestFacts(request),
                block_numbers=blocks.get_block_ids(),
                load_token_count=num_external_tokens,
            ),
            None,
        )

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        """What the workers are to load and to save in this step."""
        face = self._face
        assert face is not None
        return PlanMetadata(self._shield.run("plan", lambda: face.plan(scheduler_output), StepPlan()))

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """What the workers have done."""
        face = self._face
        assert face is not None
        metadata = connector_output.kv_connector_worker_meta
        self._shield.run(
            "received",
            lambda: face.side.received(
                metadata.report if isinstance(metadata, ReportMetadata) else None,
                finished=connector_output.finished_recving or (),
                failed=connector_output.failed_recving or (),
            ),
            None,
        )

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Saves are done when a step ends, so the blocks may go at once."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """As `request_finished`. Blocks of a load under way are kept by vLLM until the worker reports it."""
        del block_ids
        face = self._face
        if face is not None:
            self._shield.run("ended", lambda: face.side.ended(request.request_id), None)
        return False, None

    def reset_cache(self) -> bool | None:
        """Forget what is in the pool by moving to a new namespace; False while a load is under way."""
        if self._face is None:
            return None
        return self._shield.run("reset", self._face.roll, False)

    # Worker -------------------------------------------------------------------------------------------------

    def _make_worker(self) -> Any:
        config = connector_config(self._kv_transfer_config.kv_connector_extra_config)
        shard = _shard(self._vllm_config, self._kv_cache_config)
        engine_id = engine_facts.engine_label(self._vllm_config, config.connector.engine_id)
        return make_worker_side(
            config, self._groups, peers=find_peers(config), name=f"{engine_id} worker {shard.index}", shard=shard
        )

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Where the cache lies. Computes and checks the pieces of a block, and connects."""
        hash_block_size = _hash_block_size(self._vllm_config, self._kv_cache_config)
        self._worker.obstacle = find_obstacle(self._groups, hash_block_size=hash_block_size)
        if self._worker.obstacle:
            return
        ports = self._shield.run("register", lambda: self._make_ports(kv_caches), None)
        if ports is None:
            self._worker.obstacle = "the layout of the cache was not understood"
        else:
            self._shield.run("connect", lambda: self._worker.register(ports), None)

    def _make_ports(self, kv_caches: dict[str, torch.Tensor]) -> dict[int, Port]:
        block_count = int(self._kv_cache_config.num_blocks)
        return {group.kv_group: _make_port(group, kv_caches, block_count=block_count) for group in self._groups}

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        """Nothing to drain: saves are synchronous, and a load belongs to a request that cannot be preempted."""

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """The step begins: loads start now, beside the forward pass, not after it."""
        super().bind_connector_metadata(connector_metadata)
        assert isinstance(connector_metadata, PlanMetadata)
        self._worker.begin(connector_metadata.plan)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Loads have started in `bind_connector_metadata`."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Whole blocks are loaded, between steps."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Whole blocks are saved, in `wait_for_save`."""

    def wait_for_save(self) -> None:
        """Save the blocks that this step has completed."""
        self._shield.run("save", self._worker.save, None)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Loads that have ended, each once; failed ones are recomputed."""
        ended, failed = self._worker.take_ended()
        return KVConnectorTransferResults(finished_recving=ended, failed_recving=failed)

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """What the scheduler's side is to know of this step."""
        report = self._worker.take_report()
        return None if report is None else ReportMetadata(report)

    def shutdown(self) -> None:
        """Stop the copying, tell what is left, close."""
        if self._face is not None:
            self._shield.run("stop", self._face.stop, None)
        if self._worker is not None:
            self._shield.run("stop", lambda: self._worker.stop(STOP_TIMEOUT_MS), False)


def _make_port(group: CacheGroup, kv_caches: dict[str, torch.Tensor], *, block_count: int) -> Port:
    """How the blocks of one group are reached; raises UsageError when the layout is not understood."""
    tensors = [kv_caches[name] for name in group.layer_names if name in kv_caches]
    if not tensors:
        raise IdentityError(f"kv_group {group.kv_group} has no tensors")
    pieces = layer_pieces([tensor_facts(tensor) for tensor in tensors], block_count=block_count)
    covered = sum(piece.length_bytes for piece in pieces)
    if group.content_bytes and covered != group.content_bytes:
        raise IdentityError(
            f"a block of kv_group {group.kv_group} has {group.content_bytes} bytes, its tensors cover {covered}"
        )
    if tensors[0].device.type != "cpu":
        from moonpool.connectors.device import DevicePort

        return DevicePort(tensors, pieces, block_count=block_count)
    from moonpool._native import Layout

    layout = Layout(
        [piece.base for piece in pieces],
        [piece.stride_bytes for piece in pieces],
        [piece.length_bytes for piece in pieces],
        block_count,
    )
    return HostPort(layout)


def tensor_facts(tensor: torch.Tensor) -> TensorFacts:
    """Address, shape and strides in bytes of a torch tensor."""
    item_bytes = tensor.element_size()
    return TensorFacts(
        address=tensor.data_ptr(),
        shape=tuple(tensor.shape),
        strides_bytes=tuple(stride * item_bytes for stride in tensor.stride()),
        item_bytes=item_bytes,
    )


def _shard(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> Shard:
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    parallel = vllm_config.parallel_config
    replicas = engine_facts.replica_count(kv_cache_config)
    per_stage = max(1, int(parallel.tensor_parallel_size) // replicas)
    index = get_pp_group().rank_in_group * per_stage + get_tp_group().rank_in_group // replicas
    count = engine_facts.shard_count(vllm_config, kv_cache_config)
    return Shard(index=index, count=count, local_count=max(1, count // max(1, int(getattr(parallel, "nnodes", 1)))))


def _hash_block_size(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> int:
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes

    resolved = getattr(kv_cache_config, "hash_block_size", None)
    return int(resolved or resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)[1])
