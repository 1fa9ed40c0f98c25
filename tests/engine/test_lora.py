"""LoRA adapters on real engines: the same content is shared, another content never, whatever it is called."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from llm import BLOCK, Llm, LoraAdapter, prompt_of
from tiny_models import LLAMA, make_adapter

from moonpool.connectors.request_reasons import ADAPTER_CHANGED
from moonpool.testing.cluster import Cluster

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

FLAGS = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
WHOLE = 5 * BLOCK
seeds = count(500)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoraAdapter]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: LoraAdapter(name, number, make_adapter(folder / name, LLAMA, seed=number))
        for number, name in enumerate(("stays", "changes"), start=1)
    }


@pytest.fixture(scope="module")
def first(cluster: Cluster, llama: Path, adapters: dict[str, LoraAdapter]) -> Iterator[Llm]:
    with Llm("first", llama, runtime_folder=cluster.folder, flags=FLAGS) as engine:
        yield engine


def test_adapters_with_equal_content_share_and_others_and_the_base_model_do_not(
    first: Llm, cluster: Cluster, llama: Path, adapters: dict[str, LoraAdapter]
) -> None:
    stays, changes = adapters["stays"], adapters["changes"]
    prompt = prompt_of(next(seeds), WHOLE + 3)
    answers = {name: first.ask(prompt, adapter=adapter) for name, adapter in (("base", None), *adapters.items())}
    assert [first.outcome(answer).saved_blocks for answer in answers.values()] == [5, 5, 5], "one namespace each"
    assert [first.outcome(answer).applied_tokens for answer in answers.values()] == [0, 0, 0]
    assert len({answer.logprobs for answer in answers.values()}) == 3, "the adapters change what is computed"

    make_adapter(changes.folder, LLAMA, seed=77)
    refused = first.outcome(first.ask(prompt_of(next(seeds), WHOLE + 3), adapter=changes))
    assert (refused.reason, refused.saved_blocks) == (ADAPTER_CHANGED, 0)

    with Llm("second", llama, runtime_folder=cluster.folder, flags=FLAGS) as second:
        shared = second.ask(prompt, adapter=stays)
        assert second.outcome(shared).applied_tokens == WHOLE
        assert shared.distance(answers["stays"]) < 1e-3
        other = second.ask(prompt, adapter=changes)
        assert second.outcome(other).applied_tokens == 0, "the same name and the same folder, other weights"
        assert second.outcome(other).saved_blocks == 5
        assert other.logprobs != answers["changes"].logprobs
        base = second.ask(prompt)
        assert second.outcome(base).applied_tokens == WHOLE
        assert base.distance(answers["base"]) < 1e-3
