"""Records of earlier releases, which every later one reads."""
