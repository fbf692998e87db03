"""The handlers of the console, by topic: each module has its handlers and, below them, their rows of the route
table.
"""
