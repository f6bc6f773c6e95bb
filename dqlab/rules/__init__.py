"""The rules of a queue: states, lanes, leases, retries and dead letters. All are pure, and meet in `Shard`.

They run in the worker of queues that holds the shard (`cluster.shard`), and in a process that opens a store without a
cluster (`store.offline`). Other processes import values from here, such as `states`, `ranges` and `reports`; they
change no shard with them. By what they decide:

    shard, ledger, book, journal                               a shard, its runs, and what a store behind it has to do
    lane, with batches, frame_notes, trouble; states, ranges   which messages there are, and the state of each
    picking, leases, flow, budget                              what is leased next, to which consumer, until when
    deliveries, retry                                          how a delivery ends, and what a user orders
    puts, result_index, reports                                what is known of inputs, results and progress
"""
