"""What people have used ZooKeeper for, with topics and groups: each file is one recipe.

    naming.py         unique names: of several who claim one, the first in the log has it
    registry.py       which instances of a service are alive, and where
    configuration.py  settings that many processes read and watch
    election.py       one leader of many, who is fenced as soon as there is another
    lock.py           a lock with a fencing token
    barrier.py        processes that wait for each other
    work_queue.py     work that is shared, and done again by others if a worker dies

All of them keep their state in topics, so that it survives every process that uses it. `python -m examples.recipes`
runs them all.
"""
