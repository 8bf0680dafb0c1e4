"""Helpers of several tests: clients, servers, streams and meshes under test, in a folder for each part of the tree."""
