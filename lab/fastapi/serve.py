"""Runs app.py of APP_DIR (default: this folder) with uvicorn on 127.0.0.1:PORT.

Exits with the benchmark, which holds the other end of the pipe at descriptor 3.
"""

import os
import threading

import uvicorn


def end_with_bench() -> None:
    while os.read(3, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_bench, daemon=True).start()
    uvicorn.run(
        "app:app",
        app_dir=os.environ.get("APP_DIR", os.path.dirname(__file__)),
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        access_log=False,
        log_level="warning",
        workers=int(os.environ.get("WORKERS", "1")),
    )
