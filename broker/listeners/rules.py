"""What a listener asks of a client's login, made from its settings and the broker's users."""

from ...effects.rng import Rng
from ..config.listener_settings import ListenerSettings
from ..config.options import InvalidOption
from ..security.credentials import ScramUsers
from ..security.login import LoginRules
from ..security.sasl import NONCE_BYTES, PLAIN, SCRAM, Exchange, PlainExchange, ScramExchange, fresh_nonce


def login_rules(listener: ListenerSettings, users: ScramUsers, rng: Rng) -> LoginRules | None:
    """None where it asks nobody. Raises InvalidOption: a mechanism has nothing to verify logins with."""
    if not listener.asks_for_login:
        return None
    options = listener.options
    for mechanism in options.sasl_enabled_mechanisms:
        if mechanism not in (PLAIN, *SCRAM):
            raise InvalidOption(f"{mechanism} has nothing to verify tokens with", "sasl.enabled.mechanisms")

    def begin(mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainExchange(users)
        return ScramExchange(users, SCRAM[mechanism], fresh_nonce(rng.bytes(NONCE_BYTES)))

    return LoginRules(options.sasl_enabled_mechanisms, begin, options.connections_max_reauth_ms)
