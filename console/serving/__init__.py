"""The server: connections, the application behind the guard, the table of routes and the document made from it."""
