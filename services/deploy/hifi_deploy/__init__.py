"""deploy: replaces the instances of a service by a new release, judged on a canary first."""
