"""Control plane: replaces the instances of a service by another release, judged on a canary first."""
