"""The middleware: it watches one HTTP exchange pass and changes nothing of it.

Config lives on the middleware object, a request's state on its own small `Exchange`.
"""
