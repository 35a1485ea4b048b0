"""What runs inside the sandbox, in processes of its own: nothing here imports anything but the standard library.

confine, landlock, seccomp: how a process gives up what it may do; probe: whether it has. driver: runs the tests and has
the verdict. worker: runs the program and has neither. wire, values, remote: how the two talk. names, imported: what
the names in the tests stand for. joined, harmless: where the tests of a single text begin.
"""
