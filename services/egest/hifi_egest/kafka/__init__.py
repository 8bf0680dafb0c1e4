"""The kind of destinations `kafka`: records of a topic of any cluster, exactly once for `read_committed` readers."""
