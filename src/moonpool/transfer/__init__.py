"""Bytes from process to process: the layer below the pool, and an interface of its own.

- `engine`       `TransferEngine`: regions of this process, and the peers that it reaches
- `peer`         `TransferPeer`: read, write, submit; `Transfer`: one that is under way
- `regions`      what was registered here, and what a peer says of its own
- `operations`   reads and writes as the native engine takes them
- `results`      what became of each
- `memory`       addresses of buffers, tensors and DLPack objects
- `completions`  the native completion queue as futures of asyncio
"""
