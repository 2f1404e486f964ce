"""cellgate in agent frameworks, a module for each; importing one imports its framework. See docs/python-package.md."""
