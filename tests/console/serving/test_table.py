"""The table of routes: who may ask for what."""

from fencepost.console.routes import CHANGE, OPEN
from fencepost.console.serving.table import routes

SESSION = "/v1/session"


def test_only_session_health_and_openapi_paths_are_served_before_a_login() -> None:
    found = {(each.method, each.path) for each in routes() if each.access == OPEN}
    about = {("GET", path) for path in (SESSION, "/healthz", "/readyz", "/openapi.json")}
    assert found == {*about, ("POST", SESSION)}


def test_every_post_route_but_login_has_change_access_and_needs_a_confirm_field() -> None:
    changes = [each for each in routes() if each.method != "GET" and each.path != SESSION]
    assert len(changes) == 3
    assert {each.access for each in changes} == {CHANGE}
    assert all("confirm" in (each.body or {})["required"] for each in changes)
