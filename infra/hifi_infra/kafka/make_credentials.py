"""`python -m hifi_infra.kafka.make_credentials FOLDER`: makes certificates and passwords for brokers in containers.

What exists is kept; a certificate that expires within 60 days, or that lacks a host name, is replaced. Options:

    --stream NAME      stream whose users get passwords (default: hifi)
    --host NAME        host name of a broker, any number of times
    --report-key FILE  also makes the key with which observe signs reports, and FILE.pub for who receives them
    --owner UID        user who may read the files, if this program runs as root

Exit status: 0 when everything is there, 2 when the folder cannot be used.
"""

import argparse
import os
import sys
from pathlib import Path

from hifi.kafka.topics import ControlTopics, Topics
from hifi.runtime.errors import Misconfigured
from hifi.runtime.signed_document import make_keys
from hifi_infra.kafka.credentials import ADMIN, BROKER, ClusterCredentials
from hifi_infra.kafka.secured_stream import stream_users


def make_credentials(
    folder: Path, stream: str, hosts: list[str], owner: int | None = None, report_key: Path | None = None
) -> None:
    """Make the missing credentials.

    Args:
        folder: of the credentials.
        stream: its users get passwords.
        hosts: names of the brokers' hosts.
        owner: number of the user who may read the files; None: the user of this process.
        report_key: file of the key with which observe signs reports; None: it is not made.

    Raises:
        Misconfigured: the folder cannot be used.
    """
    # Also of a control plane that is added later; users have the same names whatever it is called.
    users = stream_users(Topics(stream), ControlTopics(f"{stream}-control")).values()
    ClusterCredentials(folder).prepare((ADMIN, BROKER, *users), hosts)
    paths = [folder, *folder.rglob("*")]
    if report_key is not None and not report_key.exists():
        paths += [report_key, make_keys(report_key)]
    if owner is not None:
        for path in paths:
            if path.is_dir():
                path.chmod(0o711)  # the user who starts containers must find the files by their names
            os.chown(path, owner, owner)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="hifi_infra.kafka.make_credentials")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stream", default="hifi")
    parser.add_argument("--host", action="append", default=[])
    parser.add_argument("--owner", type=int)
    parser.add_argument("--report-key", type=Path)
    arguments = parser.parse_args()
    try:
        make_credentials(
            arguments.folder, arguments.stream, arguments.host, arguments.owner, arguments.report_key
        )
    except Misconfigured as error:
        print(f"make_credentials: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
