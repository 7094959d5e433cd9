"""Runs app.py with uvicorn on HOST:PORT. SIGTERM completes accepted requests and exits with code 0.

With END_WITH_PARENT, it also ends when the parent process has ended, which holds the other end of the pipe at descriptor 3.
"""

import os
import signal
import sys
import threading

import uvicorn


def end_with_parent() -> None:
    while os.read(3, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    if os.environ.get("END_WITH_PARENT"):
        threading.Thread(target=end_with_parent, daemon=True).start()
    # uvicorn raises the signal again after its shutdown
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(
        "app:app",
        host=os.environ.get("HOST", "127.0.0.1"),
        port=int(os.environ.get("PORT", "8006")),
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=int(os.environ.get("SHUTDOWN_GRACE_SECONDS", "30")),
    )
