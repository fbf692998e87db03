"""The server: connections, the application with its checks, the table of routes and the document made from it."""
