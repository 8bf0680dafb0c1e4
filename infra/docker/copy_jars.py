"""Downloads the locked jars and gives each program a folder of its own: FOLDER/kafka, connect, debezium, spark.

python copy_jars.py FOLDER
"""

import os
import sys
from pathlib import Path

from hifi_infra.java.jars import connect_jars, debezium_jars, kafka_jars, spark_jars


def main() -> None:
    """The command."""
    target = Path(sys.argv[1])
    programs = {"kafka": kafka_jars, "connect": connect_jars, "debezium": debezium_jars, "spark": spark_jars}
    for program, jars in programs.items():
        folder = target / program
        folder.mkdir(parents=True)
        for jar in jars():
            os.link(jar, folder / jar.name)


if __name__ == "__main__":
    main()
