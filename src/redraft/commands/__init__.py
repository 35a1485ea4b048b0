"""The commands of `redraft`, one a file. They import the library inside their functions: `--help` is instant."""
