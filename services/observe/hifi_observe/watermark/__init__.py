"""The pipeline's watermark: until when all accepted events of a pipe have their outcome at a destination."""
