"""Programs that tests start: stand-ins of services, services that fail on purpose, functions of pipes."""
