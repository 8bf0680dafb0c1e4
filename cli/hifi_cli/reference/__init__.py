"""Reference pages, generated from the models that they describe: `python -m hifi_cli.reference docs`."""
