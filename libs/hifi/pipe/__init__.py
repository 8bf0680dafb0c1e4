"""Declaration of pipes: model, loading, limits, revisions, rollouts, registry."""
