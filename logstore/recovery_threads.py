"""(shell) Recovers logs in several threads: num.recovery.threads.per.data.dir.

Checking holds the interpreter lock, so that threads do not help with cached files. For other files, the disk reads one
log while another is checked.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from raylog.logstore.log_dir import Jobs


def run_in_threads(threads: int, jobs: Jobs) -> None:
    """Run all jobs. Raises the error of the first failed job in their order; remaining jobs are skipped."""
    with ThreadPoolExecutor(threads, thread_name_prefix="raylog-recovery") as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            for each in running:
                each.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
