"""The service state, which does not rest between the rehearsals of a standby."""

from hifi_state import rehearsals
from hifi_state.__main__ import main

if __name__ == "__main__":
    rehearsals._REST = 0  # type: ignore[misc]
    main()
