"""Declaration of pipes: model, loading, limits, revisions, rollouts, and the registry that follows them."""
