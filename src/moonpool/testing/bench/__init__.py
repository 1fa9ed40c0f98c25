"""`moonpool bench`: what the pool does beside what this machine can do at all, in one run.

- `measure`   rows, and how a row and its limit are measured in turns
- `machine`   the machine's own limits: a copy from and to another process's memory, a ping-pong
- `peer`      that other process
- `spinner`   keeps an idle virtual machine's cores awake during latency rows
- `stage`     the node, pool and peer that the rows share
- `topics`    what is measured together, and the bars
- `moving`    rows that move bytes through a pool
- `asking`    rows of small calls: latencies, existence, look-ups
- `sharing`   a Python loop beside a transfer
- `rails`     two rails to an emulated host, one cut, and its return
- `indexing`  rows of the block index alone
- `index_size` the index with 100 M entries, by hand
- `run`       all of it
- `plot`      all rows as one picture
"""
