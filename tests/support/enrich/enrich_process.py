"""Instances of enrich as processes, each in a process group of its own."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request

from tests.support.enrich.running_instance import LiveStream


async def start(stream: LiveStream, port: int, **settings: str) -> asyncio.subprocess.Process:
    variables = {
        "HIFI_KAFKA": stream.kafka,
        "HIFI_STREAM": stream.topics.stream,
        "HIFI_PORT": str(port),
        **settings,
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hifi_enrich",
        env=os.environ | variables,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def readyz(port: int) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}
