"""Connectors: how engines meet the pool.

`moonpool.connectors.vllm` is the only module here that imports an engine. Everything that decides is in its
siblings, which know plain values only:

- `groups`    which kv_groups can be stored, and by which cache rule
- `pieces`    where the pieces of a block lie in the engine's tensors
- `lookup`    one cached look-up per request, its budget
- `saving`    which blocks of a step are offered to the pool
- `loading`   loads in the background, cancelled without leaving a writer behind
- `health`    whether the node is worth a call at all
- `link`      a client and the thread that keeps it connected
- `plans`     what scheduler and workers tell each other each step
- `outcomes`  what became of each request, and the counters
- `reporter`  tells node, directory and file about it, from a thread of its own
- `scheduler`, `worker`  the two sides, without an engine's types
"""
