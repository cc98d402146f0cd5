"""(shell) Several logs opened at once, while some of them wait for the disk: num.recovery.threads.per.data.dir.

Checking holds the interpreter's lock, so that threads gain nothing on files that are in memory. On files that are not,
the disk reads for one log while another is checked.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from raylog.logstore.log_dir import Jobs


def run_in_threads(threads: int, jobs: Jobs) -> None:
    """Returns when all are done. Raises what the first of them (in their order) has raised; the rest is left out."""
    with ThreadPoolExecutor(threads, thread_name_prefix="raylog-recovery") as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            for each in running:
                each.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
