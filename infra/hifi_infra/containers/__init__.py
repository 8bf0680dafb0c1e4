"""The executor of a mesh in containers: containers of a Compose project, releases as image tags."""
