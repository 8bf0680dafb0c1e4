"""Declaration of pipes: model, loading, limits, secrets, revisions, rollouts, registry."""
