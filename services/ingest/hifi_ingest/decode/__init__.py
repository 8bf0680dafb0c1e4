"""Request bodies to CloudEvents: JSON, batches, binary mode, masks."""
