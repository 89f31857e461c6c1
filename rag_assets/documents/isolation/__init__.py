"""Documents are opened in a child process, which is ended when one of them takes too much.

Nothing is imported here: the child process loads no more than what it needs.
"""
